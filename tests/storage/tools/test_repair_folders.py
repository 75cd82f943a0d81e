"""Folders that an operator renamed, swapped or copied: every intact record is kept."""

import shutil

import pytest

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.topic_file import TopicFile, pack_topic_file
from braidlog.storage.tools.repair import Repair
from tests.storage.log.directories import LogDirectory, repaired, snapshot_of, value_of, verified
from tests.storage.log.logs import flip
from tests.storage.tools.conftest import SMALL
from tests.storage.tools.killed import killed_repairs

BATCHES = {1: 12, 2: 9, 3: 8}


def values_of(number):
    return {offset: value_of(offset) for offset in range(BATCHES[number] * 3)}


@pytest.fixture
def three(tmp_path):
    """Return partitions 1 to 3 of a topic, with different numbers of records; a position of 20 in
    2.
    """
    directory = LogDirectory(tmp_path / "data", partitions=3, **SMALL)
    for number, batches in BATCHES.items():
        directory.fill(batches, number)
    directory.move_cursor(20, number=1)
    directory.crash()
    return directory


def rename(directory, moves):
    """Rename folders, all at once."""
    for number in moves:
        directory.file("", number).rename(directory.path / f"{number}.tmp")
    for number, name in moves.items():
        (directory.path / f"{number}.tmp").rename(directory.file("", name))


def check_all_there(path):
    findings, report = verified(path)
    assert report.faults == 0, findings
    for _ in range(2):
        again = LogDirectory(path, **SMALL)
        assert {number: again.values(number) for number in BATCHES} == {
            number: values_of(number) for number in BATCHES
        }
        assert all(log.takes_appends for log in again.logs.values())
        again.crash()


MOVES = [
    {1: 2, 2: 1},
    {1: 2, 2: 3, 3: 1},
    {2: 7},
    {1: 2, 2: 9},
    {3: 1, 1: 8, 2: 3},
]


@pytest.mark.parametrize("moves", MOVES, ids=str)
@pytest.mark.parametrize("topic_files", ["moved", "as the catalogue says", "gone"])
def test_renamed_folders_get_their_names_back_without_loss(three, moves, topic_files):
    rename(three, moves)
    if topic_files != "moved":
        for number in moves.values():
            three.file("topic", number).unlink()
            if topic_files == "as the catalogue says" and number in BATCHES:
                content = TopicFile(number, "public/default/orders", number - 1)
                three.file("topic", number).write_bytes(pack_topic_file(content))
    before = snapshot_of(three.path / "partitions")
    if topic_files == "moved" or set(moves.values()) - BATCHES.keys():
        with pytest.raises(DamagedLog):
            LogDirectory(three.path, **SMALL)
        assert snapshot_of(three.path / "partitions") == before, "a start that ends moves nothing"
    lines, refusals = repaired(three.path)
    assert refusals == []
    assert any("no record is lost" in line for line in lines)
    check_all_there(three.path)


def test_a_start_over_swapped_folders_cuts_nothing(three):
    """As after an earlier repair, or by an operator."""
    rename(three, {1: 2, 2: 1})
    topics = [three.file("topic", number).read_bytes() for number in (1, 2)]
    three.file("topic", 1).write_bytes(topics[1])
    three.file("topic", 2).write_bytes(topics[0])
    sizes = [path.stat().st_size for number in (1, 2) for path in three.segments(number)]
    again = LogDirectory(three.path, **SMALL)
    for number in (1, 2):
        assert "belongs to partition" in again.logs[number].recovery.damages[0].reason
        with pytest.raises(DamagedLog):
            again.append(number)
    again.stop()
    assert sizes == [path.stat().st_size for number in (1, 2) for path in three.segments(number)]
    assert verified(three.path)[1].faults > 0
    repaired(three.path)
    check_all_there(three.path)


def test_a_copy_over_another_folder_is_set_aside(three):
    """The old content of the folder is lost; the copy's content is neither served nor discarded."""
    shutil.rmtree(three.file("", 2))
    shutil.copytree(three.file("", 1), three.file("", 2))
    copied = {name: content for name, (content, _) in snapshot_of(three.file("", 2)).items()}
    with pytest.raises(DamagedLog):
        LogDirectory(three.path, **SMALL)
    lines, refusals = repaired(three.path)
    assert refusals == []
    assert "moved to set-aside whole" in lines[0]
    moved = snapshot_of(three.path / "set-aside" / "2")
    assert {name: content for name, (content, _) in moved.items()} == copied
    assert verified(three.path)[1].faults == 0
    again = LogDirectory(three.path, **SMALL)
    assert again.values(1) == values_of(1)
    assert (again.logs[2].log_start_offset, again.append(2)) == (20, 20), "above every position"


def test_files_copied_into_another_folder_are_kept_and_become_a_gap(three):
    """An interrupted `cp -r 1/* 2/`: the remaining files of 2 are its own and stay."""
    for name in ("topic", "watermark", three.segments(1)[0].name):
        shutil.copy(three.file(name, 1), three.file(name, 2))
    foreign = three.segments(1)[0].read_bytes()
    own = int(three.segments(2)[1].stem)
    with pytest.raises(DamagedLog):
        LogDirectory(three.path, **SMALL)
    repaired(three.path)
    assert [path.read_bytes() for path in (three.path / "set-aside").glob("2.*.log")] == [foreign]
    assert verified(three.path)[1].faults == 0
    again = LogDirectory(three.path, **SMALL)
    assert again.values(1) == values_of(1)
    assert again.values(2) == {at: value_of(at) for at in range(own, BATCHES[2] * 3)}


def test_a_foreign_segment_at_the_log_start_is_never_a_torn_tail(three):
    three.file("watermark", 2).unlink()
    path = three.segments(2)[0]
    data = three.segments(1)[0].read_bytes()
    path.write_bytes(data)
    LogDirectory(three.path, **SMALL).crash()
    assert path.read_bytes() == data
    assert verified(three.path)[1].faults > 0
    lines, refusals = repaired(three.path)
    assert (refusals, verified(three.path)[1].faults) == ([], 0), lines
    contents = [path.read_bytes() for path in (three.path / "set-aside").glob("2.*.log")]
    assert contents == [data]
    assert LogDirectory(three.path, **SMALL).append(2) >= 20


def test_a_foreign_segment_below_the_durable_offset_is_damage(three):
    path = three.segments(2)[-1]
    data = three.segments(1)[0].read_bytes()
    path.write_bytes(data)
    again = LogDirectory(three.path, **SMALL)
    with pytest.raises(DamagedLog, match="belongs to partition 1"):
        again.append(2)
    again.crash()
    assert path.read_bytes() == data
    repaired(three.path)
    contents = [path.read_bytes() for path in (three.path / "set-aside").glob("2.*.log")]
    assert contents == [data]
    assert LogDirectory(three.path, **SMALL).append(2) == BATCHES[2] * 3


@pytest.mark.parametrize("torn", [False, True])
def test_a_foreign_segment_above_the_durable_offset_is_set_aside(three, torn):
    """A power cut can leave this too, if a new file gets blocks of an old file: no
    record is lost.
    """
    end = BATCHES[2] * 3
    last = three.segments(2)[-1]
    if torn:
        three.file("watermark", 2).unlink()
        last.write_bytes(last.read_bytes()[:-5])
        end -= 3
    stray = last.with_name(f"{BATCHES[2] * 3:020d}.log")
    data = three.segments(1)[0].read_bytes()
    for suffix in (".foreign", ".foreign.2"):
        stray.write_bytes(data)
        again = LogDirectory(three.path, **SMALL)
        assert again.logs[2].recovery.cuts
        assert again.logs[2].log_end_offset == end
        again.crash()
        assert not stray.exists()
        assert stray.with_suffix(suffix).read_bytes() == data
    assert LogDirectory(three.path, **SMALL).append(2) == end


def test_a_folder_claimed_twice_is_left_to_the_operator(three):
    shutil.copytree(three.file("", 1), three.file("", 8))
    rename(three, {1: 9})
    before = snapshot_of(three.path / "partitions")
    repair = Repair(three.path, lambda done, total: None)
    plan = repair.plan()
    repair.close()
    assert len(plan.refusals) == 2
    assert snapshot_of(three.path / "partitions") == before


def test_damage_in_a_renamed_folder_is_repaired_too(three):
    flip(three.segments(2)[0], SEGMENT_HEADER_BYTES + 200)
    rename(three, {1: 2, 2: 1})
    repaired(three.path)
    assert verified(three.path)[1].faults == 0
    again = LogDirectory(three.path, **SMALL)
    assert again.values(1) == values_of(1)
    assert again.values(2).items() < values_of(2).items()


@pytest.mark.slow
@pytest.mark.parametrize("moves", MOVES, ids=str)
def test_a_repair_of_folders_killed_at_any_change_can_be_run_again(three, tmp_path, moves):
    rename(three, moves)
    for path, finished in killed_repairs(three.path, tmp_path):
        if not finished:
            with pytest.raises(DamagedLog):
                LogDirectory(path, **SMALL)
        assert repaired(path)[1] == []
        check_all_there(path)
