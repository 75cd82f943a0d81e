"""A partition as the listeners see it."""

import re
import threading
from types import SimpleNamespace

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker import errors
from braidlog.broker.commit.durability import CommitRounds
from braidlog.broker.commit.waiters import Waiters
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.poller import EpollPoller
from braidlog.broker.topics.partition import Partition
from braidlog.broker.topics.partition_calls import Callbacks
from braidlog.storage import errors as storage_errors
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.files import FileGone
from braidlog.storage.metadata.names import parse_topic
from tests.broker.records import APPEND_US, append, make_partition

KAFKA = codec_named("kafka").format
NAME = parse_topic("t")


async def has_room(size):
    return True


async def test_append_returns_the_offset_and_a_ticket_for_the_answer(broker):
    partition = await make_partition(broker)
    await broker.durability.all_durable()
    first = partition.append([b"a"], BodyInfo(3), body_format=KAFKA, append_us=APPEND_US)
    second = partition.append([b"b"], BodyInfo(1), body_format=KAFKA, append_us=APPEND_US)
    assert (first.base_offset, second.base_offset, partition.next_offset) == (0, 3, 4)
    assert partition.high_watermark == 0
    assert first.ticket == second.ticket > broker.durability.durable_ticket
    await broker.durability.all_durable()
    assert broker.durability.durable_ticket >= first.ticket
    assert partition.high_watermark == 4


async def test_written_mode_does_not_wait_for_the_disk(broker):
    topic = await broker.topics.create(parse_topic("t"), 1, settings={"durability": "written"})
    partition = topic.partitions[0]
    woken = trio.Event()

    async def read():
        await partition.wait_for(0)
        woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        appended = partition.append([b"a"], BodyInfo(1), body_format=KAFKA, append_us=APPEND_US)
        assert (appended.ticket, partition.high_watermark) == (0, 1)
        await woken.wait()


async def test_readers_wake_when_records_are_durable(broker, nursery):
    partition = await make_partition(broker)
    seen = []

    async def read():
        await partition.wait_for(0)
        seen.append(partition.high_watermark)

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    assert not seen
    await append(broker, partition, "kafka", [b"a", b"b"])
    await wait_all_tasks_blocked()
    assert seen == [2]


async def test_a_single_wait_covers_several_partitions(broker, nursery):
    partitions = (await broker.topics.create(parse_topic("t"), 3)).partitions
    returned = trio.Event()

    async def read():
        await broker.wait_any([(partition, 0) for partition in partitions])
        returned.set()

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    await append(broker, partitions[1], "kafka", [b"a"])
    await returned.wait()


async def test_a_deleted_topic_wakes_its_readers_and_refuses(broker, nursery):
    partition = await make_partition(broker)
    returned = trio.Event()

    async def read():
        await partition.wait_for(0)
        returned.set()

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    await broker.topics.delete(parse_topic("t"))
    await returned.wait()
    with pytest.raises(errors.TopicNotFound):
        partition.append([b"a"], BodyInfo(1), body_format=KAFKA, append_us=APPEND_US)
    with pytest.raises(errors.TopicNotFound):
        await partition.read(0, 100)
    await broker.durability.all_durable()


def partition_over(log, durability, has_room):
    return Partition(
        SimpleNamespace(name=NAME, is_terminated=False),
        0,
        log,
        None,
        durability.waiters,
        Callbacks(
            on_append=durability.appended,
            report=durability.report_storage_error,
            has_room=has_room,
            output=OutputBudget(),
        ),
    )


class ColdLog:
    """A log whose pages are not in memory."""

    partition_id = 1
    threads = ()

    def read(self, offset, bytes_max, beyond_bytes=None, *, wait=True, trusted=None):
        if not wait:
            raise storage_errors.WouldBlock
        self.threads = (threading.current_thread(),)
        if offset > 5:
            raise storage_errors.OffsetOutOfRange(offset, 0, 5)
        return ["batch"]


class NoFiles:
    def sync_queue(self, eventfd):
        return None


async def test_cold_reads_run_in_a_thread_and_their_errors_are_translated():
    cold = ColdLog()
    durability = CommitRounds(Committer(NoFiles()), Waiters(), EpollPoller(), flush_interval_ms=1)
    partition = partition_over(cold, durability, has_room)
    assert await partition.read(0, 100) == ["batch"]
    assert cold.threads[0] is not threading.main_thread()
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        await partition.read(6, 100)
    assert (caught.value.offset, caught.value.log_end_offset) == (6, 5)


async def test_a_topic_that_moves_during_a_request_was_not_deleted(broker, monkeypatch):
    """The topic's clients look up the new owner; clients of a deleted topic give up."""
    partition = await make_partition(broker)
    await append(broker, partition, "kafka", [b"a"])

    class ClosedInRead:
        """A log that is closed while a thread reads."""

        log_end_offset = high_watermark = 1
        log_start_offset = 0

        def read(self, *_, wait=True, **__):
            if not wait:
                raise storage_errors.WouldBlock("cold")
            partition.move_away()
            raise storage_errors.LogClosed("p")

    async def loaded():
        raise FileGone("segment")

    monkeypatch.setattr(partition, "log", ClosedInRead())
    monkeypatch.setattr(partition, "_memory", SimpleNamespace(loaded=loaded, table=None))
    with pytest.raises(errors.NotOwner):
        await partition.read(0, 100)
    with pytest.raises(errors.NotOwner):
        await partition.sequences()


class RefusingLog:
    partition_id = 1
    folder = "/srv/partitions/1"
    high_watermark = 0

    def __init__(self, error):
        self.error = error

    def append(self, body, info, **_):
        if self.error:
            raise self.error
        return 0


@pytest.mark.parametrize(
    ("raised", "broker_error", "is_final"),
    [
        (storage_errors.StorageFull("no space"), errors.StorageFull, False),
        (storage_errors.DamagedLog("p", 0, 0, "bad"), errors.DamagedLog, False),
        (storage_errors.LogClosed("p"), errors.TopicNotFound, False),
        (storage_errors.StorageFailed("pwritev: EIO"), errors.StorageFailed, True),
    ],
)
async def test_a_refused_append_is_reported_and_a_final_failure_stops_the_broker(
    raised, broker_error, is_final
):
    durability = CommitRounds(Committer(NoFiles()), Waiters(), EpollPoller(), flush_interval_ms=1)
    partition = partition_over(RefusingLog(raised), durability, has_room)
    with pytest.raises(broker_error, match=f"^{NAME}/0: {re.escape(raised.client_text)}$"):
        partition.append([b"a"], BodyInfo(1), body_format=KAFKA, append_us=APPEND_US)
    with trio.move_on_after(0) as scope, pytest.raises(storage_errors.StorageFailed):
        await durability.run()
    assert scope.cancelled_caught != is_final


async def test_no_append_starts_before_room_for_the_refused_append(broker):
    log = RefusingLog(storage_errors.StorageFull("no space"))
    sizes = []

    async def has_room(size):
        sizes.append(size)
        return len(sizes) > 1

    partition = partition_over(log, broker.durability, has_room)
    await partition.check_room()
    with pytest.raises(errors.StorageFull):
        partition.append([b"abc", b"de"], BodyInfo(1), body_format=KAFKA, append_us=APPEND_US)
    with pytest.raises(errors.StorageFull, match=f"^{NAME}/0: No space left on device$"):
        await partition.check_room()
    await partition.check_room()
    assert sizes == [5, 5]
    log.error = None
    partition.append([b"abc"], BodyInfo(1), body_format=KAFKA, append_us=APPEND_US)
    await partition.check_room()
    assert sizes == [5, 5]


class BrokenLog(RefusingLog):
    """A log whose calls all fail, at once or in a thread."""

    log_start_offset, log_end_offset = 0, 5

    def bytes_between(self, offset, end_offset):
        raise self.error

    def append_all(self, pieces, **_):
        raise self.error

    def read_compacted(self, offset, bytes_max, *, wait=True):
        if not wait:
            raise storage_errors.WouldBlock
        raise self.error


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.bytes_between(0, 5),
        lambda log: log.append_all(
            [(b"a", BodyInfo(1)), (b"b", BodyInfo(1))], body_format=KAFKA, append_us=APPEND_US
        ),
        lambda log: log.read_compacted(0, 100),
    ],
    ids=["bytes_between", "append_all", "read_compacted"],
)
async def test_every_call_on_a_damaged_log_raises_a_broker_error(broker, ask):
    damaged = storage_errors.DamagedLog("p", 0, 3, "bad")
    partition = partition_over(BrokenLog(damaged), broker.durability, has_room)
    with pytest.raises(errors.DamagedLog, match=f"^{NAME}/0: "):
        answer = ask(partition)
        await answer


async def test_a_removed_partition_returns_no_compacted_records(broker):
    partition = await make_partition(broker)
    await append(broker, partition, "kafka", [b"a"])
    assert await partition.read_compacted(0, 100)
    await broker.topics.delete(parse_topic("t"))
    with pytest.raises(errors.TopicNotFound):
        await partition.read_compacted(0, 100)


async def test_sequences_of_an_unreadable_log_are_an_error(broker, monkeypatch):
    partition = await make_partition(broker)
    for raised, broker_error in (
        (storage_errors.StorageFull("no space"), errors.StorageFull),
        (FileGone("segment"), errors.TopicNotFound),
    ):

        async def loaded(raised=raised):
            raise raised

        monkeypatch.setattr(partition, "_memory", SimpleNamespace(loaded=loaded, table=None))
        with pytest.raises(broker_error):
            await partition.sequences()
