from types import SimpleNamespace

import pytest

from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.journal.log import pack_records
from braidlog.storage.log.segment_header import FLAG_SNAPSHOT
from braidlog.storage.tools.journal_records import JournalRecords, NoSnapshotEnd
from braidlog.storage.tools.survey import Good

END = BatchFlag.MARKER


def replayed(*segments, end_offset=1000, log_start_offset=0):
    """Return the counting records of segments (base, is a snapshot, [(offset, records or END)])."""
    records, built = JournalRecords(), []
    for base, is_snapshot, batches in segments:
        flags = FLAG_SNAPSHOT if is_snapshot else 0
        segment = SimpleNamespace(
            base_offset=base, path=str(base), header=SimpleNamespace(flags=flags)
        )
        built.append(segment)
        for offset, content in batches:
            is_end = content is END
            body = b"" if is_end else pack_records(content)
            records.batch(Good(segment, 64, header(offset, content is END)), body)
    survey = SimpleNamespace(
        segments=built, end_offset=end_offset, log_start_offset=log_start_offset, holes=[]
    )
    return [bytes(record) for record in records.records(survey, records.start(survey))]


def header(offset, is_end):
    return BatchHeader(
        partition_id=1,
        base_offset=offset,
        last_offset_delta=0,
        record_count=0 if is_end else 1,
        durable_offset=0,
        append_us=0,
        body_format=BodyFormat.JOURNAL,
        flags=END if is_end else 0,
    )


OLD = (0, False, [(0, [b"a"]), (1, [b"b"])])
SNAPSHOT = (2, True, [(2, [b"ab"]), (3, END), (4, [b"c"])])
UNFINISHED = (5, True, [(5, [b"abc"])])


def test_a_journal_without_a_snapshot_is_all_its_records():
    assert replayed(OLD) == [b"a", b"b"]


def test_a_whole_snapshot_replaces_earlier_records():
    assert replayed(OLD, SNAPSHOT) == [b"ab", b"c"]


def test_an_unfinished_snapshot_is_ignored():
    assert replayed(OLD, UNFINISHED) == [b"a", b"b"]
    assert replayed(OLD, SNAPSHOT, UNFINISHED) == [b"ab", b"c"]


def test_records_behind_the_end_do_not_count():
    assert replayed(OLD, end_offset=1) == [b"a"]
    assert replayed(OLD, SNAPSHOT, end_offset=3) == [b"a", b"b"]


def test_an_end_without_a_snapshot_is_ignored():
    """An empty segment gets an end before a snapshot, so that the names differ."""
    assert replayed((0, False, [(0, END)]), (1, True, [(1, [b"x"]), (2, END)])) == [b"x"]


def test_a_required_snapshot_must_have_an_end():
    with pytest.raises(NoSnapshotEnd):
        replayed(UNFINISHED)
    with pytest.raises(NoSnapshotEnd):
        replayed(UNFINISHED, (9, False, [(9, [b"d"])]))
