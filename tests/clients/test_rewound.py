"""A stock Pulsar client whose subscription a Kafka commit moves back.

docs/positions.md describes the deliveries, and the messages that the client's library holds back.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.server import RunningBroker
from tests.clients.pulsar.kit import EARLIEST, new_client, take, values
from tests.waiting import until_seen

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

SENT = [b"%d" % number for number in range(10)]
PLACE = kafka.TopicPartition("t", 0)
PAGE = Path(__file__).parents[2] / "docs" / "positions.md"
WARNING = "Pulsar's C++ library (Python's client wraps the library) drops records"


# Each function reads all messages, so that later messages were sent after the move.
def _acknowledge_one_by_one(consumer: Any) -> None:
    take(consumer, 7)
    take(consumer, 3, ack=False)


def _acknowledge_cumulatively(consumer: Any) -> None:
    consumer.acknowledge_cumulative(take(consumer, 10, ack=False)[6])


def _seek_itself(consumer: Any) -> None:
    consumer.seek(take(consumer, 10, ack=False)[6].message_id())
    take(consumer, 3, ack=False)


@pytest.mark.parametrize(
    ("before", "first"),
    [
        pytest.param(_acknowledge_one_by_one, 4, id="acks one by one"),
        pytest.param(_acknowledge_cumulatively, 7, id="acks cumulatively"),
        pytest.param(_seek_itself, 7, id="seeks"),
    ],
)
def test_a_consumers_view_of_a_backward_commit(
    tmp_path: Path, before: Callable[[Any], None], first: int
) -> None:
    """The broker sends all messages from 4 on; an old consumer returns the messages that its
    library passes on.
    """
    assert WARNING in " ".join(PAGE.read_text("utf-8").split())
    with RunningBroker(tmp_path) as broker:
        client = new_client(f"pulsar://{broker.addresses['pulsar']}")
        producer = client.create_producer("t", batching_enabled=False)
        for value in SENT:
            producer.send(value)
        consumer = client.subscribe("t", "g", initial_position=EARLIEST)
        before(consumer)
        _wait_for_position(broker, 6 if before is _seek_itself else 7)
        _commit(broker, 4)
        assert values(take(consumer, len(SENT) - first, ack=False)) == SENT[first:]
        consumer.close()
        consumer = client.subscribe("t", "g")
        assert values(take(consumer, 6, ack=False)) == SENT[4:]
        client.close()


def _reader(broker: RunningBroker) -> Any:
    reader = kafka.KafkaConsumer(
        bootstrap_servers=broker.addresses["kafka"],
        api_version=(0, 8, 2),
        group_id="g",
        enable_auto_commit=False,
    )
    reader.assign([PLACE])
    return reader


def _wait_for_position(broker: RunningBroker, position: int) -> None:
    """Wait until the position is stored: the client sends acknowledgements at any time."""
    reader = _reader(broker)
    until_seen(lambda: reader.committed(PLACE) == position)
    reader.close()


def _commit(broker: RunningBroker, position: int) -> None:
    reader = _reader(broker)
    reader.commit({PLACE: kafka.structs.OffsetAndMetadata(position, "", -1)})
    reader.close()
