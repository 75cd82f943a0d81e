"""Chunked messages: a single row, wherever their chunks are; otherwise a dead letter, never
silence.
"""

import pytest

from braidlog.storage.export.chunks import CHUNK_LIMITS, ChunkLimits
from braidlog.storage.export.readers import FolderReader
from braidlog.storage.export.rows import RangeRows
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.columns.records import ColumnTarget
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from tests.storage.export.test_worker import TOPIC, Data, record
from tests.storage.formats.entries_of import body, entry, metadata


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


def piece(data, uuid, number, count, payload=b"x"):
    fields = {"uuid": uuid, "chunk_id": number, "num_chunks_from_msg": count}
    stored = body((entry(metadata(total_chunk_msg_size=count, **fields), payload), 1))
    codec = codec_for(BodyFormat.PULSAR)
    data.append_body(stored, codec.inspect(stored), BodyFormat.PULSAR, 1)


def rows(data, start=0, end=None, limits=CHUNK_LIMITS):
    """Return offsets and values of the rows, and the dead letters."""
    bad = []
    with FolderReader(data.directory.path).open(TOPIC, 0, 1) as log:
        end = log.high_watermark if end is None else end
        batches = RangeRows(log, start, end, ColumnTarget(1, 0), bad.append, limits)
        pairs = [
            pair
            for batch in batches
            for pair in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        ]
    return pairs, [(failure.offset, failure.reason) for failure in bad]


def filler(data, count):
    data.append(BodyFormat.KAFKA, [record() for _ in range(count)])


def test_a_chunked_message_is_a_row_at_its_last_chunks_offset(data):
    for number in range(3):
        piece(data, "m", number, 3, b"abc"[number : number + 1])
    filler(data, 1)
    assert rows(data) == ([(2, b"abc"), (3, None)], [])


def test_messages_across_every_boundary_are_rows_exactly_once(data):
    for number in range(3):
        for name in "ab":
            piece(data, name, number, 3, f"{name}{number}".encode())
    for cut in range(7):
        (before, _), (after, _) = rows(data, 0, cut), rows(data, cut)
        assert before + after == [(4, b"a0a1a2"), (5, b"b0b1b2")], cut


def test_chunks_are_found_across_any_number_of_records(data):
    piece(data, "m", 0, 2, b"a")
    filler(data, 30_000)
    piece(data, "m", 1, 2, b"b")
    assert rows(data, 30_001) == ([(30_001, b"ab")], [])


def test_many_open_messages_at_a_time_are_not_lost(data):
    for number in range(2):
        for name in range(150):
            piece(data, f"m{name}", number, 2)
    records, bad = rows(data)
    assert ([offset for offset, _ in records], bad) == (list(range(150, 300)), [])


def test_chunks_that_no_longer_fit_memory_are_read_again(data):
    for number in range(3):
        for name in "ab":
            piece(data, name, number, 3, f"{name}{number}".encode())
    assert rows(data, limits=ChunkLimits(held_bytes_max=3))[0] == [(4, b"a0a1a2"), (5, b"b0b1b2")]


def test_a_single_last_chunk_is_a_dead_letter_and_no_damage(data):
    piece(data, "m", 1, 2)
    records, bad = rows(data)
    assert records == []
    assert bad == [(0, "1 of 2 pieces of the chunked message are not in the log")]
    assert data.export()[0].count == 1  # Even in the mode in which damage would stop the export.


def test_a_message_with_too_old_chunks_is_a_dead_letter(data):
    piece(data, "m", 0, 2)
    filler(data, 10_000)
    piece(data, "m", 1, 2)
    records, bad = rows(data, 10_001, limits=ChunkLimits(look_back_bytes_max=0))
    assert records == []
    assert "not within 0 bytes" in bad[0][1]


def test_a_too_large_message_is_a_dead_letter(data):
    piece(data, "m", 0, 2)
    piece(data, "m", 1, 2)
    assert rows(data, limits=ChunkLimits(joined_bytes_max=1))[1] == [
        (1, "record of 2 bytes, at most 1 are taken")
    ]


def test_alternating_formats_give_rows_in_offset_order(data):
    for number in range(20):
        body_format = (BodyFormat.KAFKA, BodyFormat.PULSAR, BodyFormat.IGGY)[number % 3]
        data.append(body_format, [Record(0, 5, value=b"%d" % number)])
    assert rows(data)[0] == [(number, b"%d" % number) for number in range(20)]


def test_entries_behind_an_unreadable_entry_of_a_batch_are_rows(data):
    secret = metadata()
    secret.encryption_keys.add(key="k", value=b"v")
    stored = body(
        (entry(metadata(), b"a"), 1), (entry(secret, b"?"), 1), (entry(metadata(), b"b"), 1)
    )
    data.append_body(stored, codec_for(BodyFormat.PULSAR).inspect(stored), BodyFormat.PULSAR, 1)
    assert rows(data) == ([(0, b"a"), (2, b"b")], [(1, "entry is encrypted")])
