import os
import random
import shutil

import pytest

from braidlog.storage.errors import DamagedLog, DirectoryLocked
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.gaps import append_gap
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.topic_file import TopicFile, pack_topic_file
from braidlog.storage.tools.repair import Repair
from braidlog.storage.tools.verify import NoDataDir
from tests.storage.log.directories import (
    FORMATS,
    LogDirectory,
    batch_places,
    journal_segment,
    repaired,
    snapshot_of,
    value_of,
    verified,
)
from tests.storage.log.logs import flip
from tests.storage.tools.conftest import BATCHES, END, SMALL
from tests.storage.tools.killed import killed_repairs
from tests.storage.tools.test_verify import files_of, harm, places, random_directory


def check_mended(path, lost, end=END):
    """Check: clean, exactly those offsets lost, all others unchanged, and appends continue."""
    findings, report = verified(path)
    assert report.faults == 0, findings
    for _ in range(2):
        directory = LogDirectory(path, **SMALL)
        assert directory.logs[1].recovery.is_clean
        assert directory.values() == {
            offset: value_of(offset) for offset in range(end) if offset not in lost
        }
        assert directory.append() == end
        end += 3
        directory.committer.commit()
        assert directory.logs[1].high_watermark == end
        directory.stop()
    assert verified(path)[0] == []


def offsets_in(all_places, path):
    return [
        offset
        for file, _, header in all_places
        if file == str(path)
        for offset in range(header.base_offset, header.next_offset)
    ]


def test_a_healthy_directory_is_unchanged(crashed):
    before = snapshot_of(crashed.path)
    del before["lock"]
    assert repaired(crashed.path) == ([], [])
    after = snapshot_of(crashed.path)
    del after["lock"]
    assert after == before


@pytest.mark.parametrize("number", [0, 4, BATCHES - 1])
@pytest.mark.parametrize("part", ["header", "body", "positions"])
def test_a_damaged_batch_becomes_a_gap(crashed, number, part):
    path, file_pos, header = places(crashed.path)[number]
    into = {"header": 40, "positions": HEADER_BYTES + 1, "body": header.stored_bytes - 3}
    flip(path, file_pos + into[part])
    with open(path, "rb") as file:
        damaged = file.read()
    lines, refusals = repaired(crashed.path)
    assert refusals == []
    base = header.base_offset
    assert f"offsets {base} to {base + 2} are lost" in lines[0]
    if part != "header":
        assert "are lost, 3 records" in lines[0]
    set_aside = crashed.path / "set-aside" / f"1.{os.path.basename(path)}"
    assert set_aside.read_bytes() == damaged
    check_mended(crashed.path, range(base, base + 3))


def test_several_damaged_batches_in_several_segments(crashed):
    lost = []
    for number in (1, 2, 5, 9):
        path, file_pos, header = places_before_harm(crashed)[number]
        flip(path, file_pos + HEADER_BYTES + 2)
        lost += range(header.base_offset, header.next_offset)
    repaired(crashed.path)
    check_mended(crashed.path, lost)


def places_before_harm(crashed):
    if not hasattr(crashed, "healthy_places"):
        crashed.healthy_places = places(crashed.path)
    return crashed.healthy_places


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("at", [0, 30, 64, 64 + 50, 64 + 300])
def test_a_cut_file_becomes_a_gap(crashed, which, at):
    all_places = places(crashed.path)
    path = crashed.segments()[which]
    with open(path, "r+b") as file:
        file.truncate(at)
    intact = [
        offset
        for file, pos, header in all_places
        if file == str(path) and pos + header.stored_bytes <= at
        for offset in range(header.base_offset, header.next_offset)
    ]
    lost = set(offsets_in(all_places, path)) - set(intact)
    repaired(crashed.path)
    check_mended(crashed.path, lost)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment_becomes_a_gap(crashed, which):
    path = crashed.segments()[which]
    lost = offsets_in(places(crashed.path), path)
    path.unlink()
    repaired(crashed.path)
    check_mended(crashed.path, lost)


def test_missing_segments_become_a_single_gap(crashed):
    for path in crashed.segments():
        path.unlink()
    lines, _ = repaired(crashed.path)
    assert "all records are lost" in lines[0]
    check_mended(crashed.path, range(END))


def test_a_damaged_segment_header_is_repaired_without_loss(crashed):
    """Includes a later batch with separate damage."""
    path, file_pos, header = next(
        place for place in places(crashed.path) if place[0] == str(crashed.segments()[1])
    )
    flip(path, 9)
    flip(path, file_pos + HEADER_BYTES + 1)
    lines, _ = repaired(crashed.path)
    assert "nothing is lost" in lines[0]
    check_mended(crashed.path, range(header.base_offset, header.next_offset))


def test_a_lost_salt_loses_only_its_segment(crashed):
    path = crashed.segments()[1]
    lost = offsets_in(places(crashed.path), path)
    flip(path, 5)
    repaired(crashed.path)
    check_mended(crashed.path, lost)


def test_a_torn_tail_is_left_to_the_next_start(crashed):
    directory = LogDirectory(crashed.path, **SMALL)
    directory.fill(2, commit=False)
    directory.crash()
    path, file_pos, _ = places(crashed.path)[BATCHES]
    flip(path, file_pos + HEADER_BYTES + 2)
    before = files_and_sizes(crashed.path)
    assert repaired(crashed.path) == ([], [])
    assert files_and_sizes(crashed.path) == before


def files_and_sizes(path):
    return {path: path.stat().st_size for path in files_of(path) if path.name != "lock"}


def test_a_torn_tail_behind_damage_in_the_same_file_stays_for_the_next_start(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    directory.fill(4)
    directory.fill(1, commit=False)
    directory.crash()
    all_places = places(directory.path)
    for number in (1, 4):
        path, file_pos, _ = all_places[number]
        flip(path, file_pos + HEADER_BYTES + 2)
    repaired(directory.path)
    assert verified(directory.path)[1].faults == 0
    again = LogDirectory(directory.path)
    assert len(again.logs[1].recovery.cuts) == 1
    assert again.values() == {n: value_of(n) for n in range(12) if n not in (3, 4, 5)}


def test_retention_by_age_works_after_a_repair(crashed):
    path, file_pos, _ = places(crashed.path)[0]
    flip(path, file_pos + HEADER_BYTES + 2)
    os.utime(path, ns=(10**18, 10**18))
    repaired(crashed.path)
    assert os.stat(path).st_mtime_ns == 10**18


def test_only_the_named_topic_or_partition_is_repaired(crashed):
    for number in (1, 2):
        path, file_pos, _ = places(crashed.path, number)[0]
        flip(path, file_pos + HEADER_BYTES + 2)
    lines, _ = repaired(crashed.path, "orders/1")
    assert "public/default/orders/1: offsets 0 to 2" in lines[0]
    assert [finding.log for finding in verified(crashed.path)[0]] == ["public/default/orders/0"]
    repaired(crashed.path, "public/default/orders")
    assert verified(crashed.path)[0] == []


@pytest.mark.parametrize("harmed", ["damaged", "missing", "another's", "another topic's"])
def test_a_topic_file_is_rewritten_from_the_catalogue(crashed, harmed):
    path = crashed.file("topic")
    content = path.read_bytes()
    if harmed == "damaged":
        flip(path, 34)
    elif harmed == "missing":
        path.unlink()
    elif harmed == "another's":
        shutil.copy(crashed.file("topic", 2), path)
    else:
        path.write_bytes(pack_topic_file(TopicFile(1, "public/default/clicks", 0)))
    if harmed != "another topic's":  # A start does not ask the catalogue for the name.
        with pytest.raises(DamagedLog):
            LogDirectory(crashed.path)
    repaired(crashed.path)
    assert path.read_bytes() == content
    check_mended(crashed.path, ())


def test_a_missing_folder_is_recreated_above_every_position(crashed):
    """A reader at that position must not receive other records at those offsets."""
    shutil.rmtree(crashed.file("", 1))
    lines, _ = repaired(crashed.path)
    assert "is missing" in lines[0]
    assert verified(crashed.path)[1].faults == 0
    again = LogDirectory(crashed.path)
    assert (again.logs[1].log_start_offset, again.append()) == (5, 5)


def test_a_lost_reservation_is_replaced_by_a_sufficient_reservation(tmp_path):
    directory = LogDirectory(tmp_path / "data", durability="written")
    directory.fill(2)
    append_gap(directory.logs[1], 5_000_000, 1)
    directory.committer.commit()
    reserved = directory.logs[1]._written.reserved_offset
    directory.crash()
    flip(directory.file("reserved"), 30)
    flip(directory.file("reserved"), 512 + 30)
    repaired(directory.path)
    again = LogDirectory(directory.path, durability="written")
    assert again.append() >= reserved
    again.stop()
    assert verified(directory.path)[1].faults == 0


def test_files_of_a_later_version_are_not_touched(crashed):
    from crc32c import crc32c

    from braidlog.storage.log import segment_header as layout
    from braidlog.storage.log.segment_header import SegmentHeader, pack_segment_header

    path = crashed.segments()[1]
    base = int(path.stem)
    data = bytearray(pack_segment_header(SegmentHeader(1, 77, 1, base)))
    data[8] = 3
    data[60:] = layout.CRC.pack(crc32c(bytes(data[:60])))
    with open(path, "r+b") as file:
        file.write(data)
    before = files_and_sizes(crashed.path)
    lines, refusals = repaired(crashed.path)
    assert (lines, len(refusals)) == ([], 1)
    assert "later version" in refusals[0]
    assert files_and_sizes(crashed.path) == before


def test_two_segments_with_the_same_offsets_are_left_to_the_operator(crashed):
    path = crashed.segments()[1]
    shutil.copy(path, path.with_name(f"{4:020d}.log"))
    lines, refusals = repaired(crashed.path)
    assert lines == []
    assert any("begins below the end" in text for text in refusals)


def test_a_running_broker_prevents_repair(crashed):
    directory = LogDirectory(crashed.path, **SMALL)
    with pytest.raises(DirectoryLocked):
        Repair(crashed.path, print)
    directory.crash()
    with pytest.raises(NoDataDir):
        Repair(crashed.path / "nothing", print)
    assert not (crashed.path / "nothing").exists()


# Killed repairs.


def harm_everything(path):
    """Make a damage of each kind; return the permanently lost offsets of partition 1."""
    directory = LogDirectory(path, **SMALL)
    all_places = places(path)
    segments = directory.segments()
    directory.crash()
    lost = set()
    file, file_pos, header = all_places[1]
    flip(file, file_pos + HEADER_BYTES + 1)
    lost |= set(range(header.base_offset, header.next_offset))
    lost |= set(offsets_in(all_places, segments[1]))
    segments[1].unlink()
    with open(segments[-1], "r+b") as cut:
        cut.truncate(SEGMENT_HEADER_BYTES + 40)
    lost |= set(offsets_in(all_places, segments[-1]))
    flip(directory.file("topic", 2), 34)
    for journal in ("catalogue", "cursors"):
        place, _ = batch_places(path, journal)[1]
        flip(journal_segment(path, journal), place + HEADER_BYTES + 1)
    return lost


@pytest.mark.slow
def test_a_repair_killed_at_any_change_can_be_run_again(crashed, tmp_path):
    lost = harm_everything(crashed.path)
    kills = 0
    for path, finished in killed_repairs(crashed.path, tmp_path):
        assert repaired(path)[1] == []
        check_mended(path, lost)
        kills += not finished
    assert kills > 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_a_repair_after_much_random_damage_is_clean_and_writable(tmp_path, seed):
    rng = random.Random(seed)
    directory, _ = random_directory(rng, tmp_path)
    for _ in range(rng.randint(1, 8)):
        harm(rng, rng.choice([file for file in files_of(directory.path) if file.name != "lock"]))
    _, refusals = repaired(directory.path)
    assert refusals == [], seed
    findings, report = verified(directory.path)
    assert report.faults == 0, (seed, findings)
    again = LogDirectory(directory.path, **SMALL)
    if again.aside:  # Neither catalogue nor topic file can name its topic any more.
        assert directory.file("").name in [
            os.path.basename(warning.path) for warning in findings
        ], seed
        return
    values = again.values()
    assert all(value == value_of(offset) for offset, value in values.items()), seed
    base = again.append(1, rng.choice(FORMATS))
    again.committer.commit()
    assert again.values() == values | {base + n: value_of(base + n) for n in range(3)}, seed
    again.stop()
    assert verified(directory.path)[1].faults == 0, seed
