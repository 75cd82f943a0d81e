"""What each protocol's readers see of what is no plain record: bodies that nobody can open, chunks,
markers, delayed messages, gaps, compacted batches and damaged places.
"""

from pathlib import Path

import pytest

from broker.errors import DamagedLog, UnreadableRecord
from conformance.mapping import pulsar_forms
from conformance.mapping.views import SEES
from conformance.mapping.writers import WRITERS
from conformance.raw.pulsar import encode
from storage.codecs import pulsar
from storage.codecs.api import BatchFlag, BodyFormat, BodyInfo
from storage.codecs.record import Record
from storage.codecs.registry import codec_for
from storage.metadata.names import parse_topic
from tests.broker.records import append_unreadable
from tests.conformance.mapping.doors import Doors, sendable

ENCRYPTION_KEYS, MARKER_TYPE = 13, 20
CHUNK_COUNT, CHUNK_TOTAL, CHUNK_ID, UUID = 27, 28, 29, 26
PUBLISHED_MS, DUE_MS = 1_700_000_000_000, 4_000_000_000_000
PLACE = {"pulsar": "entryId"}
VALUE = {"pulsar": "payload", "iggy": "payload", "iggy-typed": "payload"}
FOREIGN = [name for name in SEES if name != "pulsar"]
UNKNOWN_COMPRESSION = 99


@pytest.fixture
async def doors(broker):
    return Doors(broker, await broker.topics.create(parse_topic("t"), 1))


def entry(value, *fields):
    """A SEND's metadata and payload."""
    own = [(pulsar_forms.PRODUCER, b"p"), (pulsar_forms.SEQUENCE, 1)]
    head = encode([*own, (pulsar_forms.PUBLISH, PUBLISHED_MS), *fields])
    return len(head).to_bytes(4, "big") + head + value


async def store(doors, *entries):
    """Each as it comes from a Pulsar client; the offset of the first."""
    first = doors.partition.next_offset
    for one in entries:
        info = pulsar.parse_send(memoryview(one))
        body = pulsar.ENTRY_PREFIX.pack(len(one), 0, info.record_count) + one
        doors.partition.append(
            [body],
            BodyInfo(info.record_count, info.publish_us, info.publish_us, info.flags),
            body_format=BodyFormat.PULSAR,
            append_us=doors.broker.now_us(),
        )
    await doors.broker.durability.settled()
    return first


async def values(doors, reader, offset=0):
    """(Offset, value) of all that the reader is given."""
    place, value = PLACE.get(reader, "offset"), VALUE.get(reader, "value")
    return [(one[place], one[value]) for one in await doors.read(reader, offset)]


def closed():
    """Entries that hold something that the broker cannot open."""
    single = encode([(pulsar_forms.PAYLOAD_SIZE, 20)])
    message = len(single).to_bytes(4, "big") + single + b"v" * 20
    compression, size = pulsar_forms.COMPRESSION, pulsar_forms.UNPACKED_SIZE
    return {
        "encrypted": entry(b"secret", (ENCRYPTION_KEYS, encode([(1, b"k"), (2, b"v")]))),
        "unknown compression": entry(b"packed", (compression, UNKNOWN_COMPRESSION), (size, 5)),
        "does not unpack": entry(b"no zlib", (compression, pulsar_forms.ZLIB), (size, 5)),
        "fewer than it says": entry(message * 2, (pulsar_forms.COUNT, 3)),
    }


@pytest.mark.parametrize("what", closed())
@pytest.mark.parametrize("reader", FOREIGN)
async def test_what_cannot_be_opened_is_an_error_at_its_place_and_never_skipped(
    doors, what, reader
):
    await doors.write("kafka-0", [Record(0, 0, value=b"before")])
    place = await store(doors, closed()[what])
    after, _ = await doors.write("kafka-0", [Record(0, 0, value=b"after")])
    assert after == place + (3 if what == "fewer than it says" else 1)
    with pytest.raises(UnreadableRecord, match=f"offset {place} "):
        await doors.read(reader, place)
    found, offset = await getattr(doors, "_read_" + reader.replace("-", "_"))(0)
    assert [one[VALUE.get(reader, "value")] for one in found] == [b"before"]
    assert offset == place
    assert await values(doors, reader, after) == [(after, b"after")]


@pytest.mark.parametrize("what", closed())
async def test_pulsars_own_readers_are_handed_what_cannot_be_opened(doors, what):
    await store(doors, closed()[what])
    assert await doors.entries(0) == [closed()[what]]


@pytest.mark.parametrize("reader", [name for name in SEES if name != "kafka-0"])
async def test_a_kafka_set_that_does_not_open_is_an_error_to_all_others(doors, reader):
    await append_unreadable(doors.broker, doors.partition)
    with pytest.raises(UnreadableRecord):
        await doors.read(reader, 0)


async def set_topic(doors, **settings):
    await doors.broker.topics.alter_settings(doors.topic.name, settings)


@pytest.mark.parametrize("what", closed())
@pytest.mark.parametrize("reader", FOREIGN)
async def test_where_the_topic_says_skip_it_is_passed_with_all_its_offsets(doors, what, reader):
    await doors.write("kafka-0", [Record(0, 0, value=b"before")])
    place = await store(doors, closed()[what])
    after, _ = await doors.write("kafka-0", [Record(0, 0, value=b"after")])
    with pytest.raises(UnreadableRecord):
        await doors.read(reader, place)  # The place is remembered: the setting takes it back.
    await set_topic(doors, unreadable_records="skip")
    assert await values(doors, reader) == [(0, b"before"), (after, b"after")]
    assert await values(doors, reader, place) == [(after, b"after")]
    await set_topic(doors, unreadable_records=None)
    with pytest.raises(UnreadableRecord):
        await doors.read(reader, place)


@pytest.mark.parametrize("what", closed())
@pytest.mark.parametrize("reader", FOREIGN)
async def test_where_the_topic_says_raw_the_entry_is_handed_over_as_it_was_sent(
    doors, what, reader
):
    await set_topic(doors, unreadable_records="raw")
    await doors.write("kafka-0", [Record(0, 0, value=b"before")])
    place = await store(doors, closed()[what])
    after, _ = await doors.write("kafka-0", [Record(0, 0, value=b"after")])
    found = [(0, b"before"), (place, closed()[what]), (after, b"after")]
    assert await values(doors, reader) == found
    assert await values(doors, reader, place) == found[1:]
    if reader == "kafka-0":
        return  # It has no headers.
    _, shown, _ = await doors.read(reader, 0)
    assert b"braidlog.raw" in flat(shown)
    assert b"pulsar" in flat(shown)


@pytest.mark.parametrize("reader", FOREIGN)
async def test_several_closed_entries_in_one_batch_are_settled_one_by_one(doors, reader):
    entries = [closed()["encrypted"], entry(b"open"), closed()["unknown compression"]]
    body = b"".join(pulsar.ENTRY_PREFIX.pack(len(e), at, 1) + e for at, e in enumerate(entries))
    doors.partition.append([body], BodyInfo(3), body_format=BodyFormat.PULSAR, append_us=1)
    await doors.broker.durability.settled()
    await set_topic(doors, unreadable_records="skip")
    assert await values(doors, reader) == [(1, b"open")]
    await set_topic(doors, unreadable_records="raw")
    raw = [(0, entries[0]), (1, b"open"), (2, entries[2])]
    assert await values(doors, reader) == raw


@pytest.mark.parametrize("reader", [name for name in SEES if name != "kafka-0"])
async def test_a_kafka_set_that_does_not_open_is_skipped_or_raw_for_all_others(doors, reader):
    place = await append_unreadable(doors.broker, doors.partition)
    after, _ = await doors.write("rest", [Record(0, 0, value=b"after")])
    await set_topic(doors, unreadable_records="skip")
    assert await values(doors, reader) == [(after, b"after")]
    await set_topic(doors, unreadable_records="raw")
    (stored, *_) = await doors.partition.read(place, 1)
    assert await values(doors, reader) == [(place, bytes(stored.body)), (after, b"after")]


@pytest.mark.parametrize("reader", SEES)
async def test_a_format_that_no_codec_knows_is_skipped_or_raw_as_a_whole(doors, reader):
    doors.partition.append([b"what it holds"], BodyInfo(3), body_format=99, append_us=1)
    await doors.write("rest", [Record(0, 0, value=b"after")])
    with pytest.raises(UnreadableRecord):
        await doors.read(reader, 0)
    await set_topic(doors, unreadable_records="skip")
    assert await values(doors, reader) == [(3, b"after")]
    await set_topic(doors, unreadable_records="raw")
    assert await values(doors, reader) == [(0, b"what it holds"), (3, b"after")]


@pytest.mark.parametrize("policy", ["skip", "raw"])
@pytest.mark.parametrize("reader", FOREIGN)
async def test_no_setting_passes_over_damage_on_the_disk(doors, reader, policy):
    await set_topic(doors, unreadable_records=policy)
    await doors.write("kafka-1", [Record(0, 0, value=b"d" * 600)])
    damage(doors.partition)
    with pytest.raises(DamagedLog):
        await doors.read(reader, 0)


IGGYS = {"iggy": [b"", None], "iggy-typed": [None]}


@pytest.mark.parametrize("form", ["kafka-0", "kafka-2", "pulsar", "rest"])
@pytest.mark.parametrize("reader", IGGYS)
async def test_where_the_topic_says_mark_a_mark_stands_for_what_iggy_cannot_have(
    doors, form, reader
):
    await set_topic(doors, uncarried_records="mark")
    given = [b"first", *IGGYS[reader], b"last"]
    await doors.write(form, [Record(0, 0, key=b"k", value=value) for value in given])
    shown = await doors.read(reader, 0)
    assert [(one["offset"], one["payload"]) for one in shown] == [
        (at, b"\0" if value in IGGYS[reader] else value) for at, value in enumerate(given)
    ]
    for value, one in zip(given, shown, strict=True):
        marks = [text for name, _, text in one["headers"] if name == b"braidlog.value"]
        said = [b"absent" if value is None else b"empty"] if value in IGGYS[reader] else []
        assert marks == said


@pytest.mark.parametrize("reader", [name for name in SEES if not name.startswith("iggy")])
async def test_a_mark_is_for_those_alone_who_cannot_be_given_the_record(doors, reader):
    await set_topic(doors, uncarried_records="mark")
    await doors.write("kafka-2", [Record(0, 0, value=None), Record(0, 0, value=b"")])
    assert b"braidlog.value" not in flat(await doors.read(reader, 0))


def flat(shown):
    """All bytes in what a reader was shown."""
    return repr(shown).encode()


def chunks(*numbers):
    """Pieces of a message of three."""
    return [
        entry(b"%d" % at, (UUID, b"u"), (CHUNK_COUNT, 3), (CHUNK_TOTAL, 3), (CHUNK_ID, at))
        for at in numbers
    ]


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_chunked_message_is_one_at_its_last_chunk(doors, reader):
    await store(doors, *chunks(0, 1))
    await doors.write("iggy", [Record(0, 0, value=b"between")])
    await store(doors, *chunks(2))
    assert await values(doors, reader) == [(2, b"between"), (3, b"012")]
    assert await values(doors, reader, 3) == [(3, b"012")]


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_chunked_message_too_large_to_be_joined_is_settled_at_its_last_piece(doors, reader):
    pieces = [
        entry(b"%d" % at, (UUID, b"u"), (CHUNK_COUNT, 2), (CHUNK_TOTAL, 1 << 30), (CHUNK_ID, at))
        for at in range(2)
    ]
    await store(doors, *pieces)
    await doors.write("rest", [Record(0, 0, value=b"next")])
    with pytest.raises(UnreadableRecord):
        await doors.read(reader, 0)
    await set_topic(doors, unreadable_records="skip")
    assert await values(doors, reader) == [(2, b"next")]
    await set_topic(doors, unreadable_records="raw")
    assert await values(doors, reader) == [(1, pieces[1]), (2, b"next")]


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_chunked_message_without_its_beginning_is_passed(doors, reader):
    await store(doors, *chunks(1, 2))
    await doors.write("rest", [Record(0, 0, value=b"next")])
    assert await values(doors, reader) == [(2, b"next")]


async def test_pulsars_own_readers_are_handed_every_chunk(doors):
    await store(doors, *chunks(0, 1, 2))
    assert await doors.entries(0) == chunks(0, 1, 2)


@pytest.mark.parametrize("reader", SEES)
async def test_markers_are_for_nobody_and_keep_their_offsets(doors, reader):
    await store(doors, entry(b"", (MARKER_TYPE, 1)))
    await doors.write("kafka-2", [Record(0, 0, value=b"next")])
    assert await values(doors, reader) == [(1, b"next")]


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_delayed_message_is_shown_at_once(doors, reader):
    await store(doors, entry(b"later", (pulsar_forms.DELIVER_AT, DUE_MS)))
    assert await values(doors, reader) == [(0, b"later")]
    if reader == "rest":
        (shown,) = await doors.read(reader, 0)
        assert shown["deliverAt"] == DUE_MS


@pytest.mark.parametrize("reader", SEES)
async def test_gaps_are_walked_over(doors, reader):
    form = "kafka-0" if reader == "pulsar" else "rest"
    await doors.write(form, [Record(0, 0, value=b"before")])
    doors.partition.log.append_gap(10, doors.broker.now_us())
    await doors.write(form, [Record(0, 0, value=b"after")])
    assert await values(doors, reader) == [(0, b"before"), (10, b"after")]


@pytest.mark.parametrize("reader", SEES)
async def test_a_damaged_place_is_an_error_to_everybody_behind_all_before_it(doors, reader):
    await doors.write("kafka-1", [Record(0, 0, value=b"before")])
    place, _ = await doors.write("kafka-1", [Record(0, 0, value=b"d" * 600)])
    damage(doors.partition)
    read = getattr(doors, "_read_" + reader.replace("-", "_"))
    if reader != "pulsar":  # It reads batch by batch.
        found, offset = await read(0)
        assert (len(found), offset) == (1, place)
    with pytest.raises(DamagedLog):
        await read(place)


def damage(partition):
    """Turn one bit of the last stored value."""
    (path,) = sorted(Path(partition.log.folder).glob("*.log"))[-1:]
    data = bytearray(path.read_bytes())
    data[data.rindex(b"d" * 500)] ^= 1
    path.write_bytes(data)


KEPT = (0, 3, 4)


# Pulsar's own readers are handed entries as they are: batched ones whole, with holes marked within.
WHOLE = ("pulsar zlib", "pulsar batch", "pulsar batch zlib")
COMPACTED = [
    (form, reader) for form in WRITERS for reader in SEES if reader != "pulsar" or form not in WHOLE
]


@pytest.mark.parametrize(("form", "reader"), COMPACTED)
async def test_what_compaction_left_is_shown_with_the_offsets_it_had(doors, form, reader):
    await doors.write("rest", [Record(0, 0, value=b"before")])
    first = doors.partition.next_offset
    found = [Record(0, 0, key=b"%d" % at, value=b"v%d" % at) for at in range(5)]
    body_format, made = WRITERS[form](sendable(form, found), first, doors.broker.now_us())
    stored = codec_for(body_format)
    kept = stored.without(made.body, first, lambda offset: offset - first not in KEPT)
    assert kept.record_count == len(KEPT)
    doors.partition.log.append(
        [kept.body],
        BodyInfo(kept.record_count, flags=made.info.flags | BatchFlag.COMPACTED),
        body_format=body_format,
        append_us=doors.broker.now_us(),
        last_offset_delta=4,
    )
    await doors.broker.durability.settled()
    await doors.write("kafka-2", [Record(0, 0, value=b"after")])
    left = [(first + at, b"v%d" % at) for at in KEPT]
    assert await values(doors, reader) == [(0, b"before"), *left, (first + 5, b"after")]
    for start in range(first, first + 5):
        shown = await values(doors, reader, start)
        assert shown[:-1] == [one for one in left if one[0] >= start]
