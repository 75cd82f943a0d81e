import gzip
import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.errors import BodyError, CorruptBody, RecordTooLarge, UnreadableBody
from braidlog.storage.formats import compression
from braidlog.storage.formats.api import BatchFlag, Decoded, Prepared
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.set_prepare import check_pieces, stamp
from braidlog.storage.formats.record import Record
from tests.storage.formats.descriptions import KAFKA_SET
from tests.storage.formats.kafka.sets import prepare
from tests.storage.formats.strategies import QUICK
from tests.storage.formats.vectors import rows

LIMIT = 1_000_012

# From crc to value, without offset and size.
MESSAGES = [
    ("51df3a32 00 00 ffffffff 00000001 61", None, b"a"),
    ("05360377 00 00 00000001 6b 00000001 62", b"k", b"b"),
    ("908204f6 00 00 00000001 6b ffffffff", b"k", None),
    ("795748e0 00 00 ffffffff 00000000", None, b""),
]
PACK = {1: compression.gzip, 2: compression.snappy, 3: compression.lz4}


def entry(offset: int, message: bytes) -> bytes:
    return struct.pack(">qi", offset, len(message)) + message


def message(key: bytes | None, value: bytes | None, attributes: int = 0, magic: int = 0) -> bytes:
    rest = bytes((magic, attributes))
    for data in (key, value):
        rest += b"\xff\xff\xff\xff" if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">I", zlib.crc32(rest)) + rest


def wrapper(inner: bytes, codec: int, offset: int = 0, key: bytes | None = None) -> bytes:
    return entry(offset, message(key, PACK[codec](inner), codec))


def prepared(message_set: bytes, base_offset: int = 100) -> Prepared:
    return prepare(message_set, base_offset, message_bytes_max=LIMIT)


def values(body: Prepared, base_offset: int = 100) -> list[tuple[int, bytes | None, bytes | None]]:
    decoded = KAFKA.decode(body.body, base_offset, 5)
    assert decoded.failed is None
    assert decoded.next_offset == base_offset + body.info.record_count
    return [(record.offset, record.key, record.value) for record in decoded.records]


@pytest.mark.parametrize(("text", "key", "value"), MESSAGES)
def test_messages_are_written_and_read_by_the_protocol(
    text: str, key: bytes | None, value: bytes | None
) -> None:
    body = entry(7, bytes.fromhex(text))
    record = Record(7, 5, key=key, value=value)
    assert KAFKA.encode([record], 0) == body
    assert KAFKA.decode(body, 0, 5).records == [record]


@pytest.mark.parametrize("row", rows("kafka", "message-sets.tsv"), ids=lambda row: row[0] + row[1])
def test_sets_of_real_producers_are_accepted(row: list[str]) -> None:
    message_set = bytes.fromhex(row[2])
    body = prepared(message_set)
    messages = values(body)
    assert [offset for offset, _, _ in messages] == list(range(100, 100 + len(messages)))
    assert all(value for _, _, value in messages)
    packed = "codec=0" not in row[1] and "acks=0" not in row[1]
    assert body.info.flags == (BatchFlag.COMPRESSED if packed else 0)
    assert KAFKA.inspect(body.body) == body.info


ERRORS = {"0": None, "2": CorruptBody, "-1": UnreadableBody}


@pytest.mark.parametrize("row", rows("kafka", "produce-checks.tsv"), ids=lambda row: row[0])
def test_sets_are_accepted_and_refused_as_by_kafka_0_8(row: list[str]) -> None:
    note, quirk, text, error, base_offset = row
    if quirk and note != "gzip of nothing: 0 and the log end as base offset, nothing appended":
        pytest.skip("0.8 only: a new broker need not")
    wanted = ERRORS[error]
    if wanted is not None:
        with pytest.raises(wanted):
            prepared(bytes.fromhex(text))
        return
    body = prepared(bytes.fromhex(text))
    assert body.empty_compressed == note.startswith("gzip of nothing")
    assert (body.info.record_count == 0) == (base_offset == "-1" or body.empty_compressed)
    assert len(values(body)) == body.info.record_count


def test_offsets_are_stamped_in_place() -> None:
    buffer = bytearray(entry(0, message(b"k", b"a")) + entry(0, message(None, b"b")))
    whole = bytes(buffer)
    body = prepare(memoryview(buffer), 41, message_bytes_max=LIMIT)
    assert body.body.obj is buffer  # type: ignore[union-attr]
    assert bytes(buffer) == whole[:0] + b"".join(
        (entry(41, message(b"k", b"a")), entry(42, message(None, b"b")))
    )


def test_a_partial_last_message_is_dropped() -> None:
    whole = entry(0, message(b"k", b"value"))
    for end in range(len(whole)):
        body = prepared(whole + whole[:end])
        assert values(body) == [(100, b"k", b"value")]
        assert len(body.body) == len(whole)


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_a_size_below_the_fixed_fields_is_corrupt(size: int) -> None:
    good = entry(0, message(None, b"x"))
    for rest in (b"", b"x" * 14, good):
        with pytest.raises(CorruptBody):
            prepared(good + struct.pack(">qi", 0, size) + rest)


def test_an_entry_above_the_limit_is_too_large() -> None:
    whole = entry(0, message(None, b"12345"))
    assert prepare(whole, 0, message_bytes_max=len(whole)).info.record_count == 1
    with pytest.raises(RecordTooLarge):
        prepare(whole, 0, message_bytes_max=len(whole) - 1)


def with_crc(rest: bytes) -> bytes:
    return entry(0, struct.pack(">I", zlib.crc32(rest)) + rest)


@pytest.mark.parametrize(
    "rest",
    [
        "00 00 fffffffe 00000001 61",  # key size -2
        "00 00 00000002 61 00000000",  # key reaches into the value's size
        "00 00 7fffffff 00000000 61",
        "00 00 ffffffff 00000002 61",  # value beyond the end
        "00 00 ffffffff fffffffe",
        "00 00 ffffffff ffffffff 61",  # bytes after the value
        "00 00 ffffffff 00000000 61",
        "01 00 ffffffff 00000001 61",  # format 1
        "02 00 ffffffff 00000001 61",
    ],
)
def test_lengths_and_formats_are_checked(rest: str) -> None:
    bad = with_crc(bytes.fromhex(rest))
    for message_set in (bad, entry(0, message(None, b"x")) + bad):
        with pytest.raises(CorruptBody):
            prepared(message_set)
    for codec in PACK:
        with pytest.raises(CorruptBody):
            prepared(wrapper(bad, codec))


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_unknown_codecs_are_unreadable(codec: int) -> None:
    with pytest.raises(UnreadableBody):
        prepared(entry(0, message(None, b"x", codec)))


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("value", [None, b"", b"nonsense that is no stream"])
def test_a_set_that_does_not_unpack_is_unreadable(codec: int, value: bytes | None) -> None:
    with pytest.raises(BodyError) as caught:
        prepared(entry(0, message(None, value, codec)))
    assert not isinstance(caught.value, CorruptBody)


@pytest.mark.parametrize("codec", PACK)
def test_a_compressed_set_becomes_a_wrapper_with_absolute_offsets(codec: int) -> None:
    inner = entry(0, message(b"k", b"one")) + entry(1, message(None, b"two"))
    body = prepared(wrapper(inner, codec, offset=1, key=b"dropped"))
    parsed = KAFKA_SET.parse(bytes(body.body))
    (outer,) = parsed.entries
    assert (outer.offset, outer.message.magic, outer.message.attributes) == (101, 0, codec)
    assert outer.message.key.data is None
    unpack = {1: compression.gunzip, 2: compression.unsnappy, 3: compression.unlz4}[codec]
    unpacked = bytes(unpack(outer.message.value.data, 1000))
    assert unpacked == entry(100, message(b"k", b"one")) + entry(101, message(None, b"two"))
    assert body.info.record_count == 2
    assert body.info.flags == BatchFlag.COMPRESSED


def test_a_mixed_set_uses_the_codec_of_its_last_compressed_message() -> None:
    mixed = (
        entry(0, message(None, b"a"))
        + wrapper(entry(0, message(None, b"b")) + entry(0, message(None, b"c")), 1)
        + wrapper(entry(0, message(None, b"d")), 2)
        + entry(0, message(None, b"e"))
    )
    body = prepared(mixed)
    assert values(body) == [(100 + n, None, b"abcde"[n : n + 1]) for n in range(5)]
    assert bytes(body.body)[17] == 2


@pytest.mark.parametrize("codec", PACK)
def test_a_partial_message_inside_a_wrapper_is_dropped(codec: int) -> None:
    whole = entry(0, message(None, b"whole"))
    for end in (1, 11, 12, 20, len(whole) - 1):
        body = prepared(wrapper(whole + whole[:end], codec) + wrapper(whole, codec))
        assert values(body) == [(100, None, b"whole"), (101, None, b"whole")]
        empty = prepared(wrapper(whole[:end], codec))
        assert empty.empty_compressed
        assert empty.info.record_count == 0


def test_a_wrapper_in_a_wrapper_is_refused() -> None:
    nested = wrapper(wrapper(entry(0, message(None, b"x")), 1), 1)
    with pytest.raises(UnreadableBody):
        prepared(nested)
    assert isinstance(KAFKA.decode(nested, 0, 0).failed, UnreadableBody)


@pytest.mark.parametrize("codec", PACK)
def test_unpacked_sets_are_bounded(codec: int) -> None:
    bomb = wrapper(entry(0, message(None, bytes(100_000))), codec)
    assert len(bomb) < 10_000
    with pytest.raises(RecordTooLarge):
        prepare(bomb, 0, message_bytes_max=LIMIT, inflated_bytes_max=50_000)
    with pytest.raises(RecordTooLarge):  # The limit covers all wrappers of a set together.
        prepare(bomb * 3, 0, message_bytes_max=LIMIT, inflated_bytes_max=250_000)


def test_only_the_wrapper_is_measured_before_and_after() -> None:
    large = wrapper(entry(0, message(None, bytes(2_000_000))), 1)
    assert prepared(large).info.record_count == 1
    tight = wrapper(entry(0, message(None, random.Random(1).randbytes(500))), 1)
    repacked = len(prepared(tight).body)
    limit = max(len(tight), repacked)
    assert prepare(tight, 0, message_bytes_max=limit).info.record_count == 1
    with pytest.raises(RecordTooLarge):
        prepare(tight, 0, message_bytes_max=limit - 1)


def text_set(count: int) -> bytes:
    """Return messages that zlib compresses much better than the quick compression."""
    choose, words = random.Random(1).choices, ("lorem", "ipsum", "dolor", "sit", "amet")
    texts = [" ".join(choose(words, k=2_000)).encode() for _ in range(count)]
    return b"".join(entry(at, message(b"k", text)) for at, text in enumerate(texts))


def test_a_set_that_fits_with_zlib_is_not_refused() -> None:
    wrapped = entry(0, message(None, gzip.compress(text_set(10), 6), 1))
    limit = len(wrapped) * 101 // 100  # The offsets take some bytes.
    quick = prepared(wrapped)
    assert len(quick.body) > limit  # Otherwise the test shows nothing.
    tight = prepare(wrapped, 100, message_bytes_max=limit)
    assert values(tight) == values(quick)
    with pytest.raises(RecordTooLarge):
        prepare(wrapped, 100, message_bytes_max=len(tight.body) - 1)


def test_a_wrapper_that_loses_a_message_is_not_larger_than_before() -> None:
    stored = entry(9, message(None, gzip.compress(text_set(10), 6), 1))
    left = KAFKA.without(stored, 0, lambda offset: offset == 0)
    assert left.record_count == 9
    assert len(left.body) <= len(stored)


@pytest.mark.slow
def test_a_too_large_stored_body_is_refused_to_readers() -> None:
    body = wrapper(entry(100, message(None, bytes(compression.INFLATED_BYTES_MAX))), 1)
    decoded = KAFKA.decode(body, 100, 5)
    assert isinstance(decoded.failed, RecordTooLarge)
    assert (decoded.failed_offset, decoded.records) == (100, [])


@pytest.mark.parametrize("codec", [0, *PACK])
def test_split_begins_at_the_entry_that_holds_the_offset(codec: int) -> None:
    inner = [entry(0, message(None, b"%d" % n)) for n in range(4)]
    if codec:
        body = prepared(wrapper(b"".join(inner), codec)).body
        for offset in range(98, 104):
            assert KAFKA.split(body, 100, start_offset=offset) == [(100, 0)]
    else:
        body = prepared(b"".join(inner)).body
        for offset in range(98, 104):
            starts = KAFKA.split(body, 100, start_offset=offset, starts_max=2)
            assert [start for start, _ in starts] == list(range(max(offset, 100), 104))[:2]
            rest = KAFKA.decode(body[starts[0][1] :], 100, 5).records
            assert [r.offset for r in rest] == list(range(max(offset, 100), 104))
    assert KAFKA.split(body, 100, start_offset=104) == []


@pytest.mark.parametrize("codec", [0, *PACK])
def test_the_last_start_before_a_place_equals_split(codec: int) -> None:
    sets = [
        b"".join(entry(n, message(None, b"%d" % n)) for n in range(first, first + 3))
        for first in (100, 103, 106)
    ]
    sets[1] = wrapper(sets[1], codec, 105) if codec else sets[1]
    body = b"".join(sets)
    starts = KAFKA.split(body, 100)
    assert starts[-1][0] == 108
    for pos in range(len(body)):
        place = KAFKA.start_before(body, 100, pos)
        assert place == [start for start in starts if start[1] <= pos][-1]
        assert place == Codec.start_before(KAFKA, body, 100, pos)
        assert place == KAFKA.start_before(body[:pos], 100, pos)  # The cut is there.


@pytest.mark.parametrize("seed", range(40))
def test_many_messages_are_read_like_single_messages(seed: int) -> None:
    rng = random.Random(seed)
    parts, offset = [], rng.choice([0, 1 << 40])
    while len(parts) < 400:
        key, value = (rng.choice([None, b"", bytes(rng.randint(0, 9))]) for _ in range(2))
        for _ in range(rng.choice([1, 3, 64, 150])):
            parts.append(entry(offset, message(key, value and rng.randbytes(len(value)))))
            offset += rng.choice([1] * 9 + [3])
        if rng.random() < 0.2:
            parts.append(wrapper(entry(offset, message(b"k", b"v")), 1, offset))
            offset += 1
    if seed % 3 == 0:
        parts[rng.randrange(200, 400)] = entry(offset, message(None, b"odd", magic=1))
    body = b"".join(parts)
    start = rng.choice([0, offset // 2])
    wanted = rng.choice([1 << 30, 64, 63])
    together = KAFKA.decode(body, 0, 5, start_offset=start, records_max=wanted)
    alone = Decoded(next_offset=together.next_offset)
    position, decoded = start, alone
    while len(alone.records) < wanted and decoded.failed is None:
        decoded = KAFKA.decode(body, 0, 5, start_offset=position, records_max=1)
        alone.next_offset = position = decoded.next_offset
        alone.failed, alone.failed_offset = decoded.failed, decoded.failed_offset
        if not decoded.records:
            break
        alone.records += decoded.records
    assert together.records == alone.records, f"seed {seed}"
    assert together.next_offset == alone.next_offset, f"seed {seed}"
    assert repr(together.failed) == repr(alone.failed), f"seed {seed}"
    assert together.failed_offset == alone.failed_offset, f"seed {seed}"


@pytest.mark.parametrize("codec", PACK)
def test_a_compressed_body_is_read_from_any_offset_in_pieces(codec: int) -> None:
    inner = b"".join(entry(0, message(None, b"%d" % n)) for n in range(6))
    body = prepared(wrapper(inner, codec)).body
    assert KAFKA.split(body, 100) == [(100, 0)]
    for start in range(100, 106):
        decoded = KAFKA.decode(body, 100, 5, start_offset=start, records_max=2)
        assert [r.offset for r in decoded.records] == list(range(start, min(start + 2, 106)))
        assert decoded.next_offset == min(start + 2, 106)


@pytest.mark.parametrize("codec", [0, *PACK])
def test_stamping_again_moves_a_body(codec: int) -> None:
    inner = entry(0, message(None, b"a")) + entry(0, message(b"k", None))
    body = prepared(wrapper(inner, codec) if codec else inner).body
    moved = prepare(bytes(body), 500, message_bytes_max=LIMIT).body
    assert [r.offset for r in KAFKA.decode(moved, 500, 9).records] == [500, 501]


@QUICK
@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9))))
def test_the_description_reads_written_sets(
    pairs: list[tuple[bytes | None, bytes | None]],
) -> None:
    records = [Record(n * 2, 5, key=k, value=v) for n, (k, v) in enumerate(pairs)]
    parsed = KAFKA_SET.parse(KAFKA.encode(records, 0))
    described = [(e.offset, e.message.key.data, e.message.value.data) for e in parsed.entries]
    assert described == [(r.offset, r.key, r.value) for r in records]
    for item in parsed.entries:
        again = message(item.message.key.data, item.message.value.data)
        assert item.message.crc == struct.unpack(">I", again[:4])[0]


@pytest.mark.parametrize("seed", range(20))
def test_hostile_sets_raise_only_body_errors(seed: int) -> None:
    rng = random.Random(seed)
    inner = entry(0, message(b"k", b"value")) + entry(0, message(None, b"v"))
    for good in (inner, *(wrapper(inner, codec) for codec in PACK)):
        for _ in range(60):
            bad = bytearray(good)
            bad[rng.randrange(len(bad))] = rng.randrange(256)
            try:
                body = prepared(bytes(bad))
            except BodyError:
                continue
            assert len(values(body)) == body.info.record_count


@pytest.mark.parametrize("seed", range(8))
def test_a_set_checked_in_pieces_equals_a_set_checked_at_once(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([20] if seed % 2 else [0, 1, 30, 700]) for _ in range(300)]
    whole = b"".join(entry(0, message(None, bytes(size))) for size in sizes)
    cut = whole + whole[: rng.randrange(30)]
    at_once = prepared(cut, 900)
    *_, last = check_pieces(memoryview(bytearray(cut)), 100, LIMIT, rng.choice([40, 500, 5000]))
    assert last is not None
    assert stamp(last, 900) == at_once
    broken = bytearray(cut)
    broken[len(whole) - 1] ^= 1
    with pytest.raises(CorruptBody):
        for _ in check_pieces(memoryview(broken), 100, LIMIT, 500):
            pass


def test_a_compressed_message_ends_the_check_in_pieces() -> None:
    plain = entry(0, message(None, b"x")) * 20
    mixed = memoryview(bytearray(plain + wrapper(plain, 1)))
    verdicts = list(check_pieces(mixed, 0, LIMIT, 100))
    assert verdicts[-1] is None
    assert all(verdicts[:-1])


def test_wrappers_without_a_whole_message_count_as_unpacked_too() -> None:
    nothing = entry(0, message(None, bytes(50_000)))[:-1]
    with pytest.raises(RecordTooLarge):
        prepare(wrapper(nothing, 1) * 3, 0, message_bytes_max=LIMIT, inflated_bytes_max=120_000)
