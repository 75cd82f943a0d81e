"""Bodies of every format after the removal of records: the other records are unchanged."""

import random

import pytest

from braidlog.storage.formats import compression
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.set_prepare import packed
from braidlog.storage.formats.pulsar.entry_runs import PULSAR, entries, parse_send
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from tests.storage.formats import entries_of
from tests.storage.formats.kafka.test_record_batches import PACK, batch

BASE = 100
COUNT = 9


def records() -> list[Record]:
    times = {"publish_us": 5_000_000, "key": b"k"}
    return [Record(BASE + n, 7, value=b"v%d" % n, **times) for n in range(COUNT)]


def plain(name: str) -> tuple[Codec, bytes]:
    codec = codec_named(name)
    return codec, codec.encode(records(), BASE)


def kafka_wrapped(number: int) -> tuple[Codec, bytes]:
    """Return plain messages around a compressed set."""
    codec = codec_named("kafka")
    all_records = records()
    middle = packed(codec.encode(all_records[2:7], BASE), number, BASE + 6)
    return codec, codec.encode(all_records[:2], BASE) + middle + codec.encode(all_records[7:], BASE)


def batches_packed(number: int) -> tuple[Codec, bytes]:
    def packed_again(members: list[Record]) -> bytes:
        inner = PACK[number](KAFKA_BATCHES.encode(members, BASE)[61:])
        head = {"base_ms": 5000, "max_ms": 5000}
        changed = bytearray(batch(inner, len(members), attributes=number, **head))
        changed[:8] = members[0].offset.to_bytes(8, "big")
        return bytes(changed)

    return KAFKA_BATCHES, packed_again(records()[:4]) + packed_again(records()[4:])


def pulsar_batched(number: int) -> tuple[Codec, bytes]:
    """Return an unbatched entry, a batch of 7, and an unbatched entry."""
    inner = b"".join(
        entries_of.single(b"v%d" % n, partition_key="k", sequence_id=n) for n in range(1, 8)
    )
    about = {"num_messages_in_batch": 7}
    if number:
        about |= {"compression": number, "uncompressed_size": len(inner)}
        inner = compression.compress_block(("", "lz4", "zlib", "zstd", "snappy")[number], inner)
    first = (entries_of.entry(entries_of.metadata(partition_key="k"), b"v0"), 1)
    last = (entries_of.entry(entries_of.metadata(partition_key="k"), b"v8"), 1)
    return PULSAR, entries_of.body(
        first, (entries_of.entry(entries_of.metadata(**about), inner), 7), last
    )


MAKERS = {
    **{name: (plain, name) for name in ("plain", "kafka", "kafka_batches", "pulsar")},
    **{name: (plain, name) for name in ("iggy", "iggy_typed")},
    **{f"kafka-{n}": (kafka_wrapped, n) for n in (1, 2, 3)},
    **{f"kafka_batches-{n}": (batches_packed, n) for n in (1, 2, 3, 4)},
    **{f"pulsar-{n}": (pulsar_batched, n) for n in range(5)},
}


@pytest.mark.parametrize("name", MAKERS)
def test_remaining_records_are_unchanged_and_at_their_offsets(name: str) -> None:
    make, argument = MAKERS[name]
    codec, body = make(argument)  # type: ignore[operator]
    before = codec.decode(body, BASE, 7)
    assert before.failed is None
    assert [r.value for r in before.records] == [b"v%d" % n for n in range(COUNT)]
    for seed in range(30):
        chosen = random.Random(seed)
        gone = {BASE + n for n in range(COUNT) if chosen.random() < chosen.choice((0.2, 0.8))}
        left = codec.without(body, BASE, gone.__contains__)  # type: ignore[attr-defined]
        after = codec.decode(left.body, BASE, 7)
        assert after.failed is None, seed
        wanted = [r for r in before.records if r.offset not in gone]
        assert after.records == wanted, seed
        assert left.record_count == len(wanted)
        if wanted:
            assert after.next_offset == left.end_offset > wanted[-1].offset


@pytest.mark.parametrize("name", MAKERS)
def test_removing_nothing_changes_nothing_and_removing_all_leaves_nothing(
    name: str,
) -> None:
    make, argument = MAKERS[name]
    codec, body = make(argument)  # type: ignore[operator]
    whole = codec.without(body, BASE, lambda _: False)  # type: ignore[attr-defined]
    assert (whole.body, whole.record_count, whole.end_offset) == (body, COUNT, BASE + COUNT)
    nothing = codec.without(body, BASE, lambda _: True)  # type: ignore[attr-defined]
    assert (nothing.body, nothing.record_count) == (b"", 0)


def test_a_pulsar_batch_keeps_its_id_its_count_and_its_checksum() -> None:
    _, body = pulsar_batched(3)
    left = PULSAR.without(body, BASE, {BASE + 1, BASE + 4}.__contains__)
    (first, middle, last) = PULSAR.split(left.body, BASE)
    assert (first[0], middle[0], last[0]) == (BASE, BASE + 1, BASE + 8)
    ref = entries(left.body, BASE)[1]
    assert ref.record_count == 7
    assert parse_send(left.body[ref.start : ref.end]).record_count == 7
