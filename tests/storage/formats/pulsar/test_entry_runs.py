import struct

import cramjam
import pytest

from braidlog.storage.errors import CorruptBody, RecordTooLarge, UnreadableBody
from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.pulsar.entry_runs import (
    BATCH_RECORDS_MAX,
    ENTRY_PREFIX,
    PULSAR,
    EntryRef,
    SendInfo,
    entries,
    join_chunks,
    parse_send,
)
from braidlog.storage.formats.record import Chunk, Record
from tests.storage.formats.entries_of import body, entry, metadata, single
from tests.storage.formats.vectors import rows

ENTRIES = {f"{row[1]}-{row[0]}": bytes.fromhex(row[2]) for row in rows("pulsar", "entries.tsv")}
PLAIN_SEND = ENTRIES["golden-frames-send_plain"]


def batch(*payloads: bytes) -> bytes:
    meta = metadata(num_messages_in_batch=len(payloads))
    return entry(meta, b"".join(single(payload) for payload in payloads))


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_of_real_clients_and_brokers_open(name: str) -> None:
    raw = ENTRIES[name]
    info = parse_send(raw)
    decoded = PULSAR.decode(body((raw, info.record_count)), 7, 1)
    assert decoded.failed is None
    assert [r.offset for r in decoded.records] == list(range(7, 7 + info.record_count))
    assert all(r.value and r.publish_us == info.publish_us for r in decoded.records)


def test_send_info_of_recorded_sends() -> None:
    plain = SendInfo(1, 1795229252516000, 0, None)
    assert parse_send(PLAIN_SEND) == plain
    assert parse_send(memoryview(ENTRIES["golden-frames-send_batch3"])).record_count == 3
    assert parse_send(ENTRIES["golden-frames-send_lz4"]).flags == BatchFlag.COMPRESSED
    assert parse_send(ENTRIES["golden-frames-send_deliver_at"]).flags == BatchFlag.DELAYED
    piece = parse_send(ENTRIES["golden-frames-send_chunk_1"])
    assert piece.chunk == Chunk(b"prod-ck-0", 1, 2, 1500)
    assert piece.flags == BatchFlag.CHUNK


def test_every_changed_bit_is_caught_by_the_checksum() -> None:
    for pos in range(2, len(PLAIN_SEND)):
        bad = bytearray(PLAIN_SEND)
        bad[pos] ^= 0x10
        with pytest.raises(CorruptBody):
            parse_send(bad)


def test_a_send_without_a_checksum_is_accepted() -> None:
    assert parse_send(PLAIN_SEND[6:]) == parse_send(PLAIN_SEND)


def test_a_send_cut_anywhere_is_corrupt() -> None:
    for end in range(len(PLAIN_SEND)):
        with pytest.raises(CorruptBody):
            parse_send(PLAIN_SEND[:end])


@pytest.mark.parametrize("count", [0, -1, -(2**31), 4, BATCH_RECORDS_MAX + 1, 2**31 - 1])
def test_impossible_batch_counts_are_corrupt(count: int) -> None:
    messages = b"".join(single(b"") for _ in range(3))
    with pytest.raises(CorruptBody):
        parse_send(entry(metadata(num_messages_in_batch=count), messages))


def test_a_batch_count_is_checked_against_the_unpacked_size() -> None:
    packed = metadata(num_messages_in_batch=3, compression=3, uncompressed_size=18)
    assert parse_send(entry(packed, b"zstd")).record_count == 3
    packed.uncompressed_size = 17
    with pytest.raises(CorruptBody):
        parse_send(entry(packed, b"zstd and so on, longer than it says"))


def test_a_batch_of_a_single_message_is_a_batch() -> None:
    assert parse_send(batch(b"x")).record_count == 1
    (record,) = PULSAR.decode(body((batch(b"x"), 1)), 0, 0).records
    assert record.value == b"x"


def test_metadata_without_its_required_fields_is_accepted() -> None:
    info = parse_send(entry(b"", b"value"))
    assert (info.publish_us, info.record_count) == (None, 1)
    (record,) = PULSAR.decode(body((entry(b"", b"value"), 1)), 3, 8).records
    assert record == Record(3, 8, value=b"value")


def test_times_outside_the_log_become_the_latest_time() -> None:
    info = parse_send(entry(metadata(publish_time=2**64 - 1, event_time=2**63), b""))
    assert info.publish_us == (2**63 - 1) // 1000 * 1000


def test_entries_are_found_by_their_prefixes() -> None:
    single, two = entry(metadata(), b"x"), batch(b"a", b"b")
    stored = body((single, 1), (two, 2), (single, 1))
    first, second, third = entries(stored, 40)
    assert first == EntryRef(40, 1, 12, 12 + len(single))
    assert stored[second.start : second.end] == two
    assert [(e.offset, e.record_count) for e in (second, third)] == [(41, 2), (43, 1)]
    assert PULSAR.split(stored, 40) == [
        (40, 0),
        (41, second.start - 12),
        (43, third.start - 12),
    ]


def test_split_begins_at_the_entry_that_holds_the_offset_and_stops_at_a_count() -> None:
    single = entry(metadata(), b"")
    stored = body((single, 1), (single, 3), (single, 2))  # Their sizes do not matter here.
    places = PULSAR.split(stored, 10)
    assert [offset for offset, _ in places] == [10, 11, 14]
    for start, first in ((9, 0), (10, 0), (11, 1), (13, 1), (14, 2), (15, 2), (16, 3)):
        assert PULSAR.split(stored, 10, start_offset=start) == places[first:]
        assert PULSAR.split(stored, 10, start_offset=start, starts_max=1) == places[first:][:1]


def test_prefixes_that_do_not_fill_the_body_are_corrupt() -> None:
    stored = body((entry(metadata(), b"x"), 1))
    for bad in (stored[:-1], stored + b"\0", stored + bytes(11), ENTRY_PREFIX.pack(1, 0, 1)):
        with pytest.raises(CorruptBody):
            entries(bad, 0)


def test_inspect_sums_up_the_entries() -> None:
    stored = body(
        (entry(metadata(publish_time=30), b"x"), 1),
        (entry(metadata(publish_time=50, compression=1, uncompressed_size=1), b"\x10x"), 1),
        (batch(b"a", b"b", b"c"), 3),
    )
    assert PULSAR.inspect(stored) == BodyInfo(5, 30_000, 50_000, BatchFlag.COMPRESSED)


FLAGS = [
    ({"encryption_keys": [{"key": "k", "value": b"v"}]}, BatchFlag.OPAQUE),
    ({"marker_type": 0}, BatchFlag.MARKER),
    ({"compression": 2}, BatchFlag.COMPRESSED),
    ({"num_chunks_from_msg": 1, "chunk_id": 0}, 0),
    ({"deliver_at_time": -5}, 0),
]


@pytest.mark.parametrize(("fields", "flags"), FLAGS)
def test_flags_of_metadata(fields: dict[str, object], flags: int) -> None:
    assert parse_send(entry(metadata(**fields), b"x")).flags == flags


def unknown_compression() -> bytes:
    return metadata().SerializeToString() + b"\x40\x05" + b"\x48\x01"


@pytest.mark.parametrize(
    "opaque",
    [
        entry(metadata(encryption_keys=[{"key": "k", "value": b"v"}]), b"x"),
        entry(unknown_compression(), b"x"),
        entry(metadata(compression=1, uncompressed_size=9), b"not lz4"),
    ],
    ids=["encrypted", "unknown compression", "broken"],
)
def test_an_unreadable_entry_stops_with_its_offset(opaque: bytes) -> None:
    good = entry(metadata(), b"good")
    stored = body((good, 1), (opaque, 1), (good, 1))
    decoded = PULSAR.decode(stored, 20, 0)
    assert [r.offset for r in decoded.records] == [20]
    assert isinstance(decoded.failed, UnreadableBody)
    assert decoded.failed_offset == decoded.next_offset == 21
    behind = PULSAR.decode(stored, 20, 0, start_offset=22)
    assert [r.offset for r in behind.records] == [22]
    assert behind.failed is None


def test_unknown_compression_is_opaque_and_compressed() -> None:
    info = parse_send(entry(unknown_compression(), b"x"))
    assert info.flags == BatchFlag.COMPRESSED | BatchFlag.OPAQUE


@pytest.mark.parametrize("held", [1, 2, 4])
def test_a_batch_with_another_count_is_damaged_and_shifts_no_offset(held: int) -> None:
    messages = b"".join(single(b"m%d" % n) for n in range(held))
    wrong = entry(metadata(num_messages_in_batch=3), messages)
    stored = body((wrong, 3), (entry(metadata(), b"after"), 1))
    decoded = PULSAR.decode(stored, 10, 0)
    assert isinstance(decoded.failed, CorruptBody)
    assert (decoded.records, decoded.failed_offset) == ([], 10)
    assert PULSAR.decode(stored, 10, 0, start_offset=12).failed_offset == 12
    (after,) = PULSAR.decode(stored, 10, 0, start_offset=13).records
    assert (after.offset, after.value) == (13, b"after")


def test_an_entry_stored_under_another_count_is_damaged() -> None:
    for raw, count in ((batch(b"a", b"b"), 3), (entry(metadata(), b"x"), 2)):
        assert isinstance(PULSAR.decode(body((raw, count)), 0, 0).failed, CorruptBody)


def test_a_payload_above_the_limit_is_too_large_for_foreign_readers() -> None:
    declared = entry(metadata(compression=3, uncompressed_size=(64 << 20) + 1), b"x")
    assert isinstance(PULSAR.decode(body((declared, 1)), 0, 0).failed, RecordTooLarge)


def test_markers_and_compacted_messages_are_skipped() -> None:
    marker = entry(metadata(marker_type=10), b"for brokers")
    holes = entry(
        metadata(num_messages_in_batch=3),
        single(b"a") + single(b"", compacted_out=True) + single(b"c"),
    )
    stored = body((marker, 1), (holes, 3), (marker, 1))
    decoded = PULSAR.decode(stored, 5, 0)
    assert [(r.offset, r.value) for r in decoded.records] == [(6, b"a"), (8, b"c")]
    assert (decoded.next_offset, decoded.failed) == (10, None)


def test_reading_may_begin_and_end_inside_a_batch() -> None:
    stored = body((batch(b"a", b"b", b"c"), 3), (batch(b"d", b"e"), 2))
    for start in range(5):
        for count in range(1, 6):
            decoded = PULSAR.decode(stored, 0, 0, start_offset=start, records_max=count)
            wanted = b"abcde"[start : start + count]
            assert b"".join(r.value or b"" for r in decoded.records) == wanted
            assert decoded.next_offset == start + len(wanted)


def pieces_of(data: bytes, cut_at: int, **fields: object) -> list[Record]:
    parts = (data[:cut_at], data[cut_at:])
    raw = [
        entry(
            metadata(
                uuid="u-1",
                chunk_id=place,
                num_chunks_from_msg=2,
                total_chunk_msg_size=len(data),
                partition_key="k",
                **fields,
            ),
            part,
        )
        for place, part in enumerate(parts)
    ]
    return PULSAR.decode(body((raw[0], 1), (raw[1], 1)), 30, 1).records


def test_chunks_are_joined_at_the_last_chunks_offset() -> None:
    pieces = pieces_of(b"first and second", 6)
    assert [p.chunk for p in pieces] == [Chunk(b"u-1", n, 2, 16) for n in range(2)]
    joined = PULSAR.join(pieces, 16)
    assert (joined.offset, joined.value, joined.key) == (31, b"first and second", b"k")
    assert joined.chunk is None
    with pytest.raises(RecordTooLarge):
        join_chunks(pieces, 15)


def test_a_compressed_message_is_joined_before_it_is_unpacked() -> None:
    packed = bytes(cramjam.zstd.compress(b"abc" * 1000))
    pieces = pieces_of(packed, 9, compression=3, uncompressed_size=3000)
    assert join_chunks(pieces, 3000).value == b"abc" * 1000
    with pytest.raises(RecordTooLarge):
        join_chunks(pieces, 2999)
    assert isinstance(pieces[0].chunk, Chunk)
    pieces[1].value = b"damaged"
    with pytest.raises(UnreadableBody):
        join_chunks(pieces, 3000)


def test_encode_prefixes_each_record_with_its_place() -> None:
    stored = PULSAR.encode([Record(50, 1, value=b"a"), Record(53, 1, value=b"b")], 48)
    first = struct.unpack_from("<III", stored)
    assert first[1:] == (2, 1)
    second = struct.unpack_from("<III", stored, 12 + first[0])
    assert second[1:] == (5, 1)
    assert 24 + first[0] + second[0] == len(stored)


def test_a_batch_disappears_with_its_last_message() -> None:
    stored = bytes(body((batch(b"a", b"b", b"c"), 3)))
    for offset, left in ((5, 2), (7, 1), (6, 0)):
        rest = PULSAR.without(stored, 5, [offset].__contains__)
        stored = rest.body
        assert rest.record_count == left
        assert len(PULSAR.decode(stored, 5, 1).records) == left
    assert stored == b""
