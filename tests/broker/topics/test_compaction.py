"""Compaction of topics: its moments, its reports, and events during a compaction."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from braidlog.broker.errors import Conflict, NotSupported
from braidlog.broker.topics.compaction import CompactionState, Compactor
from braidlog.storage.errors import StorageFull
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record
from braidlog.storage.log.compaction.runs import ViewCompaction
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.metadata.names import TopicName
from tests.storage.files_twins import StoppingDisk
from tests.waiting import until

NAME = TopicName("public", "default", "keyed")
QUICK = {"log.compaction_check_ms": "10"}
COMPACT = {"cleanup_policy": "compact", "segment_bytes": 64 * 1024, "min_dirty_ppm": 1}


async def fill(broker, topic, count, size=100):
    """Store `count` records of ten keys in each partition, on disk."""
    for partition in topic.partitions:
        for number in range(count):
            base = partition.next_offset
            record = Record(base, 1, key=b"k%d" % (number % 10), value=bytes(size))
            body = PLAIN.encode([record], base)
            appended = partition.append(
                [body], BodyInfo(1), body_format=BodyFormat.PLAIN, append_us=1
            )
        await broker.durability.reached(appended.ticket)


async def finished(compactor, topic):
    while compactor.status(topic).state is CompactionState.RUNNING:
        await trio.sleep(0.001)
    return compactor.status(topic)


def view_records(partition):
    batches = partition.log.read_compacted(0, 1 << 20)
    return sum(batch.header.record_count for batch in batches)


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_views_are_created_on_request_and_reported(broker):
    topic = await broker.topics.create(NAME, 2)
    await fill(broker, topic, 30)
    compactor = broker.compactor
    assert compactor.status(topic).state is CompactionState.NOT_RUN
    compactor.ask(topic)
    with pytest.raises(Conflict):
        compactor.ask(topic, 1)
    assert (await finished(compactor, topic)).state is CompactionState.SUCCESS
    assert [partition.compacted_offset for partition in topic.partitions] == [30, 30]
    assert [view_records(partition) for partition in topic.partitions] == [10, 10]
    compactor.ask(topic, 0)  # No new records.
    assert (await finished(compactor, topic)).state is CompactionState.SUCCESS
    number = broker.metrics.number("braidlog_compactions", "view", "done")
    assert number.value == 2


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
@pytest.mark.parametrize("lag_ms", [1, 2**63 - 1])
async def test_old_records_are_compacted_however_few_they_are(broker, lag_ms):
    rare = {"min_dirty_ppm": 1_000_000, "max_compaction_lag_ms": lag_ms}
    topic = await broker.topics.create(NAME, 1, settings=COMPACT | rare)
    (partition,) = topic.partitions
    await fill(broker, topic, 500, size=400)
    partition.log.compacted.note_cleaned(partition.log.segments()[1][0])  # Not all are new.
    end_offset = partition.log.segments()[-1][0]
    await until(lambda: partition.log.compacted.cleaned_offset == end_offset or lag_ms > 1)
    done = broker.metrics.number("braidlog_compactions", "log", "done").value
    assert bool(done) == (lag_ms == 1)


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_closed_segments_are_compacted_automatically(broker):
    topic = await broker.topics.create(NAME, 1, settings=COMPACT)
    (partition,) = topic.partitions
    await fill(broker, topic, 500, size=400)
    saved = broker.metrics.number("braidlog_compaction_saved_bytes", "log")
    while saved.value < 100_000:
        await trio.sleep(0.005)
    assert partition.size_bytes < 100_000
    assert partition.next_offset == 500
    assert partition.log_start_offset == 0
    assert broker.metrics.number("braidlog_compaction_last_seconds", "log").value > 0


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_a_deleted_topic_ends_only_its_own_compaction(broker):
    topic = await broker.topics.create(NAME, 1)
    await fill(broker, topic, 50)
    broker.compactor.ask(topic)
    await broker.topics.delete(NAME)
    again = await broker.topics.create(NAME, 1)
    await fill(broker, again, 30)
    broker.compactor.ask(again)
    assert (await finished(broker.compactor, again)).state is CompactionState.SUCCESS


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_files_removed_during_a_compaction_sync_stop_no_other_work(broker):
    topic = await broker.topics.create(NAME, 1)
    await fill(broker, topic, 50)
    disk = broker._storage.files.disk = StoppingDisk(".view.new")
    broker.compactor.ask(topic)
    await trio.to_thread.run_sync(disk.stopped.wait)
    folder = Path(topic.partitions[0].log.folder)
    await broker.topics.delete(NAME)
    await until(lambda: not folder.exists())
    disk.go_on.set()
    again = await broker.topics.create(NAME, 1)
    await fill(broker, again, 30)
    broker.compactor.ask(again)
    assert (await finished(broker.compactor, again)).state is CompactionState.SUCCESS


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_a_full_disk_fails_only_the_compaction(broker, monkeypatch):
    topic = await broker.topics.create(NAME, 1)
    await fill(broker, topic, 50)
    files = broker._storage.files

    def full(path):
        raise StorageFull(f"no room for {path}")

    with monkeypatch.context() as patch:
        patch.setattr(files, "create", full)
        broker.compactor.ask(topic)
        status = await finished(broker.compactor, topic)
    assert status.state is CompactionState.ERROR
    assert "no room" in status.last_error
    await fill(broker, topic, 5)
    broker.compactor.ask(topic)
    assert (await finished(broker.compactor, topic)).state is CompactionState.SUCCESS


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_deleted_records_do_not_stay_in_a_view(broker):
    topic = await broker.topics.create(NAME, 1)
    (partition,) = topic.partitions
    await fill(broker, topic, 30)
    broker.compactor.ask(topic)
    await finished(broker.compactor, topic)
    await broker.retention.purge(topic)
    assert partition.compacted_offset == 0


async def test_a_shared_store_is_refused(broker):
    topic = await broker.topics.create(NAME, 1)
    compactor = Compactor(
        broker.topics,
        broker.durability,
        broker._storage.files,
        broker.metrics,
        interval_ms=10,
        ages=broker.ages,
        is_possible=False,
    )
    with pytest.raises(NotSupported):
        compactor.ask(topic)
    await compactor.run()


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_a_failed_compaction_is_retried_with_new_records(broker, monkeypatch):
    topic = await broker.topics.create(NAME, 1, settings={"compaction_threshold_bytes": 1})
    failed = broker.metrics.number("braidlog_compactions", "view", "failed")

    def full(path):
        raise StorageFull(f"no room for {path}")

    with monkeypatch.context() as patch:
        patch.setattr(broker._storage.files, "create", full)
        await fill(broker, topic, 20)
        while not failed.value:
            await trio.sleep(0.001)
        tries = failed.value
        await trio.sleep(0.05)
        assert failed.value == tries
    assert "no room" in broker.compactor.status(topic).last_error
    await fill(broker, topic, 1)
    while topic.partitions[0].compacted_offset < 21:
        await trio.sleep(0.001)


def failing(monkeypatch, error):
    """Make every compaction fail with this error."""

    def steps(self):
        raise error
        yield

    monkeypatch.setattr(ViewCompaction, "steps", steps)


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileGone("segment"), "the log was changed meanwhile"),
        (KeyError("a bug"), "KeyError: 'a bug'"),
        (
            BadBatch(SimpleNamespace(path="nowhere"), 5, 7, "body checksum is wrong"),
            "body checksum is wrong",
        ),
    ],
    ids=["gone", "bug", "damage"],
)
async def test_a_failure_is_reported_and_not_retried_without_new_records(
    broker, monkeypatch, error, reason
):
    topic = await broker.topics.create(NAME, 1)
    await fill(broker, topic, 5)
    with monkeypatch.context() as patched:
        failing(patched, error)
        broker.compactor.ask(topic)
        status = await finished(broker.compactor, topic)
    assert status.state is CompactionState.ERROR and reason in status.last_error
    assert topic.partitions[0].compacted_offset == 0
    failed = broker.metrics.number("braidlog_compactions", "view", "failed")
    assert failed.value == 1
    broker.compactor.ask(topic)  # A new request retries the compaction.
    assert (await finished(broker.compactor, topic)).state is CompactionState.SUCCESS
    assert topic.partitions[0].compacted_offset == 5


@pytest.mark.parametrize("broker", [QUICK], indirect=True)
async def test_an_unreadable_view_is_dropped_and_rebuilt_from_the_log(broker, monkeypatch):
    topic = await broker.topics.create(NAME, 1)
    (partition,) = topic.partitions
    await fill(broker, topic, 20)
    broker.compactor.ask(topic)
    assert (await finished(broker.compactor, topic)).state is CompactionState.SUCCESS
    await fill(broker, topic, 20)
    with monkeypatch.context() as patched:
        failing(patched, BadBatch(partition.log.compacted.view.segment, 5, 7, "damaged"))
        broker.compactor.ask(topic)
        assert (await finished(broker.compactor, topic)).state is CompactionState.ERROR
    assert partition.log.compacted.view is None
    broker.compactor.ask(topic)
    assert (await finished(broker.compactor, topic)).state is CompactionState.SUCCESS
    assert view_records(partition) == 10
