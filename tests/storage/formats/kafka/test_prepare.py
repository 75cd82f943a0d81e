"""The entry point for produced sets: bodies made at once, work left for later, and the cut."""

import gzip
import itertools
import random

import pytest

from braidlog.storage.errors import CorruptBody, RecordTooLarge
from braidlog.storage.formats.api import BodyFormat, Prepared
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.prepare import (
    APPEND_BYTES_MAX,
    BYTES_PER_TURN,
    INLINE_INFLATED_MAX,
    LargeSet,
    PackedSet,
    SetLimits,
    cut,
    has_producer,
    prepare,
    prepare_at_once,
)
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.set_prepare import prepare_plain
from braidlog.storage.formats.quick import CRC32C_BYTES_MAX, SPEEDUPS
from braidlog.storage.formats.record import Record
from conformance.clients.raw.kafka import message, parse_set
from tests.storage.formats.kafka.test_record_batches import timed

BASE = 70


def view(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


def limits(inflated: int = 1 << 20) -> SetLimits:
    return SetLimits(1 << 20, 1 << 20, inflated)


def offsets(prepared: Prepared) -> list[int]:
    """The offsets of the stored records."""
    codec = KAFKA_BATCHES if prepared.body_format == BodyFormat.KAFKA_BATCHES else KAFKA
    decoded = codec.decode(prepared.body, BASE, 0)
    assert decoded.failed is None
    return [record.offset for record in decoded.records]


def gzipped(content: bytes) -> bytes:
    return message(None, gzip.compress(content), attributes=1)


PLAIN = message(None, b"a") + message(b"k", b"b")
BATCH = KAFKA_BATCHES.encode([Record(0, 0, value=b"a"), Record(1, 0, value=b"b")], 0)


@pytest.mark.parametrize(
    ("data", "body_format"),
    [
        (PLAIN, BodyFormat.KAFKA),
        (gzipped(PLAIN), BodyFormat.KAFKA),
        (BATCH, BodyFormat.KAFKA_BATCHES),
        (timed(b"a", 1000) + timed(b"b", 2000), BodyFormat.KAFKA_BATCHES),
    ],
    ids=["format 0", "packed", "batch", "format 1"],
)
def test_a_small_set_is_prepared_at_once(data: bytes, body_format: BodyFormat) -> None:
    prepared = prepare(view(data), BASE, limits())
    assert isinstance(prepared, Prepared)
    assert prepared.body_format == body_format
    assert prepared.info.record_count == 2
    assert offsets(prepared) == [BASE, BASE + 1]


@pytest.mark.parametrize("data", [b"", message(None, b"cut")[:-1], gzipped(b"")])
def test_a_set_without_messages_is_nothing_to_store(data: bytes) -> None:
    prepared = prepare(view(data), BASE, limits())
    assert isinstance(prepared, Prepared)
    assert not prepared.info.record_count
    assert prepared.empty_compressed == (len(data) > 40)


def test_a_large_set_is_checked_in_pieces_and_has_the_offsets_of_the_end() -> None:
    count = 2 * BYTES_PER_TURN // 1000
    large = prepare(view(message(None, bytes(1000)) * count), BASE - 5, limits())
    assert isinstance(large, LargeSet)
    assert len(list(large.check())) > 2
    prepared = large.finish(BASE)  # Another producer has appended five records.
    assert isinstance(prepared, Prepared)
    assert offsets(prepared) == list(range(BASE, BASE + count))


def test_a_large_set_with_a_packed_message_is_opened_as_a_whole() -> None:
    data = message(None, bytes(BYTES_PER_TURN)) + gzipped(PLAIN)
    large = prepare(view(data), BASE, limits())
    assert isinstance(large, LargeSet)
    list(large.check())
    packed = large.finish(BASE)
    assert isinstance(packed, PackedSet) and not packed.is_timed
    assert offsets(packed.open().at(BASE)) == [BASE, BASE + 1, BASE + 2]


def test_a_set_that_unpacks_to_much_is_opened_later_and_counts_against_the_limit() -> None:
    content = message(None, bytes(INLINE_INFLATED_MAX))
    limit = limits()
    packed = prepare(view(gzipped(content)), BASE, limit)
    assert isinstance(packed, PackedSet)
    before = limit.inflated_left
    opened = packed.open()
    assert before - limit.inflated_left == len(content)
    assert offsets(opened.at(BASE)) == offsets(opened.unpacked_at(BASE)) == [BASE]
    with pytest.raises(RecordTooLarge):
        PackedSet(view(gzipped(content)), limits(1000)).open()


def test_packed_messages_of_format_1_become_a_batch_once_they_are_opened() -> None:
    data = timed(gzip.compress(timed(b"a", 1000)), 1000, codec=1)
    packed = prepare(view(data), BASE, limits())
    assert isinstance(packed, PackedSet) and packed.is_timed
    prepared = packed.open().at(BASE)
    assert prepared.body_format == BodyFormat.KAFKA_BATCHES
    assert offsets(prepared) == [BASE]


def test_damaged_sets_are_refused() -> None:
    for data in (PLAIN, BATCH):
        with pytest.raises(CorruptBody):
            prepare(view(data[:-1] + b"?"), BASE, limits())


def test_only_batches_have_producers_with_sequences() -> None:
    assert not any(map(has_producer, map(view, (b"", PLAIN, BATCH, timed(b"a", 1)))))
    batch = bytearray(BATCH)
    batch[43:51] = (7).to_bytes(8, "big")
    assert has_producer(memoryview(batch))


def stamped(sizes: list[int]) -> Prepared:
    data = bytearray(b"".join(message(None, bytes(size)) for size in sizes))
    prepared = prepare_plain(memoryview(data), BASE, 1 << 30)
    assert prepared is not None
    return prepared


def test_a_set_within_the_limit_stays_a_single_batch() -> None:
    prepared = stamped([100] * 1000)
    assert cut(prepared, BASE) == ((prepared.body, prepared.info),)


@pytest.mark.parametrize("seed", range(4))
def test_a_large_set_is_split_between_messages_without_loss(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((10, 1000, 200_000, 900_000)) for _ in range(60)]
    prepared = stamped(sizes)
    parts = cut(prepared, BASE)
    assert b"".join(bytes(part) for part, _ in parts) == bytes(prepared.body)
    following = BASE
    for piece, piece_info in parts:
        offsets = [offset for offset, _, _ in parse_set(bytes(piece))]
        assert len(piece) <= APPEND_BYTES_MAX
        assert offsets == list(range(following, following + piece_info.record_count))
        following += piece_info.record_count
    assert following == BASE + len(sizes)
    # No piece is smaller than needed: with the next message, the piece would be too large.
    for (piece, _), (after, _) in itertools.pairwise(parts):
        first = 12 + int.from_bytes(after[8:12], "big")
        assert len(piece) + first > APPEND_BYTES_MAX


def test_a_message_above_the_limit_is_a_separate_batch() -> None:
    prepared = stamped([50, APPEND_BYTES_MAX + 5, 50])
    assert [info.record_count for _, info in cut(prepared, BASE)] == [1, 1, 1]


@pytest.mark.skipif(SPEEDUPS is None, reason="the extension is not built, or left out")
def test_a_small_batch_is_prepared_at_once_as_any_other():
    prepared = prepare_at_once(view(BATCH), 7, limits())
    assert prepared is not None
    assert prepared == prepare(view(BATCH), 7, limits())


def test_other_sets_are_not_prepared_at_once_and_stay_as_they_are():
    many = KAFKA_BATCHES.encode([Record(0, 0, value=bytes(CRC32C_BYTES_MAX))], 0)
    for data in (b"", PLAIN, timed(b"a", 1), BATCH + BATCH, BATCH[:-1], many):
        buffer = view(data)
        assert prepare_at_once(buffer, 7, limits()) is None
        assert bytes(buffer) == data
    assert prepare_at_once(view(BATCH), 7, SetLimits(1000, len(BATCH) - 1, 1000)) is None
