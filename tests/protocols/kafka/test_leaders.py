"""Leader epochs of topics in a cluster, and refusals that name the present leader (KIP-951)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire import fetch, metadata, produce
from braidlog.protocols.kafka.wire import list_offsets as offsets
from braidlog.protocols.kafka.wire import offset_for_leader_epoch as ends
from braidlog.protocols.kafka.wire import share_acknowledge as acknowledge
from braidlog.protocols.kafka.wire import share_fetch as share
from braidlog.protocols.kafka.wire.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.nodes import SteppedBroker, two_brokers
from tests.listeners import open_listeners
from tests.protocols.kafka.frames import RawKafka, message_set
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until

GROUP, MEMBER = b"queue", b"member"
NO_LEADER = (-1, -1)


@dataclass
class LeaderCluster:
    """A client of the first of two brokers, and the topics of both."""

    nodes: tuple[SteppedBroker, SteppedBroker]
    mine: TopicName
    theirs: TopicName
    client: RawKafka

    def leader(self, topic: TopicName) -> tuple[int, int]:
        """Return the node and the epoch of a topic's owner, as its session says."""
        node = self.nodes[topic == self.theirs]
        return node.number, node.shared.session.epochs[node.shared.shard_of(topic.full)]

    def endpoint(self, topic: TopicName) -> tuple[int, bytes, int]:
        """Return the address of a topic's owner."""
        node = self.nodes[topic == self.theirs]
        host, port = node.broker.listeners["kafka"].bound
        return node.number, host.encode(), port

    def id_of(self, topic: TopicName) -> bytes:
        return id_of(self.nodes[0].broker.topics.get(topic))

    async def shown(self, topic: TopicName, version: int = 12) -> Any:
        """Return the first partition of a topic in a Metadata answer."""
        wanted = metadata.MetadataRequestTopic(name=topic.topic.encode())
        request = metadata.MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        return (await self.client.call_whole(request, version)).topics[0]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LeaderCluster]:
    async with (
        two_brokers(SharedStore(tmp_path)) as (nodes, names),
        open_listeners(nodes[0].broker) as connect,
        open_listeners(nodes[1].broker) as connect_second,
    ):
        client = RawKafka(await connect("kafka"))
        await connect_second("kafka")
        for node in nodes:
            addresses = node.internal.addresses(list(node.broker.listeners.values()))
            await trio.to_thread.run_sync(node.shared.session.tell_addresses, addresses)
        placement = nodes[0].broker.placement
        await until(lambda: "kafka" in placement.owner(names[1]).addresses)
        yield LeaderCluster(nodes, *names, client)


def led(partition: Any) -> tuple[int, int]:
    """Return the leader and the epoch that a partition of an answer names."""
    leader = partition.current_leader
    return (-1, -1) if leader is None else (leader.leader_id, leader.leader_epoch)


def endpoints(reply: Any) -> list[tuple[int, bytes, int]]:
    return [(node.node_id, node.host, node.port) for node in reply.node_endpoints]


@pytest.mark.parametrize("version", range(9, 14))
async def test_a_refused_produce_names_the_leader(cluster: LeaderCluster, version: int) -> None:
    topic = produce.TopicProduceData(
        name=cluster.theirs.topic.encode(),
        topic_id=cluster.id_of(cluster.theirs),
        partition_data=[
            produce.PartitionProduceData(index=index, records=memoryview(message_set(b"a")))
            for index in range(2)
        ],
    )
    request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    reply = await cluster.client.call_whole(request, version)
    names_leader = version >= 10
    for partition in reply.responses[0].partition_responses:
        assert partition.error_code == Code.NOT_LEADER_FOR_PARTITION
        assert led(partition) == (cluster.leader(cluster.theirs) if names_leader else NO_LEADER)
    assert endpoints(reply) == ([cluster.endpoint(cluster.theirs)] if names_leader else [])


async def fetched(cluster: LeaderCluster, topic: TopicName, version: int, epoch: int = -1) -> Any:
    partition = fetch.FetchPartition(
        partition=0, current_leader_epoch=epoch, partition_max_bytes=1000
    )
    wanted = fetch.FetchTopic(
        topic=topic.topic.encode(), topic_id=cluster.id_of(topic), partitions=[partition]
    )
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted])
    return await cluster.client.call_whole(request, version)


@pytest.mark.parametrize("version", range(12, 19))
async def test_a_refused_fetch_names_the_leader(cluster: LeaderCluster, version: int) -> None:
    epoch = cluster.leader(cluster.mine)[1]
    for topic, known, code in (
        (cluster.theirs, -1, Code.NOT_LEADER_FOR_PARTITION),
        (cluster.mine, epoch - 1, Code.FENCED_LEADER_EPOCH),
        (cluster.mine, epoch + 1, Code.UNKNOWN_LEADER_EPOCH),
        (cluster.mine, epoch, Code.NONE),
        (cluster.mine, -1, Code.NONE),
    ):
        reply = await fetched(cluster, topic, version, known)
        (partition,) = reply.responses[0].partitions
        assert partition.error_code == code
        is_led = version >= 16 and code in (6, 74)
        assert led(partition) == (cluster.leader(topic) if is_led else NO_LEADER)
        assert endpoints(reply) == ([cluster.endpoint(topic)] if is_led else [])


@pytest.mark.parametrize("version", [1, 2])
async def test_refusals_of_share_members_name_the_leader(
    cluster: LeaderCluster, version: int
) -> None:
    topic_id = cluster.id_of(cluster.theirs)
    request = share.ShareFetchRequest(
        group_id=GROUP,
        member_id=MEMBER,
        max_bytes=1000,
        max_records=10,
        topics=[share.FetchTopic(topic_id=topic_id, partitions=[share.FetchPartition()])],
    )
    reply = await cluster.client.call_whole(request, version)
    (partition,) = reply.responses[0].partitions
    assert partition.error_code == Code.NOT_LEADER_FOR_PARTITION
    assert led(partition) == cluster.leader(cluster.theirs)
    assert endpoints(reply) == [cluster.endpoint(cluster.theirs)]
    batch = acknowledge.AcknowledgementBatch(acknowledge_types=[1])
    acked = acknowledge.AcknowledgePartition(acknowledgement_batches=[batch])
    confirm = acknowledge.ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=1,
        topics=[acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[acked])],
    )
    reply = await cluster.client.call_whole(confirm, version)
    (partition,) = reply.responses[0].partitions
    assert partition.error_code == Code.NOT_LEADER_FOR_PARTITION
    assert led(partition) == cluster.leader(cluster.theirs)
    assert endpoints(reply) == [cluster.endpoint(cluster.theirs)]


async def test_descriptions_of_topics_have_the_epoch_of_the_owner(cluster: LeaderCluster) -> None:
    for topic in (cluster.mine, cluster.theirs):
        assert cluster.leader(topic)[1] > 0
        for partition in (await cluster.shown(topic)).partitions:
            assert (partition.leader_id, partition.leader_epoch) == cluster.leader(topic)
        named = TopicRequest(name=topic.topic.encode())
        request = DescribeTopicPartitionsRequest(topics=[named], response_partition_limit=10)
        described = (await cluster.client.call_whole(request, 0)).topics[0]
        for partition in described.partitions:
            assert (partition.leader_id, partition.leader_epoch) == cluster.leader(topic)


async def test_records_of_every_epoch_so_far_end_at_the_high_watermark(
    cluster: LeaderCluster,
) -> None:
    name, present = cluster.mine.topic.encode(), cluster.leader(cluster.mine)[1]
    partition = cluster.nodes[0].broker.topics.partition(cluster.mine, 0)
    end = partition.high_watermark
    for known, wanted, answer in (
        (present, 0, (Code.NONE, 0, end)),
        (-1, present, (Code.NONE, present, end)),
        (present, present + 1, (Code.NONE, -1, -1)),
        (present, -1, (Code.NONE, -1, -1)),
        (present - 1, 0, (Code.FENCED_LEADER_EPOCH, -1, -1)),
        (present + 1, 0, (Code.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ):
        target = ends.OffsetForLeaderPartition(current_leader_epoch=known, leader_epoch=wanted)
        end_topic = ends.OffsetForLeaderTopic(topic=name, partitions=[target])
        reply = await cluster.client.call_whole(
            ends.OffsetForLeaderEpochRequest(topics=[end_topic]), 4
        )
        (ended,) = reply.topics[0].partitions
        assert (ended.error_code, ended.leader_epoch, ended.end_offset) == answer


async def test_list_offsets_checks_the_epoch_that_the_client_knows(cluster: LeaderCluster) -> None:
    present = cluster.leader(cluster.mine)[1]
    for known, code in (
        (present, Code.NONE),
        (-1, Code.NONE),
        (present - 1, Code.FENCED_LEADER_EPOCH),
        (present + 1, Code.UNKNOWN_LEADER_EPOCH),
    ):
        target = offsets.ListOffsetsPartition(current_leader_epoch=known, timestamp=-1)
        topic = offsets.ListOffsetsTopic(name=cluster.mine.topic.encode(), partitions=[target])
        reply = await cluster.client.call_whole(offsets.ListOffsetsRequest(topics=[topic]), 10)
        assert reply.topics[0].partitions[0].error_code == code
