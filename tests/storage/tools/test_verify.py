import random
import shutil

import pytest

from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.folder_reader import list_partitions
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.topic_file import TopicFile, pack_topic_file
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.tools.dump import PartitionDump, Unreadable, find_partitions
from braidlog.storage.tools.findings import Level
from braidlog.storage.tools.log_check import FINDINGS_MAX
from braidlog.storage.tools.verify import NoDataDir, Verifier
from tests.storage.log.directories import (
    FORMATS,
    LogDirectory,
    levels,
    snapshot_of,
    value_of,
    verified,
)
from tests.storage.log.logs import flip
from tests.storage.tools.conftest import SMALL


def places(path, number=1):
    """Return (file, file_pos, header) of every batch of a healthy partition."""
    (part,) = [part for part in find_partitions(path, "orders") if part.partition_id == number]
    reading = PartitionDump(part, running=False)
    places_read = [(batch.path, batch.file_pos, batch.header) for batch in reading.batches()]
    assert not any(isinstance(place, Unreadable) for place in places_read)
    reading.close()
    return places_read


@pytest.fixture
def healthy(tmp_path):
    """Return a crashed directory: partition 1 has 12 batches of 3 records in several segments."""
    directory = LogDirectory(tmp_path / "data", partitions=2, **SMALL)
    directory.fill(12)
    directory.fill(2, 2)
    directory.move_cursor(5)
    directory.crash()
    assert len(directory.segments()) >= 3
    return directory


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_a_healthy_directory_is_clean_and_is_not_changed(tmp_path, ending):
    directory = LogDirectory(tmp_path / "data", partitions=2, **SMALL)
    directory.fill(12)
    directory.move_cursor(5)
    directory.append()
    getattr(directory, ending)()
    before = snapshot_of(directory.path)
    findings, report = verified(directory.path)
    assert (findings, report.faults, report.warnings) == ([], 0, 0)
    assert snapshot_of(directory.path) == before
    orders = next(log for log in report.logs if log.log == "public/default/orders/0")
    assert (orders.log_start_offset, orders.end_offset, orders.records) == (0, 39, 39)
    assert report.broker_pid == 0


def test_an_unused_directory_is_clean(tmp_path):
    LogDirectory(tmp_path / "data").stop()
    assert verified(tmp_path / "data")[0] == []


@pytest.mark.parametrize("journal", ["catalogue", "cursors"])
def test_a_killed_first_start_is_clean(tmp_path, journal):
    """The folder exists, its first segment does not yet."""
    (tmp_path / journal).mkdir()
    assert verified(tmp_path)[0] == []


def test_a_folder_that_is_no_data_directory_is_refused(tmp_path):
    with pytest.raises(NoDataDir):
        Verifier(tmp_path, print, print)


@pytest.mark.parametrize("number", [0, 4, 11])
@pytest.mark.parametrize("part", ["header", "body", "positions"])
def test_a_flipped_bit_in_a_batch_is_named_with_place_and_offsets(healthy, part, number):
    path, file_pos, header = places(healthy.path)[number]
    into = {
        "header": 70,
        "positions": HEADER_BYTES + 2,
        "body": HEADER_BYTES + header.positions_bytes + 5,
    }
    flip(path, file_pos + into[part])
    findings, report = verified(healthy.path)
    (fault,) = findings
    assert (fault.level, fault.path, fault.file_pos) == (Level.FAULT, path, file_pos)
    assert (fault.offset, fault.next_offset) == (3 * number, 3 * number + 3)
    orders = next(log for log in report.logs if log.log == "public/default/orders/0")
    assert (orders.end_offset, orders.records) == (36, 33)
    assert fault.log == "public/default/orders/0"
    assert report.faults == 1
    assert "checksum is wrong" in fault.reason


def test_a_file_cut_in_the_middle_is_named_up_to_the_next_segment(healthy):
    all_places = places(healthy.path)
    path = healthy.segments()[1]
    inside = [(pos, header) for file, pos, header in all_places if file == str(path)]
    file_pos, header = inside[1]
    with open(path, "r+b") as file:
        file.truncate(file_pos + 50)
    findings, _ = verified(healthy.path)
    (fault,) = levels(findings, Level.FAULT)
    assert (fault.path, fault.file_pos, fault.offset) == (str(path), file_pos, header.base_offset)
    assert fault.next_offset == inside[-1][1].next_offset


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment_is_named_with_its_offsets(healthy, which):
    path = healthy.segments()[which]
    inside = [header for file, _, header in places(healthy.path) if file == str(path)]
    path.unlink()
    findings, _ = verified(healthy.path)
    (fault,) = levels(findings, Level.FAULT)
    assert (fault.offset, fault.next_offset) == (inside[0].base_offset, inside[-1].next_offset)
    assert "missing" in fault.reason


def test_a_partition_without_segments_is_named(healthy):
    for path in healthy.segments():
        path.unlink()
    (fault,) = levels(verified(healthy.path)[0], Level.FAULT)
    assert (fault.offset, fault.next_offset) == (0, 36)
    assert "no segment file" in fault.reason


@pytest.mark.parametrize("pos", [0, 5, 9, 13, 25, 40, 61])
def test_a_damaged_segment_header_is_named_with_all_its_offsets(healthy, pos):
    path = healthy.segments()[1]
    inside = [header for file, _, header in places(healthy.path) if file == str(path)]
    flip(path, pos)
    (fault,) = levels(verified(healthy.path)[0], Level.FAULT)
    assert (fault.path, fault.file_pos) == (str(path), 0)
    assert (fault.offset, fault.next_offset) == (inside[0].base_offset, inside[-1].next_offset)
    # The salt is in bytes 4 to 7; without the salt no batch of the file can be verified.
    assert ("its batches are whole" in fault.reason) == (pos != 5)


def test_a_damaged_header_of_the_last_segment_hides_no_end(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    directory.fill(3)
    directory.fill(4, commit=False)  # Above the slot.
    directory.crash()
    before = verified(directory.path)[1].logs[-1]
    flip(directory.segments()[-1], 40)
    findings, report = verified(directory.path)
    assert "its batches are whole" in levels(findings, Level.FAULT)[0].reason
    assert report.logs[-1] == before


def test_two_segments_that_claim_the_same_offsets_are_named(healthy):
    path = healthy.segments()[1]
    shutil.copy(path, path.with_name(f"{4:020d}.log"))
    faults = levels(verified(healthy.path)[0], Level.FAULT)
    assert {fault.path for fault in faults} >= {str(path.with_name(f"{4:020d}.log"))}


def test_a_torn_tail_is_a_note(healthy):
    directory = LogDirectory(healthy.path, **SMALL)
    directory.fill(2, commit=False)
    directory.crash()
    path, file_pos, _ = places(healthy.path)[12]
    flip(path, file_pos + HEADER_BYTES + 20)
    findings, report = verified(healthy.path)
    (note,) = findings
    assert (note.level, note.path, note.file_pos, note.offset) == (Level.NOTE, path, file_pos, 36)
    assert "torn tail" in note.reason
    assert report.faults == report.warnings == 0
    again = LogDirectory(healthy.path, **SMALL)
    assert again.logs[1].log_end_offset == 36


def test_a_fault_proven_durable_by_a_later_batch_is_damage(healthy):
    for name in ("watermark",):
        healthy.file(name).unlink()
    path, file_pos, _ = places(healthy.path)[3]
    flip(path, file_pos + HEADER_BYTES + 20)
    assert levels(verified(healthy.path)[0], Level.FAULT)[0].offset == 9


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"partitions/1/{0:020d}.log", "cannot be read"),
        ("partitions/1/topic", "Is a directory"),
        (f"catalogue/{0:020d}.log", "cannot be read"),
        (f"cursors/{0:020d}.log", "cannot be read"),
    ],
)
def test_an_unreadable_file_is_a_fault(healthy, name, reason):
    """A folder replaces a file: every read of the file fails."""
    path = healthy.path / name
    path.unlink()
    path.mkdir()
    faults = levels(verified(healthy.path)[0], Level.FAULT)
    assert any(fault.path == str(path) and reason in fault.reason for fault in faults)


@pytest.mark.parametrize("harm", ["flip entry", "flip header", "old", "cut"])
def test_a_wrong_index_is_a_warning(healthy, harm):
    path = healthy.segments()[0].with_suffix(".index")
    size = path.stat().st_size
    if harm == "flip entry":
        flip(path, 40)
    elif harm == "flip header":
        flip(path, 13)
    elif harm == "old":
        other = healthy.segments()[1].with_suffix(".index")
        path.write_bytes(path.read_bytes()[:32] + other.read_bytes()[32:])
    else:
        with open(path, "r+b") as file:
            file.truncate(size - 33)
    findings, report = verified(healthy.path)
    assert report.faults == 0
    if harm != "cut":  # A short index is only incomplete, not wrong.
        assert [(flaw.level, flaw.path) for flaw in findings] == [(Level.WARNING, str(path))]


@pytest.mark.parametrize("number", [0, 1])
def test_a_single_bad_slot_is_a_warning(healthy, number):
    flip(healthy.file("watermark"), 512 * number + 30)
    findings, report = verified(healthy.path)
    assert [finding.level for finding in findings] == [Level.WARNING]
    assert (findings[0].file_pos, report.faults) == (512 * number, 0)


def test_a_lost_reservation_is_a_fault(tmp_path):
    directory = LogDirectory(tmp_path / "data", durability="written")
    directory.fill(2)
    directory.crash()
    assert verified(directory.path)[1].faults == 0
    flip(directory.file("reserved"), 30)
    assert verified(directory.path)[1].faults == 0
    flip(directory.file("reserved"), 512 + 30)
    (fault,) = levels(verified(directory.path)[0], Level.FAULT)
    assert fault.path == str(directory.file("reserved"))


@pytest.mark.parametrize(
    "harm", ["damaged", "missing", "another partition's", "another number's", "another topic's"]
)
def test_a_wrong_topic_file_is_a_fault(healthy, harm):
    path = healthy.file("topic")
    if harm == "damaged":
        flip(path, 34)
    elif harm == "missing":
        path.unlink()
    elif harm == "another partition's":
        shutil.copy(healthy.file("topic", 2), path)
    elif harm == "another number's":
        path.write_bytes(pack_topic_file(TopicFile(3, "public/default/orders", 0)))
    else:
        other = LogDirectory(path.parent.parent.parent.parent / "other", topic="clicks")
        other.stop()
        shutil.copy(other.file("topic"), path)
    (fault,) = levels(verified(healthy.path)[0], Level.FAULT)
    assert fault.path == str(path)


def test_a_missing_partition_folder_is_a_fault_and_an_unknown_one_a_warning(healthy):
    shutil.move(healthy.file("", 2), healthy.file("", 7))
    findings, _ = verified(healthy.path)
    assert [(finding.level, finding.path) for finding in findings] == [
        (Level.FAULT, str(healthy.path / "partitions" / "2")),
        (Level.WARNING, str(healthy.path / "partitions" / "7")),
    ]


@pytest.mark.parametrize("journal", ["catalogue", "cursors"])
def test_a_missing_journal_is_a_fault(healthy, journal):
    shutil.rmtree(healthy.path / journal)
    faults = levels(verified(healthy.path)[0], Level.FAULT)
    assert [fault.path for fault in faults] == [str(healthy.path / journal)]


@pytest.mark.parametrize("journal", ["catalogue", "cursors"])
def test_a_flipped_bit_in_a_journal_is_a_fault_with_its_place(healthy, journal):
    path = healthy.path / journal / f"{0:020d}.log"
    flip(path, SEGMENT_HEADER_BYTES + HEADER_BYTES + 3)
    fault = levels(verified(healthy.path)[0], Level.FAULT)[0]
    assert (fault.log, fault.path) == (journal, str(path))
    assert (fault.file_pos, fault.offset, fault.next_offset) == (SEGMENT_HEADER_BYTES, 0, 1)


def test_a_body_unlike_its_header_is_a_fault(tmp_path):
    """The checksums are right: a faulty program stored the body."""
    directory = LogDirectory(tmp_path / "data")
    directory.append()
    directory.logs[1].append([b"no body"], BodyInfo(1), body_format=1, append_us=1)
    directory.committer.commit()
    good = bytes(directory.logs[1].read(0, 0)[0].body)
    directory.logs[1].append([good], BodyInfo(4), body_format=1, append_us=1)
    directory.logs[1].append([good], BodyInfo(3), body_format=1, append_us=1, positions=[1, 2, 3])
    directory.logs[1].append([good], BodyInfo(3), body_format=77, append_us=1)
    directory.committer.commit()
    directory.stop()
    findings, report = verified(directory.path)
    faults = levels(findings, Level.FAULT)
    assert [(fault.offset, fault.next_offset) for fault in faults] == [(3, 4), (4, 8), (8, 11)]
    for fault, reason in zip(faults, ["plain", "3 records", "positions table"], strict=True):
        assert reason in fault.reason
    assert sum(log.unopened for log in report.logs) == 1


def test_beside_a_running_broker_verify_stops_at_the_slot(healthy):
    directory = LogDirectory(healthy.path, **SMALL)
    directory.append()
    before = snapshot_of(healthy.path)
    findings, report = verified(healthy.path)
    assert (findings, report.broker_pid > 0) == ([], True)
    orders = next(log for log in report.logs if log.log == "public/default/orders/0")
    assert orders.end_offset == 36
    assert snapshot_of(healthy.path) == before
    directory.crash()
    assert verified(healthy.path)[1].broker_pid == 0


def test_a_topic_deleted_meanwhile_is_no_fault_beside_a_running_broker(healthy):
    directory = LogDirectory(healthy.path, **SMALL)
    findings = []
    folder = directory.path / "partitions" / "2"
    journals = [*(directory.path / "catalogue").iterdir(), *(directory.path / "cursors").iterdir()]
    size = sum(path.stat().st_size for path in journals)

    def progress(done, total):
        if done > size and folder.exists():  # Partition 1 is being checked.
            shutil.rmtree(folder)

    report = Verifier(healthy.path, findings.append, progress).run()
    assert (findings, report.faults) == ([], 0)
    directory.crash()


def test_a_dump_retries_after_the_broker_removed_a_file(healthy):
    directory = LogDirectory(healthy.path, **SMALL)
    (part,) = find_partitions(directory.path, "orders/0")
    reading = PartitionDump(part, running=True)
    batches = reading.batches()
    offsets = [next(batches).header.base_offset]
    directory.logs[1].drop(len(directory.segments()) - 1)
    directory.committer.commit()
    offsets += [batch.header.base_offset for batch in batches]
    assert offsets[0] == 0 and offsets[-1] == 33
    assert directory.logs[1].log_start_offset in offsets
    reading.close()
    directory.crash()


def test_damage_below_the_slot_is_found_beside_a_running_broker_too(healthy):
    directory = LogDirectory(healthy.path, **SMALL)
    path, file_pos, _ = places(healthy.path)[2]
    flip(path, file_pos + HEADER_BYTES + 20)
    assert [fault.offset for fault in levels(verified(healthy.path)[0], Level.FAULT)] == [6]
    directory.crash()


def test_segments_below_the_log_start_are_no_fault(tmp_path):
    """A crash came between the slot with the new log start and the removal of the old segments."""
    directory = LogDirectory(tmp_path / "data", **SMALL, retention_bytes=1)
    directory.fill(12)
    directory.logs[1].retain(now_us=1)
    directory.crash()
    assert len(directory.segments()) >= 3
    findings, report = verified(directory.path)
    assert findings == []
    orders = next(log for log in report.logs if log.log == "public/default/orders/0")
    assert orders.log_start_offset > 0


def test_a_journal_that_a_snapshot_shortened_is_clean(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    directory.fill(2)
    directory.cursors.rewrite()
    directory.committer.commit()
    directory.move_cursor(4)
    directory.crash()
    assert verified(directory.path)[0] == []


def test_a_slot_older_than_the_snapshot_is_no_fault(tmp_path):
    """A power cut reverted the slot; the segments that it names were removed with the snapshot."""
    (directory := LogDirectory(tmp_path / "data")).fill(2)
    slot = (directory.path / "cursors" / "watermark").read_bytes()
    directory.move_cursor(4)
    directory.cursors.rewrite()
    for _ in range(4):  # The snapshot, then the slot, then the superseded files.
        directory.committer.commit()
        directory.committer.promote_lazy()
    directory.crash()
    assert len(list((directory.path / "cursors").glob("*.log"))) == 1
    (directory.path / "cursors" / "watermark").write_bytes(slot)
    assert verified(directory.path)[0] == []


def test_records_behind_a_torn_tail_of_a_journal_do_not_count(tmp_path):
    """The topic's record is torn and will be cut, with the later record that names the topic."""
    directory = LogDirectory(tmp_path / "data")
    directory.crash()
    again = LogDirectory(directory.path)
    again.catalogue.create_topic(parse_topic("torn"), [], partitioned=False, created_us=1)
    again.catalogue.alter_settings(2, {"retention_ms": 5})
    again.crash()
    path = directory.path / "catalogue" / f"{0:020d}.log"
    size = path.stat().st_size
    flip(path, size - HEADER_BYTES - 60)
    findings, report = verified(directory.path)
    assert (report.faults, [finding.level for finding in findings]) == (0, [Level.NOTE])


def test_an_unfinished_snapshot_at_the_end_is_no_fault(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    directory.move_cursor(4)
    directory.cursors.rewrite()
    directory.crash()
    segments = sorted((directory.path / "cursors").glob("*.log"))
    assert len(segments) == 2
    with open(segments[1], "r+b") as file:
        file.truncate(segments[1].stat().st_size - 128)  # The batch at its end.
    assert verified(directory.path)[1].faults == 0
    again = LogDirectory(directory.path)
    assert again.cursors.get(1, 0, b"billing").position == 4


def test_findings_of_one_log_are_bounded(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    for _ in range(FINDINGS_MAX + 5):
        directory.logs[1].append([b"no body"], BodyInfo(1), body_format=1, append_us=1)
    directory.stop()
    findings, _ = verified(directory.path)
    assert len(findings) == FINDINGS_MAX + 1
    assert "5 more" in findings[-1].reason


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_a_random_damage_is_found_or_harmless(tmp_path, seed):
    """If verify finds no fault, every acknowledged record and position is unchanged."""
    rng = random.Random(seed)
    directory, durable = random_directory(rng, tmp_path)
    harm(rng, rng.choice(files_of(directory.path)))
    findings, report = verified(directory.path)
    assert report.faults == len(levels(findings, Level.FAULT))
    if report.faults:
        return
    again = LogDirectory(directory.path, **SMALL)
    expected = {offset: value_of(offset) for offset in range(durable)}
    assert expected.items() <= again.values().items(), seed
    assert again.cursors.get(1, 0, b"billing").position == 1, seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_much_random_damage_never_makes_verify_or_dump_fail(tmp_path, seed):
    """Neither verify nor dump accepts an unwritten record."""
    rng = random.Random(seed)
    directory, _ = random_directory(rng, tmp_path)
    for _ in range(rng.randint(2, 12)):
        harm(rng, rng.choice(files_of(directory.path)))
    verified(directory.path)
    for part in list_partitions(directory.path):
        reading = PartitionDump(part, running=False)
        for record in reading.records():
            if not isinstance(record, Unreadable):
                assert record.value == value_of(record.offset), seed
        reading.close()


def random_directory(rng, tmp_path):
    """Return a directory after a stop or a kill, and its durable offset."""
    directory = LogDirectory(tmp_path / "data", **SMALL)
    for number in range(rng.randint(1, 14)):
        directory.append(1, rng.choice(FORMATS), rng.randint(1, 4))
        if rng.random() < 0.7 or not number:
            directory.committer.commit()
    directory.move_cursor(1)
    durable = directory.logs[1].durable_offset
    directory.stop() if rng.random() < 0.3 else directory.crash()
    return directory, durable


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)


def harm(rng, path):
    size = path.stat().st_size
    if size and rng.random() < 0.7:
        flip(path, rng.randrange(size), 1 << rng.randrange(8))
    else:
        with open(path, "r+b") as file:
            file.truncate(rng.randrange(size + 1))
