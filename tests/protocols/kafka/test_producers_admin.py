"""DescribeProducers shows the idempotent producers of a partition."""

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire.describe_producers import DescribeProducersRequest, TopicRequest
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO
from tests.protocols.kafka.test_record_times import produced, records_at
from tests.storage.formats.kafka.test_record_batches import batch


async def test_producers_are_described(broker: Broker, client: RawKafka) -> None:
    data = records_at(5, 6)[61:]
    for sequence in (0, 2):
        await produced(client, batch(data, 2, pid=77, epoch=3, seq=sequence))
    await produced(client, records_at(5))
    wanted = [
        TopicRequest(name=FOO, partition_indexes=[0, 1]),
        TopicRequest(name=b"none", partition_indexes=[0]),
    ]
    reply = await client.call_whole(DescribeProducersRequest(topics=wanted), 0)
    (known, missing), (other,) = (topic.partitions for topic in reply.topics)
    assert (known.error_code, missing.error_code, other.error_code) == (0, 3, 3)
    (state,) = known.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (77, 3, 3)
    assert 0 <= broker.now_us() // 1000 - state.last_timestamp < 60_000
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
