"""Share groups over the wire: sessions, records, acknowledgements, positions, settings."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.broker.delivery.pulling import AckType
from braidlog.broker.delivery.share_queue import QueueDispatcher
from braidlog.broker.reading.records import read_records
from braidlog.protocols.kafka.consumer_group import HEARTBEAT_S
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire import share_acknowledge as acknowledge
from braidlog.protocols.kafka.wire.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from braidlog.protocols.kafka.wire.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from braidlog.protocols.kafka.wire.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from braidlog.protocols.kafka.wire.share_group_describe import ShareGroupDescribeRequest
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from braidlog.storage.formats.kafka.record_batches import PREFIX
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import AllBut
from tests.listeners import open_listeners
from tests.opened import opened_broker
from tests.protocols.kafka import forms
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME, OpenClient, foreign_append, second_client
from tests.protocols.kafka.test_classic_groups import GROUP

A, B = b"A" * 22, b"B" * 22
DEAD = TopicName("public", "default", "dead")


async def set_config(client: RawKafka, name: bytes, value: bytes) -> int:
    resource = AlterConfigsResource(
        resource_type=32, resource_name=GROUP, configs=[AlterableConfig(name=name, value=value)]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return (await client.call_whole(request, 1)).responses[0].error_code


@pytest.fixture
async def topic_id(broker: Broker, client: RawKafka) -> bytes:
    (topic,) = broker.topics.all()
    assert await set_config(client, b"share.auto.offset.reset", b"earliest") == Code.NONE
    foreign_append(broker, "foo", [b"%d" % number for number in range(10)])
    await broker.durability.all_durable()
    return id_of(topic)


def fetch(topic_id: bytes, epoch: int, member: bytes = A, **fields: Any) -> ShareFetchRequest:
    acks = fields.pop("acks", ())
    batches = [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
        for first, last, kinds in acks
    ]
    partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
    request = ShareFetchRequest(
        group_id=GROUP,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=fields.pop("wait", 0),
        max_records=fields.pop("records", 100),
        share_acquire_mode=1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def acquired(reply: Any) -> list[tuple[int, int, int]]:
    return [
        (records.first_offset, records.last_offset, records.delivery_count)
        for topic in reply.responses
        for partition in topic.partitions
        for records in partition.acquired_records
    ]


async def ack(client: RawKafka, topic_id: bytes, epoch: int, *acks: Any, member: bytes = A) -> Any:
    partition = acknowledge.AcknowledgePartition(
        partition_index=0,
        acknowledgement_batches=[
            acknowledge.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=kinds
            )
            for first, last, kinds in acks
        ],
    )
    request = acknowledge.ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=member,
        share_session_epoch=epoch,
        topics=[acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
    )
    reply = await client.call_whole(request, 1)
    if reply.error_code:
        return reply.error_code
    return reply.responses[0].partitions[0].error_code


async def test_members_that_join_together_send_heartbeats_at_different_times(
    client: RawKafka,
) -> None:
    replies = [
        await client.call_whole(
            ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id=b"%022d" % number, subscribed_topic_names=[FOO]
            ),
            1,
        )
        for number in range(8)
    ]
    assert len({reply.heartbeat_interval_ms for reply in replies}) == 8
    last = replies[-1]
    again = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=last.member_id, member_epoch=last.member_epoch
    )
    assert (await client.call_whole(again, 1)).heartbeat_interval_ms == HEARTBEAT_S * 1000


async def test_members_share_the_records(
    broker: Broker, client: RawKafka, open_client: OpenClient, topic_id: bytes
) -> None:
    other = await second_client(open_client)
    reply = await client.call_whole(fetch(topic_id, 0, records=6), 2)
    assert acquired(reply) == [(0, 5, 1)]
    assert reply.acquisition_lock_timeout_ms == 30_000
    reply = await other.call_whole(fetch(topic_id, 0, B), 2)
    assert acquired(reply) == [(6, 9, 1)]
    assert await ack(client, topic_id, 1, (0, 2, [1]), (3, 5, [1, 2, 3])) == Code.NONE
    (topic,) = broker.topics.all()
    subscription = broker.subscriptions.get(topic, GROUP)
    assert (subscription.position(0), list(subscription.acked(0))) == (4, [(5, 6)])
    reply = await other.call_whole(fetch(topic_id, 1, B, acks=[(6, 9, [1])]), 2)
    assert acquired(reply) == [(4, 4, 2)]
    assert await ack(client, topic_id, 2, (4, 4, [1])) == Code.INVALID_RECORD_STATE


async def test_a_batch_comes_once_although_its_first_records_are_freed_during_the_read(
    broker: Broker,
    client: RawKafka,
    open_client: OpenClient,
    topic_id: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = await second_client(open_client)
    assert acquired(await other.call_whole(fetch(topic_id, 0, B, records=5), 2)) == [(0, 4, 1)]
    (topic,) = broker.topics.all()
    queue = broker.dispatchers.find(topic.partitions[0], GROUP)
    assert isinstance(queue, QueueDispatcher)
    (holder,) = queue.consumers
    count_delivered = queue.count_delivered

    def release(messages: int, size: int) -> None:
        count_delivered(messages, size)
        queue.acknowledge_ranges(holder, [(0, 5, AckType.RELEASE)])

    monkeypatch.setattr(queue, "count_delivered", release)
    reply = await client.call_whole(fetch(topic_id, 0), 2)
    monkeypatch.undo()
    assert acquired(reply) == [(5, 9, 1)]
    (partition,) = reply.responses[0].partitions
    assert len(partition.records) == PREFIX.size + PREFIX.unpack_from(partition.records)[1]
    assert acquired(await client.call_whole(fetch(topic_id, 1), 2)) == [(0, 4, 2)]


async def test_records_come_back_when_the_connection_ends(
    client: RawKafka, open_client: OpenClient, topic_id: bytes
) -> None:
    other = await second_client(open_client)
    assert acquired(await other.call_whole(fetch(topic_id, 0, B), 2)) == [(0, 9, 1)]
    assert acquired(await client.call_whole(fetch(topic_id, 0), 2)) == []
    await other.stream.aclose()
    reply = await client.call_whole(fetch(topic_id, 1, wait=10_000), 2)
    assert acquired(reply) == [(0, 9, 2)]


async def test_delivery_counts_survive_a_clean_stop(tmp_path: Path) -> None:
    async def opened(expected: list[tuple[int, int, int]]) -> None:
        async with opened_broker(tmp_path, {}) as broker, open_listeners(broker) as connect:
            client = await second_client(connect)
            await client.call(forms.MetadataRequest([FOO]))
            (topic,) = broker.topics.all()
            if broker.subscriptions.find(topic, GROUP) is None:
                assert await set_config(client, b"share.auto.offset.reset", b"earliest") == 0
                foreign_append(broker, "foo", [b"a"] * 10)
                await broker.durability.all_durable()
            reply = await client.call_whole(fetch(id_of(topic), 0, records=6), 2)
            assert acquired(reply) == expected
            assert await ack(client, id_of(topic), 1, (3, 3, [2])) == Code.NONE
            if expected[0] == (0, 5, 1):
                assert await ack(client, id_of(topic), 2, (1, 2, [1])) == Code.NONE

    await opened([(0, 5, 1)])
    await opened([(0, 0, 2), (3, 5, 2), (6, 7, 1)])


async def test_a_seek_forgets_the_counts(
    broker: Broker, open_client: OpenClient, client: RawKafka, topic_id: bytes
) -> None:
    (topic,) = broker.topics.all()
    other = await second_client(open_client)
    assert acquired(await other.call_whole(fetch(topic_id, 0, B, records=1), 2)) == [(0, 0, 1)]
    subscription = broker.subscriptions.get(topic, GROUP)
    assert subscription.deliveries(0) == []  # After a crash the queue counts from the beginning.
    await other.stream.aclose()
    await wait_all_tasks_blocked()
    assert subscription.deliveries(0) == [(0, 1, 1)]
    subscription.seek(0, 0)
    assert acquired(await client.call_whole(fetch(topic_id, 0, records=1), 2)) == [(0, 0, 1)]


async def test_a_fetch_waits_for_records(
    broker: Broker, client: RawKafka, topic_id: bytes, nursery: Any
) -> None:
    assert acquired(await client.call_whole(fetch(topic_id, 0), 2)) == [(0, 9, 1)]
    nursery.start_soon(_append_later, broker)
    reply = await client.call_whole(fetch(topic_id, 1, wait=10_000), 2)
    assert acquired(reply) == [(10, 10, 1)]


async def _append_later(broker: Broker) -> None:
    await broker.durability.all_durable()
    foreign_append(broker, "foo", [b"new"])


async def test_session_epochs_are_checked(client: RawKafka, topic_id: bytes) -> None:
    async def code(epoch: int, **fields: Any) -> int:
        code: int = (await client.call_whole(fetch(topic_id, epoch, **fields), 2)).error_code
        return code

    assert await code(1) == Code.SHARE_SESSION_NOT_FOUND
    assert await code(-1) == Code.SHARE_SESSION_NOT_FOUND
    assert await code(0, acks=[(0, 0, [1])]) == Code.INVALID_REQUEST
    assert await code(0) == Code.NONE
    assert await code(2) == Code.INVALID_SHARE_SESSION_EPOCH
    assert await ack(client, topic_id, 0, (0, 0, [1])) == Code.INVALID_SHARE_SESSION_EPOCH
    assert await code(1, member_id=b"") == Code.INVALID_REQUEST
    assert await code(1, group_id=b"") == Code.INVALID_GROUP_ID
    assert await code(-1) == Code.NONE
    assert await ack(client, topic_id, 1, (0, 0, [1])) == Code.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize(
    "acks",
    [
        [(5, 4, [1])],
        [(0, 3, [1]), (3, 4, [1])],
        [(0, 3, [])],
        [(0, 3, [1, 1])],
        [(0, 0, [9])],
        [(0, 0, [4])],
    ],
)
async def test_malformed_acknowledgements_are_refused(
    client: RawKafka, topic_id: bytes, acks: list[Any]
) -> None:
    await client.call_whole(fetch(topic_id, 0), 2)
    assert await ack(client, topic_id, 1, *acks) == Code.INVALID_REQUEST


async def test_an_unknown_topic_has_an_error(client: RawKafka, topic_id: bytes) -> None:
    reply = await client.call_whole(fetch(b"x" * 16, 0), 2)
    assert reply.responses[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_ID
    reply = await client.call_whole(fetch(topic_id, 0), 2)
    assert reply.responses[0].partitions[0].error_code == Code.NONE


async def beat(client: RawKafka, epoch: int, member: bytes = A, **fields: Any) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member, member_epoch=epoch, **fields
    )
    return await client.call_whole(request, 1)


async def test_several_members_have_a_partition(client: RawKafka, topic_id: bytes) -> None:
    first = await beat(client, 0, subscribed_topic_names=[FOO])
    second = await beat(client, 0, B, subscribed_topic_names=[FOO])
    for reply in (first, second):
        (topic,) = reply.assignment.topic_partitions
        assert (topic.topic_id, topic.partitions) == (topic_id, [0])
    assert (first.member_epoch, second.member_epoch) == (1, 2)
    assert (await beat(client, 7)).error_code == Code.FENCED_MEMBER_EPOCH
    assert (await beat(client, 1)).member_epoch == 2
    assert (await beat(client, 1, b"C")).error_code == Code.UNKNOWN_MEMBER_ID
    (group,) = (await client.call_whole(ShareGroupDescribeRequest(group_ids=[GROUP]), 1)).groups
    assert (group.group_state, group.assignor_name, len(group.members)) == (b"Stable", b"simple", 2)
    (listed,) = (await client.call_whole(ListGroupsRequest(types_filter=[b"share"]), 5)).groups
    assert (listed.group_id, listed.group_type) == (GROUP, b"share")
    assert (await beat(client, -1)).member_epoch == -1
    assert (await beat(client, -1)).error_code == Code.UNKNOWN_MEMBER_ID


async def test_positions_are_described_altered_and_deleted(
    client: RawKafka, topic_id: bytes
) -> None:
    await client.call_whole(fetch(topic_id, 0, records=2), 2)
    await ack(client, topic_id, 1, (0, 1, [1]))

    async def position() -> tuple[int, int]:
        group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        (answer,) = (await client.call_whole(request, 1)).groups
        places = [part for topic in answer.topics for part in topic.partitions]
        return (places[0].start_offset, places[0].lag) if places else (-1, -1)

    assert await position() == (2, 8)
    place = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=5)
    altered = AlterShareGroupOffsetsRequestTopic(topic_name=FOO, partitions=[place])
    request = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[altered])
    assert (await client.call_whole(request, 0)).responses[0].partitions[0].error_code == 0
    assert await position() == (5, 5)
    deleted = DeleteShareGroupOffsetsRequestTopic(topic_name=FOO)
    ending = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[deleted])
    assert (await client.call_whole(ending, 0)).responses[0].error_code == Code.NONE
    assert await position() == (-1, -1)
    await beat(client, 0, subscribed_topic_names=[FOO])
    assert (await client.call_whole(request, 0)).error_code == Code.NON_EMPTY_GROUP
    assert (await client.call_whole(ending, 0)).error_code == Code.NON_EMPTY_GROUP


async def test_deletion_tells_topics_that_the_group_never_had(
    client: RawKafka, topic_id: bytes
) -> None:
    """Kafka 4.3.1 keeps for each share group the topics that its members were assigned, read or
    not.
    """

    async def deleted(*names: bytes) -> list[tuple[bytes, bytes, int]]:
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        request = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics)
        reply = await client.call_whole(request, 0)
        assert reply.error_code == Code.NONE
        return [(topic.topic_name, topic.topic_id, topic.error_code) for topic in reply.responses]

    async def described() -> list[tuple[bytes, int]]:
        group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        (answer,) = (await client.call_whole(request, 1)).groups
        return [
            (topic.topic_name, part.start_offset)
            for topic in answer.topics
            for part in topic.partitions
        ]

    await beat(client, 0, subscribed_topic_names=[b"missing"])
    await beat(client, -1)
    assert await deleted(b"missing", FOO) == []
    assert await described() == []
    await beat(client, 0, subscribed_topic_names=[b"missing", FOO])
    await beat(client, -1)
    assert await described() == [(FOO, -1)]
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await deleted(b"missing") == [(b"missing", bytes(16), unknown)]
    assert await deleted(FOO, FOO) == [(FOO, topic_id, Code.NONE)]
    assert await described() == []
    assert await deleted(b"missing", FOO) == [
        (b"missing", bytes(16), unknown),
        (FOO, bytes(16), unknown),
    ]


async def test_rejected_and_spent_records_go_to_the_dead_letter_topic(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    key = b"errors.deadletterqueue.topic.name"
    for name in (b"missing", b"a/b"):
        assert await set_config(client, key, name) == Code.INVALID_CONFIG
    await client.call(forms.MetadataRequest([b"dead"]))
    assert await set_config(client, key, b"dead") == Code.NONE
    assert await set_config(client, b"share.delivery.count.limit", b"2") == Code.NONE
    reply = await client.call_whole(fetch(topic_id, 0, records=4), 2)
    assert acquired(reply) == [(0, 3, 1)]
    assert await ack(client, topic_id, 1, (0, 0, [3]), (1, 1, [1]), (2, 2, [2])) == Code.NONE
    reply = await client.call_whole(fetch(topic_id, 2, records=1), 2)
    assert acquired(reply) == [(2, 2, 2)]
    assert await ack(client, topic_id, 3, (2, 2, [2])) == Code.NONE
    topic, dead = (broker.topics.get(name) for name in (FOO_NAME, DEAD))
    while broker.subscriptions.get(topic, GROUP).position(0) != 3:
        await broker.durability.all_durable()
        await trio.lowlevel.checkpoint()
    letters = await read_records(dead.partitions[0], 0, bytes_max=1 << 20, records_max=10)
    assert [placed.record.value for placed in letters.records] == [b"0", b"2"]
    headers = {header.name: header.value for header in letters.records[1].record.headers}
    assert headers == {
        b"REAL_TOPIC": b"persistent://public/default/foo",
        b"REAL_SUBSCRIPTION": GROUP,
        b"ORIGIN_MESSAGE_ID": b"%d:2:-1" % topic.partitions[0].partition_id,
        b"ORIGIN_MESSAGE_IDY_TIME": b"%d:2:-1" % topic.partitions[0].partition_id,
    }
    assert acquired(await client.call_whole(fetch(topic_id, 4, records=9), 2)) == [(4, 9, 1)]


async def test_a_dead_letter_topic_needs_the_right_to_produce_there(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    key = b"errors.deadletterqueue.topic.name"
    await client.call(forms.MetadataRequest([b"dead"]))
    broker.access = Access(AllBut(Action.PRODUCE))
    for name in (b"dead", b"missing"):  # The refusal does not tell whether the topic exists.
        assert await set_config(client, key, name) == Code.TOPIC_AUTHORIZATION_FAILED
    broker.access = Access(AllBut(Action.CONSUME))
    assert await set_config(client, key, b"dead") == Code.NONE


async def test_settings_of_a_group(client: RawKafka, topic_id: bytes) -> None:
    for name, value in [
        (b"share.auto.offset.reset", b"nonsense"),
        (b"share.record.lock.duration.ms", b"1"),
        (b"share.delivery.count.limit", b"x"),
        (b"share.nonsense", b"1"),
    ]:
        assert await set_config(client, name, value) == Code.INVALID_CONFIG
    assert await set_config(client, b"share.record.lock.duration.ms", b"15000") == Code.NONE
    resource = DescribeConfigsResource(
        resource_type=32, resource_name=GROUP, configuration_keys=None
    )
    reply = await client.call_whole(DescribeConfigsRequest(resources=[resource]), 4)
    values = {config.name: config.value for config in reply.results[0].configs}
    assert values[b"share.auto.offset.reset"] == b"earliest"
    assert values[b"share.delivery.count.limit"] == b"5"
    fetched = await client.call_whole(fetch(topic_id, 0), 2)
    assert fetched.acquisition_lock_timeout_ms == 15_000
