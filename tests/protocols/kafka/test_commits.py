"""Group positions over the wire: kept as sent, shared by both versions and all listeners."""

import errno
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import load
from braidlog.protocols.kafka import commits as module
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.log.files import Buffer
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set
from tests.protocols.kafka.talk import (
    FOO,
    FOO_NAME,
    produce_one,
)
from tests.storage.files_twins import FailingDisk


class CursorsDisk(FailingDisk):
    """A disk that fails on request; counts the batches written to the cursors' journal."""

    cursor_writes = 0

    def write(self, path: str, fd: int, parts: Sequence[Buffer], pos: int) -> int:
        self.cursor_writes += path.endswith(".log") and "cursors" in path
        return super().write(path, fd, parts, pos)


@pytest.fixture
def disk() -> CursorsDisk:
    return CursorsDisk()


@pytest.fixture
async def broker(tmp_path: Path, disk: CursorsDisk) -> AsyncIterator[Broker]:
    """Yield a broker over that disk, with a running committer."""
    config = load(environment={}, file="/dev/null", flags=[("data_dir", str(tmp_path), "test")])
    opened = Broker(config, DataDir.open(tmp_path, LocalFiles(tmp_path, disk)))
    async with trio.open_nursery() as running:
        running.start_soon(opened.run)
        opened.ready.set()
        yield opened
        opened.stop()
        running.cancel_scope.cancel()
    opened.close()


async def commit(
    client: RawKafka,
    version: int,
    offset: int,
    metadata: bytes | None,
    group: bytes | None = b"g",
) -> int:
    target = m.CommitTarget(offset, metadata, None)
    request = m.OffsetCommitRequest(version, group, -1, b"", {FOO: {0: target}})
    reply = await client.call(request)
    assert isinstance(reply, m.OffsetCommitReply)
    return reply.topics[FOO][0]


async def committed(
    client: RawKafka, version: int, group: bytes | None = b"g"
) -> m.CommittedOffset:
    reply = await client.call(m.OffsetFetchRequest(version, group, {FOO: [0]}))
    assert isinstance(reply, m.OffsetFetchReply)
    return reply.topics[FOO][0]


async def test_never_committed_is_error_3_in_version_0_and_none_in_version_1(
    client: RawKafka,
) -> None:
    assert await committed(client, 0) == m.CommittedOffset(-1, b"", 3)
    assert await committed(client, 1) == m.CommittedOffset(-1, b"", 0)


async def test_a_name_with_members_of_a_share_group_takes_no_commits(client: RawKafka) -> None:
    """As Kafka 4.3.1 answers. An old client's commit, which names no member, still counts."""
    beat = ShareGroupHeartbeatRequest(
        group_id=b"g", member_id=b"m", subscribed_topic_names=[FOO], member_epoch=0
    )
    targets = {FOO: {0: m.CommitTarget(0, b"")}}
    for epoch, code in ((0, Code.GROUP_ID_NOT_FOUND), (-1, Code.NONE)):  # The member joins, leaves.
        beat.member_epoch = epoch
        assert (await client.call_whole(beat, 1)).error_code == Code.NONE
        commit = m.OffsetCommitRequest(5, b"g", -1, b"", targets)
        assert (await client.call_with_table(commit, 5)).topics[FOO][0] == code
        old = m.OffsetCommitRequest(1, b"g", -1, b"", targets)
        assert (await client.call_with_table(old, 1)).topics[FOO][0] == Code.NONE


@pytest.mark.parametrize("metadata", [b"", b"note", None, "ü".encode(), b"\xff\x00"])
@pytest.mark.parametrize("written", [0, 1])
async def test_both_versions_share_a_position_and_version_1_keeps_metadata(
    client: RawKafka, metadata: bytes | None, written: int
) -> None:
    assert await commit(client, written, 7, metadata) == 0
    assert await committed(client, 1) == m.CommittedOffset(7, metadata, 0)
    assert await committed(client, 0) == m.CommittedOffset(7, b"", 0)


@pytest.mark.parametrize("offset", [-5, 0, 1 << 50, -(2**63), 2**63 - 1])
async def test_any_number_is_returned_as_committed(client: RawKafka, offset: int) -> None:
    assert await commit(client, 1, offset, b"") == 0
    assert await committed(client, 1) == m.CommittedOffset(offset, b"", 0)


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        (b"m" * 4096, 0),
        (b"m" * 4097, 12),
        ("ü" * 4096, 0),
        ("ü" * 4097, 12),
        ("\U0001f9f6" * 2049, 12),
    ],
    ids=["4096", "4097", "4096 of two bytes", "4097 of two bytes", "pairs count twice"],
)
async def test_metadata_is_limited_in_characters(
    client: RawKafka, metadata: bytes | str, code: int
) -> None:
    text = metadata.encode() if isinstance(metadata, str) else metadata
    assert await commit(client, 1, 3, text) == code
    expected = m.CommittedOffset(-1, b"", 0) if code else m.CommittedOffset(3, text, 0)
    assert await committed(client, 1) == expected


@pytest.mark.parametrize("time_ms", [0, -2, 2**63 - 1, -(2**63)])
async def test_commit_times_of_any_value_are_accepted(client: RawKafka, time_ms: int) -> None:
    target = m.CommitTarget(4, b"", time_ms)
    request = m.OffsetCommitRequest(1, b"g", -1, b"", {FOO: {0: target}})
    assert await client.call(request) == m.OffsetCommitReply({FOO: {0: 0}})
    assert (await committed(client, 1)).offset == 4


@pytest.mark.parametrize(("version", "code"), [(0, 3), (1, 0)])
async def test_only_version_0_checks_the_topic_of_a_commit(
    client: RawKafka, version: int, code: int
) -> None:
    targets = {b"nowhere": {0: m.CommitTarget(1, b"", None)}}
    request = m.OffsetCommitRequest(version, b"g", -1, b"", targets)
    assert await client.call(request) == m.OffsetCommitReply({b"nowhere": {0: code}})
    reply = await client.call(m.OffsetFetchRequest(version, b"g", {b"nowhere": [0]}))
    assert reply == m.OffsetFetchReply({b"nowhere": {0: m.CommittedOffset(-1, b"", 3)}})


async def test_null_group_is_an_error(client: RawKafka) -> None:
    assert await commit(client, 1, 1, b"", group=None) == -1
    assert (await committed(client, 1, group=None)).error == -1


async def test_kafka_reads_a_position_moved_by_another_listener(
    broker: Broker, client: RawKafka
) -> None:
    await produce_one(client, message_set(b"a", b"b", b"c"))
    await commit(client, 1, 1, b"note")
    topic = broker.topics.get(FOO_NAME)
    subscription = broker.subscriptions.find(topic, b"g")
    assert subscription is not None
    subscription.ack(0, [(1, 2)], lazy=False)
    assert (await committed(client, 1)).offset == 2


async def test_an_answered_commit_is_on_disk(broker: Broker, client: RawKafka) -> None:
    before = broker.durability.durable_ticket
    await commit(client, 1, 5, b"")
    assert broker.durability.durable_ticket > before


# Many partitions in a single request.

BAR = b"bar"
BAR_NAME = TopicName("public", "default", "bar")


def target(offset: int, metadata: bytes = b"") -> m.CommitTarget:
    return m.CommitTarget(offset, metadata, None)


async def commit_many(
    client: RawKafka, targets: dict[bytes, dict[int, m.CommitTarget]], version: int = 1
) -> m.ByPartition[int]:
    reply = await client.call(m.OffsetCommitRequest(version, b"g", -1, b"", targets))
    assert isinstance(reply, m.OffsetCommitReply)
    return reply.topics


async def all_committed(client: RawKafka, indexes: range) -> list[int]:
    reply = await client.call(m.OffsetFetchRequest(1, b"g", {BAR: list(indexes)}))
    assert isinstance(reply, m.OffsetFetchReply)
    return [committed.offset for committed in reply.topics[BAR].values()]


@pytest.mark.parametrize(
    ("version", "count"),
    [
        (0, 3),
        (1, 3),
        pytest.param(0, module.PIECE_COMMITS, marks=pytest.mark.slow),
        pytest.param(1, module.PIECE_COMMITS + 1, marks=pytest.mark.slow),
    ],
)
async def test_many_partitions_take_few_writes(
    broker: Broker, client: RawKafka, disk: CursorsDisk, version: int, count: int
) -> None:
    await broker.topics.create(BAR_NAME, count)
    await broker.durability.all_durable()
    disk.cursor_writes = 0
    answer = await commit_many(client, {BAR: {i: target(i) for i in range(count)}}, version)
    assert answer == {BAR: dict.fromkeys(range(count), 0)}
    assert disk.cursor_writes == 1 + (count > module.PIECE_COMMITS)
    assert await all_committed(client, range(count)) == list(range(count))


@pytest.mark.parametrize(("version", "unknown"), [(0, 3), (1, 0)])
async def test_each_partition_has_its_own_error(
    broker: Broker, client: RawKafka, version: int, unknown: int
) -> None:
    await broker.topics.create(BAR_NAME, 3)
    targets = {
        BAR: {0: target(5), 1: target(6, b"m" * 4097), 2: target(7), 3: target(8)},
        b"nowhere": {0: target(9)},
        FOO: {0: target(10)},
    }
    answer = await commit_many(client, targets, version)
    assert answer == {BAR: {0: 0, 1: 12, 2: 0, 3: 0}, b"nowhere": {0: unknown}, FOO: {0: 0}}
    assert await all_committed(client, range(4)) == [5, -1, 7, -1]
    assert (await committed(client, 1)).offset == 10


async def test_a_full_disk_refuses_commits_and_moves_none(
    broker: Broker, client: RawKafka, disk: CursorsDisk
) -> None:
    await broker.topics.create(BAR_NAME, 2)
    await commit_many(client, {BAR: {0: target(5)}})
    disk.fail("write", errno.ENOSPC)
    targets = {BAR: {0: target(6), 1: target(6, b"m" * 4097)}, FOO: {0: target(6), 1: target(6)}}
    assert await commit_many(client, targets) == {BAR: {0: 56, 1: 12}, FOO: {0: 56, 1: 0}}
    assert await all_committed(client, range(2)) == [5, -1]
    assert (await committed(client, 1)).offset == -1
    assert broker.subscriptions.find(broker.topics.get(FOO_NAME), b"g") is None
    disk.heal()
    assert await commit_many(client, targets) == {BAR: {0: 0, 1: 12}, FOO: {0: 0, 1: 0}}
    assert await all_committed(client, range(2)) == [6, -1]
