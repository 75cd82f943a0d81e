import pytest

from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SegmentHeader
from braidlog.storage.tools.index_check import IndexCheck

# Three batches of a single offset each: (file_pos, offset, time).
BATCHES = [(64, 0, 50), (264, 1, 90), (464, 2, 70)]
END = 664


def checked(tmp_path, entries, *, batches=BATCHES, size=END, grows=False):
    """Return the faults of an index with these entries beside those batches."""
    files = LocalFiles(tmp_path)
    segment = Segment.create(files, str(tmp_path), SegmentHeader(1, 7, 1, 0))
    for entry in entries:
        segment.index.add(*entry)
    segment.index.flush()
    segment.close()
    again = Segment(files, str(tmp_path), 0, 1, 1)
    again.size = size
    again.load()
    check = IndexCheck(again)
    for file_pos, offset, time_us in batches:
        check.batch(file_pos, header(offset, time_us))
    check.end(grows=grows)
    return check.fault


def header(offset, time_us):
    return BatchHeader(
        partition_id=1,
        base_offset=offset,
        last_offset_delta=0,
        record_count=1,
        durable_offset=0,
        append_us=time_us,
        body_format=1,
        body_bytes=72,
    )


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [(1, 264, 50)],
        [(1, 264, 50), (2, 464, 90)],
        [(2, 464, 90), (3, END, 90)],
        [(3, END, 90)],
    ],
)
def test_right_entries(tmp_path, entries):
    assert checked(tmp_path, entries) is None


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(2, 264, 50)], "says offset 2, it is 1"),
        ([(1, 264, 49)], "wrong time"),
        ([(1, 264, None)], "wrong time"),
        ([(1, 263, 50)], "where no batch begins"),
        ([(2, 464, 90), (1, 264, 50)], "where no batch begins"),
        ([(4, END, 90)], "says offset 4, it is 3"),
        ([(3, END, 90), (4, END + 200, 90)], "behind the last batch"),
    ],
)
def test_wrong_entries(tmp_path, entries, reason):
    assert reason in checked(tmp_path, entries)


@pytest.mark.parametrize("grows", [True, False])
def test_entries_of_batches_written_meanwhile_are_not_judged(tmp_path, grows):
    entries = [(1, 264, 50), (4, END + 200, 90)]
    assert (checked(tmp_path, entries, grows=grows) is None) == grows


@pytest.mark.parametrize("batches", [[BATCHES[0], BATCHES[2]], BATCHES[:2]])
def test_entries_of_damaged_batches_are_not_judged(tmp_path, batches):
    assert checked(tmp_path, [(1, 264, 50), (2, 464, 90)], batches=batches) is None
