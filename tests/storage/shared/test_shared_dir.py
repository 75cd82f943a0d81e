"""Logs in the shared store: the next session has all published records, from the stores alone."""

import errno
import os
import shutil

import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.errors import (
    DamagedLog,
    OffsetOutOfRange,
    StorageError,
    StorageFailed,
    StorageFull,
    UnwritableChange,
    WouldBlock,
)
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.segment_header import KIND_CATALOGUE
from braidlog.storage.log.settings import Durability, LogSettings
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.shared.catalogue import SharedCatalogue
from braidlog.storage.shared.journal import LedgerJournal
from braidlog.storage.shared.ledger import Fenced
from braidlog.storage.shared.pieces import PartitionPieces, Piece, SegmentPieces
from braidlog.storage.shared.shared_dir import MARK_NAME, SEQUENCE_OFFSETS, NotACache
from braidlog.storage.shared.verifying import verify_store
from tests.storage.files_twins import FailingDisk
from tests.storage.shared.shared_dirs import SHARDS, Life, SharedStore, hold_all

SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=200)
BODIES = [b"%04d" % n * 50 for n in range(40)]  # 200 bytes, two in a segment of SMALL.


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


def verified(store):
    faults = []
    report = verify_store(store.ledger, store.objects, faults.append, deep=True)
    assert not faults and report.faults == 0
    return report


@pytest.mark.parametrize("ending", ["crash", "stop"])
def test_the_next_session_reads_published_records(store, ending):
    first = Life(store)
    first.append(b"a", b"b")
    first.append(b"c")
    if ending == "crash":
        first.write(b"never published")
    getattr(first, ending)()
    shutil.rmtree(store.path / "node1")
    second = Life(store)
    assert second.read() == [b"a", b"b", b"c"]
    assert (second.log.log_start_offset, second.log.log_end_offset) == (0, 3)
    second.append(b"d")
    assert second.read(2) == [b"c", b"d"]
    second.stop()
    third = Life(store)
    assert third.read() == [b"a", b"b", b"c", b"d"]
    assert len(third.log.segments()) == 2, "a new owner begins a new segment"
    third.stop()
    verified(store)


def test_a_log_survives_packs_uploads_and_many_owners(store):
    expected = []
    for number in range(8):
        life = Life(store, settings=SMALL)
        assert life.read() == expected
        for body in BODIES[number * 5 : number * 5 + 5]:
            life.append(body)
            expected.append(body)
            if number % 2:
                life.pack()
        life.pack()
        store.now_ms += 10_000
        life.pack()
        assert life.read() == expected
        life.crash() if number % 3 else life.stop()
    report = verified(store)
    assert report.batches == 40
    last = Life(store, settings=SMALL)
    last.pack()
    store.now_ms += 10_000
    last.directory.sweeper.sweep()
    assert last.read() == expected
    live = {f"rounds/{last.directory.session.number}/{0:020d}.0"}
    assert set(store.names("rounds/")) == live, "all rounds were packed and deleted"
    last.stop()


def test_a_full_segment_is_uploaded_with_its_index_and_needs_no_pack(store):
    life = Life(store, settings=SMALL)
    life.append(*BODIES[:7])
    life.pack()
    assert len(store.names("segments/")) == 3, "the last of them is still written to"
    assert life.read() == BODIES[:7]
    life.crash()
    again = Life(store, settings=SMALL)
    segment = again.log.local.segment_set.view.segments[0]
    again.read()
    assert segment.load_index().last()[1] == segment.size
    again.stop()


def test_uncached_records_are_fetched_by_reads_that_can_wait(store):
    first = Life(store)
    first.append(b"a" * 100)
    first.crash()
    second = Life(store)
    file = second.log.local.segment_set.view.segments[0].file
    with pytest.raises(WouldBlock):
        second.read(wait=False)
    with pytest.raises(WouldBlock):
        file.read_at(8, 0, wait=False)
    assert second.read() == [b"a" * 100]
    assert bytes(file.read_at(8, 0, wait=False))[:4] == b"BRLG"
    second.stop()


def test_the_cache_evicts_the_least_used_blocks(store):
    first = Life(store, settings=SMALL)
    first.append(*BODIES[:30])
    first.pack()
    first.stop()
    second = Life(store, settings=SMALL, cache_bytes=3000)
    assert second.read() == BODIES[:30]
    assert second.directory.cache.bytes <= 3000 + 1000
    on_disk = sum(
        os.stat(os.path.join(second.log.folder, name)).st_blocks * 512
        for name in os.listdir(second.log.folder)
        if name.endswith(".log")
    )
    assert on_disk <= 8 * 4096
    assert second.read() == BODIES[:30], "what was given back is fetched again"
    second.stop()


def test_a_full_cache_disk_refuses_appends_and_everything_can_be_read(store):
    first = Life(store, settings=SMALL)
    first.append(*BODIES[:30])
    first.pack()
    first.stop()
    second = Life(store, settings=SMALL)
    assert second.read() == BODIES[:30]
    held = second.directory.cache.bytes
    for segment in second.log.local.segment_set.view.segments[:3]:
        segment.file.empty()  # The records are no longer in the cache.
    second.directory.files.local.disk = FailingDisk("write", number=errno.ENOSPC)
    assert second.read() == BODIES[:30]
    assert second.directory.cache.bytes < held, "it makes room"
    with pytest.raises(StorageFull):
        second.append(b"x")
    second.directory.files.local.disk = Disk()
    second.append(b"x")
    assert second.read() == [*BODIES[:30], b"x"]
    second.stop()


def test_retention_moves_the_start_in_the_ledger_and_deletes_objects(store):
    first = Life(store, settings=SMALL)
    first.append(*BODIES[:10])
    first.pack()
    first.log.alter(LogSettings(segment_bytes=1000, retention_bytes=1500))
    assert first.log.retain(now_us=0) > 0
    start = first.log.log_start_offset
    with pytest.raises(OffsetOutOfRange):
        first.log.read(start - 1, 1)
    first.pack()
    first.crash()
    second = Life(store, settings=SMALL)
    assert second.log.log_start_offset == start > 0
    assert second.read() == BODIES[start:10]
    second.pack()
    store.now_ms += 10_000
    second.pack()
    second.stop()
    assert not [n for n in store.names("segments/") if f"{0:020d}" in n]
    verified(store)


def test_a_purged_log_continues_at_its_end(store):
    first = Life(store, settings=SMALL)
    first.append(*BODIES[:4])
    first.log.drop(None)
    first.pack()
    first.crash()
    second = Life(store, settings=SMALL)
    assert (second.log.log_start_offset, second.log.log_end_offset) == (4, 4)
    second.append(b"next")
    assert second.read() == [b"next"]
    second.stop()


def test_an_empty_partition_answers_every_query(store):
    settings = LogSettings(retention_bytes=1, retention_ms=1)
    for _ in range(2):
        life = Life(store, settings=settings)
        log = life.log
        assert life.read() == [] and log.segments() == [] and log.size_bytes == 0
        assert log.retain(now_us=0) == 0 and log.drop(None) == 0 and log.drop(1) == 0
        assert log.offset_at_or_after(0) == 0 and log.bytes_between(0, 0) == 0
        assert log.batch_before(0) is None and not list(log.places_from(0))
        life.directory.publisher.round = 1  # As if other sessions had published.
        assert all(not todo.uploads and not todo.slices for todo in life.directory.plans(int))
        life.directory.publisher.round = 0
        life.stop()


def test_a_deleted_partition_leaves_nothing(store):
    first = Life(store, settings=SMALL)
    first.append(*BODIES[:10])
    first.pack()
    first.directory.retire_partition(1)
    first.pack()
    store.now_ms += 10_000
    first.pack()
    assert not store.names("segments/") and not store.names("packs/")
    first.stop()


def test_leftovers_of_a_deleted_partition_in_packs_block_no_owner(store):
    """Its segments are removed, and its slices stay in packs that another partition needs."""
    first = Life(store, settings=SMALL)
    shard = first.log.shard
    names = (f"public/default/other{number}" for number in range(100))
    beside = next(name for name in names if first.directory.shard_of(name) == shard)
    other = first.directory.open_of_topic(
        NewPartition(2, beside, 0), LogSettings(), first.committer
    )
    for number, body in enumerate(BODIES[:7]):
        if number > 3:
            other.append([body], BodyInfo(1), body_format=1, append_us=1)
        first.append(body)
        first.pack()
    first.directory.retire_partition(1)
    first.pack()
    first.crash()
    second = Life(store, partition_id=3)
    contents = second.directory.read([shard])
    assert "offset 0 is in no object" in contents.shards.partitions[1].fault
    second.directory.check(contents, [2, 3])
    with pytest.raises(DamagedLog, match="partition 1: offset 0"):
        second.directory.check(contents, [1, 2, 3])
    log = second.directory.open_of_topic(
        NewPartition(2, beside, 0), LogSettings(), second.committer
    )
    assert log.log_end_offset == 3
    faults = []
    verify_store(store.ledger, store.objects, faults.append)
    assert len(faults) == 1 and "partition 1: offset 0" in faults[0], "it may be a topic's"
    catalogue = SharedCatalogue(SHARDS)
    catalogue.own(LedgerJournal(0, KIND_CATALOGUE, [], second.committer), 1)
    catalogue.catalogue.create_topic(parse_topic(beside), [2], partitioned=False, created_us=1)
    second.committer.commit()
    verified(store)
    second.directory.drop_unopened(shard)
    second.pack()
    second.stop()


def test_a_partition_without_topic_is_dropped_by_the_next_owner(store):
    first = Life(store, settings=SMALL)
    first.append(*BODIES[:10])
    first.pack()
    first.crash()
    directory = store.open()
    hold_all(directory)
    for shard in range(5):
        directory.drop_unopened(shard)
    (todo,) = [todo for todo in directory.plans(lambda: 0) if todo.gone]
    directory.carry_out(todo)
    assert not store.ledger.contents(range(5)).segments
    directory.abandon()


def test_a_retaken_shard_continues_at_the_other_owners_end(store):
    first, second = Life(store), store.open(2, takes=False)
    shard = first.log.shard
    first.append(b"a")
    first.directory.give_up(shard)
    first.directory.session.release(shard)
    second.session.take([shard])
    committer = hold_all(second)
    named = NewPartition(1, "public/default/t", 0)
    log = second.open_of_topic(named, LogSettings(), committer)
    log.append([b"b"], BodyInfo(1), body_format=1, append_us=1)
    committer.commit()
    second.give_up(shard)
    second.session.release(shard)
    first.directory.session.take([shard])
    contents = first.directory.read([shard])
    first.directory.hold(shard, contents, first.committer)
    first.log = first.directory.open_of_topic(named, LogSettings(), first.committer)
    assert first.read() == [b"a", b"b"]
    first.append(b"c")
    assert first.read() == [b"a", b"b", b"c"]
    first.pack()
    verified(store)
    second.abandon()
    first.stop()


def test_a_partition_of_another_broker_is_open_and_takes_no_append(store):
    life, other = Life(store), store.open(2, takes=False)
    life.append(b"a")
    committer = Committer(other.files, keeper=other.keeper)
    log = other.open_of_topic(NewPartition(1, "public/default/t", 0), LogSettings(), committer)
    assert (log.log_end_offset, log.takes_appends) == (0, False)
    assert not other.is_open(1) and life.directory.is_open(1)
    with pytest.raises(StorageError):
        log.append([b"b"], BodyInfo(1), body_format=1, append_us=1)
    other.retire_partition(1)
    other.abandon()
    life.stop()


def test_a_fenced_session_acknowledges_nothing(store):
    first = Life(store)
    first.append(b"a")
    assert store.ledger.fence(first.directory.session.number, -1)
    second = Life(store, node=2)
    first.write(b"lost")
    with pytest.raises(Fenced):
        first.committer.commit()
    second.append(b"b")
    assert second.read() == [b"a", b"b"]
    first.directory.abandon()
    second.stop()


def test_a_missing_object_is_named_and_stops_the_start(store):
    first = Life(store)
    first.append(b"a")
    (name,) = [name for name in store.names("rounds/") if not name.endswith(f"{0:020d}.0")]
    first.crash()
    content = store.objects.objects.pop(name)
    with pytest.raises(DamagedLog, match=name):
        Life(store)
    store.objects.objects[name] = content[:-1] + b"x"
    with pytest.raises(DamagedLog, match=name):
        Life(store)
    faults = []
    assert verify_store(store.ledger, store.objects, faults.append).faults == 1
    assert name in faults[0]


def test_a_replaced_session_finds_no_damage_during_a_read(store):
    """Its objects may be missing: the present owner of the shards has packed them."""
    first = Life(store)
    first.append(b"a")
    first.crash()
    second = store.open()
    (name,) = [name for name in store.names("rounds/") if not name.endswith("/" + "0" * 20 + ".0")]
    store.objects.delete(name)
    with pytest.raises(DamagedLog):
        second.read([*second.session.epochs])
    assert store.ledger.fence(second.session.number, -1)
    with pytest.raises(Fenced):
        second.read([*second.session.epochs])
    second.abandon()


def test_appends_are_refused_with_too_much_unpublished(store):
    life = Life(store)
    life.directory.backlog.bytes_max = 500
    life.write(b"x" * 600)
    with pytest.raises(StorageFull):
        life.write(b"y")
    life.committer.commit()
    life.append(b"z")
    assert life.read() == [b"x" * 600, b"z"]
    life.write(b"of a deleted topic")
    life.directory.retire_partition(1)
    assert life.directory.backlog.bytes == 0
    life.stop()


def test_written_mode_is_refused(store):
    life = Life(store)
    written = LogSettings(durability=Durability.WRITTEN)
    for call in (lambda: life.log.alter(written), life.log.reserve_ahead):
        with pytest.raises(UnwritableChange):
            call()
    with pytest.raises(UnwritableChange):
        life.directory.create_partitions([], written, life.committer)
    life.stop()


def test_a_foreign_folder_is_not_used_as_cache(store):
    folder = store.path / "node1"
    (folder / "catalogue").mkdir(parents=True)
    with pytest.raises(NotACache):
        store.open()
    assert (folder / "catalogue").is_dir()
    (folder / "catalogue").rmdir()
    store.open().abandon()
    (folder / MARK_NAME).write_text("another\n")
    with pytest.raises(NotACache):
        store.open()


def test_unreadable_local_bytes_end_the_session_and_are_not_acknowledged(store):
    life = Life(store)
    life.write(b"x" * 100)
    os.truncate(life.log.local.segment_set.last.path, 10)
    with pytest.raises(StorageFailed):
        life.committer.commit()
    life.directory.abandon()


def test_sequences_of_producers_are_read_from_the_newest_batches(store):
    from braidlog.storage.log.sequence_store import catch_up, load

    first = Life(store)
    first.append(b"a", b"b")
    first.crash()
    second = Life(store)
    table = load(second.directory.files, second.log)
    assert table.next_offset == 0
    catch_up(table, second.log)
    assert table.next_offset == 2
    second.stop()


def test_large_batches_in_flight_are_remembered_though_they_have_many_offsets(store):
    from braidlog.storage.log.sequence_store import catch_up, load

    first = Life(store)
    for at in range(6):  # A client has five requests in flight.
        sequences = (at * SEQUENCE_OFFSETS, (at + 1) * SEQUENCE_OFFSETS - 1)
        info = BodyInfo(SEQUENCE_OFFSETS, None, None, 0, 77, 0, *sequences)
        first.log.append([b"x" * 1_000_000], info, body_format=1, append_us=1)
        first.committer.commit()
    first.crash()
    second = Life(store)
    table = load(second.directory.files, second.log)
    catch_up(table, second.log)
    state = table.find(77)
    assert state.first_sequence == 0, "else a batch sent again would be out of order"
    assert state.last_sequence == 6 * SEQUENCE_OFFSETS - 1 and len(state.recent) == 5
    second.stop()


@pytest.mark.parametrize(
    ("size_bytes", "offset"), [(0, 100), (30, 97), (300, 70), (301, 69), (700, 32), (5000, 5)]
)
def test_the_newest_bytes_of_a_log_begin_at_about_that_offset(size_bytes, offset):
    def piece(file_pos, size, end_offset):
        return Piece("o", 0, file_pos, size, end_offset, 0)

    pieces = PartitionPieces(1, 1, log_start=5)
    pieces.segments.append(SegmentPieces(0, (piece(0, 500, 40), piece(500, 300, 70))))
    pieces.segments.append(SegmentPieces(70, (piece(0, 300, 100),)))
    assert pieces.offset_before(size_bytes) == offset
