"""Views of each protocol's readers on special records: bodies that cannot be opened, chunks,
markers, delayed messages, gaps, compacted batches and damaged places.
"""

from pathlib import Path

import pytest

from braidlog.broker.errors import DamagedLog, UnreadableRecord
from braidlog.broker.reading.chunks import piece_offsets
from braidlog.storage.formats.api import BatchFlag, BodyFormat, BodyInfo
from braidlog.storage.formats.pulsar import entry_runs as pulsar
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.gaps import append_gap
from braidlog.storage.metadata.names import parse_topic
from conformance.clients.raw.pulsar import encode
from conformance.mapping import pulsar_forms
from conformance.mapping.writers import WRITERS
from tests.broker.records import append_unreadable
from tests.conformance.mapping.formats import IGGY_READERS, READERS, Formats, sendable, view_of

ENCRYPTION_KEYS, MARKER_TYPE = 13, 20
CHUNK_COUNT, CHUNK_TOTAL, CHUNK_ID, UUID = 27, 28, 29, 26
PUBLISHED_MS, DUE_MS = 1_700_000_000_000, 4_000_000_000_000
PLACE = {"pulsar": "entryId"}
VALUE = {"pulsar": "payload", "iggy": "payload", "iggy-typed": "payload"}
FOREIGN = [name for name in READERS if name != "pulsar"]
UNKNOWN_COMPRESSION = 99


@pytest.fixture
async def formats(broker):
    return Formats(broker, await broker.topics.create(parse_topic("t"), 1))


def entry(value, *fields):
    """Return a SEND's metadata and payload."""
    own = [(pulsar_forms.PRODUCER, b"p"), (pulsar_forms.SEQUENCE, 1)]
    head = encode([*own, (pulsar_forms.PUBLISH, PUBLISHED_MS), *fields])
    return len(head).to_bytes(4, "big") + head + value


async def store(formats, *entries):
    """Store entries as from a Pulsar client; return the first offset."""
    first = formats.partition.next_offset
    for entry in entries:
        info = pulsar.parse_send(memoryview(entry))
        body = pulsar.ENTRY_PREFIX.pack(len(entry), 0, info.record_count) + entry
        formats.partition.append(
            [body],
            BodyInfo(info.record_count, info.publish_us, info.publish_us, info.flags),
            body_format=BodyFormat.PULSAR,
            append_us=formats.broker.now_us(),
        )
    await formats.broker.durability.all_durable()
    return first


async def values(formats, reader, offset=0):
    """Return (offset, value) of all records that the reader sees."""
    place, value = PLACE.get(reader, "offset"), VALUE.get(view_of(reader), "value")
    return [(message[place], message[value]) for message in await formats.read(reader, offset)]


def closed():
    """Return entries with parts that the broker cannot open."""
    single = encode([(pulsar_forms.PAYLOAD_SIZE, 20)])
    message = len(single).to_bytes(4, "big") + single + b"v" * 20
    compression, size = pulsar_forms.COMPRESSION, pulsar_forms.UNPACKED_SIZE
    return {
        "encrypted": entry(b"secret", (ENCRYPTION_KEYS, encode([(1, b"k"), (2, b"v")]))),
        "unknown compression": entry(b"packed", (compression, UNKNOWN_COMPRESSION), (size, 5)),
        "does not unpack": entry(b"no zlib", (compression, pulsar_forms.ZLIB), (size, 5)),
        "fewer than it says": entry(message * 2, (pulsar_forms.COUNT, 3)),
    }


@pytest.mark.parametrize("defect", closed())
@pytest.mark.parametrize("reader", FOREIGN)
async def test_an_unreadable_body_is_an_error_and_never_skipped(formats, defect, reader):
    await formats.write("kafka-0", [Record(0, 0, value=b"before")])
    place = await store(formats, closed()[defect])
    after, _ = await formats.write("kafka-0", [Record(0, 0, value=b"after")])
    assert after == place + (3 if defect == "fewer than it says" else 1)
    with pytest.raises(UnreadableRecord, match=f"offset {place} "):
        await formats.read(reader, place)
    messages, offset = await formats.read_once(reader, 0)
    assert [message[VALUE.get(view_of(reader), "value")] for message in messages] == [b"before"]
    assert offset == place
    assert await values(formats, reader, after) == [(after, b"after")]


@pytest.mark.parametrize("defect", closed())
async def test_pulsar_readers_receive_unreadable_entries(formats, defect):
    await store(formats, closed()[defect])
    assert await formats.entries(0) == [closed()[defect]]


@pytest.mark.parametrize("reader", [name for name in READERS if name != "kafka-0"])
async def test_an_unreadable_kafka_set_is_an_error_for_other_protocols(formats, reader):
    await append_unreadable(formats.broker, formats.partition)
    with pytest.raises(UnreadableRecord):
        await formats.read(reader, 0)


async def set_topic(formats, **settings):
    await formats.broker.topics.alter_settings(formats.topic.name, settings)


@pytest.mark.parametrize("defect", closed())
@pytest.mark.parametrize("reader", FOREIGN)
async def test_skip_passes_all_offsets_of_an_unreadable_body(formats, defect, reader):
    await formats.write("kafka-0", [Record(0, 0, value=b"before")])
    place = await store(formats, closed()[defect])
    after, _ = await formats.write("kafka-0", [Record(0, 0, value=b"after")])
    with pytest.raises(UnreadableRecord):
        # The broker caches the place: the setting must invalidate the cache.
        await formats.read(reader, place)
    await set_topic(formats, unreadable_records="skip")
    assert await values(formats, reader) == [(0, b"before"), (after, b"after")]
    assert await values(formats, reader, place) == [(after, b"after")]
    await set_topic(formats, unreadable_records=None)
    with pytest.raises(UnreadableRecord):
        await formats.read(reader, place)


@pytest.mark.parametrize("defect", closed())
@pytest.mark.parametrize("reader", FOREIGN)
async def test_raw_returns_the_entry_as_sent(formats, defect, reader):
    await set_topic(formats, unreadable_records="raw")
    await formats.write("kafka-0", [Record(0, 0, value=b"before")])
    place = await store(formats, closed()[defect])
    after, _ = await formats.write("kafka-0", [Record(0, 0, value=b"after")])
    messages = [
        (0, b"before"),
        (after - 1, closed()[defect]),
        (after, b"after"),
    ]  # At the last offset.
    for offset in range(place, after):
        assert await values(formats, reader, offset) == messages[1:]
    assert await values(formats, reader) == messages
    if reader == "kafka-0":
        return  # No headers.
    _, shown, _ = await formats.read(reader, 0)
    assert b"braidlog.raw" in flat(shown)
    assert b"pulsar" in flat(shown)


@pytest.mark.parametrize("reader", FOREIGN)
async def test_unreadable_entries_of_a_batch_are_handled_separately(formats, reader):
    entries = [closed()["encrypted"], entry(b"open"), closed()["unknown compression"]]
    body = b"".join(pulsar.ENTRY_PREFIX.pack(len(e), at, 1) + e for at, e in enumerate(entries))
    formats.partition.append([body], BodyInfo(3), body_format=BodyFormat.PULSAR, append_us=1)
    await formats.broker.durability.all_durable()
    await set_topic(formats, unreadable_records="skip")
    assert await values(formats, reader) == [(1, b"open")]
    await set_topic(formats, unreadable_records="raw")
    raw = [(0, entries[0]), (1, b"open"), (2, entries[2])]
    assert await values(formats, reader) == raw


@pytest.mark.parametrize("reader", [name for name in READERS if name != "kafka-0"])
async def test_an_unreadable_kafka_set_is_skipped_or_raw_for_other_protocols(formats, reader):
    place = await append_unreadable(formats.broker, formats.partition)
    after, _ = await formats.write("rest", [Record(0, 0, value=b"after")])
    await set_topic(formats, unreadable_records="skip")
    assert await values(formats, reader) == [(after, b"after")]
    await set_topic(formats, unreadable_records="raw")
    (stored, *_) = await formats.partition.read(place, 1)
    assert await values(formats, reader) == [(after - 1, bytes(stored.body)), (after, b"after")]


@pytest.mark.parametrize("reader", READERS)
async def test_an_unknown_body_format_is_skipped_or_raw_as_a_whole(formats, reader):
    formats.partition.append([b"what it holds"], BodyInfo(3), body_format=99, append_us=1)
    await formats.write("rest", [Record(0, 0, value=b"after")])
    with pytest.raises(UnreadableRecord):
        await formats.read(reader, 0)
    await set_topic(formats, unreadable_records="skip")
    assert await values(formats, reader) == [(3, b"after")]
    await set_topic(formats, unreadable_records="raw")
    assert await values(formats, reader) == [(2, b"what it holds"), (3, b"after")]


@pytest.mark.parametrize("policy", ["skip", "raw"])
@pytest.mark.parametrize("reader", FOREIGN)
async def test_no_setting_skips_damage_on_disk(formats, reader, policy):
    await set_topic(formats, unreadable_records=policy)
    await formats.write("kafka-1", [Record(0, 0, value=b"d" * 600)])
    damage(formats.partition)
    with pytest.raises(DamagedLog):
        await formats.read(reader, 0)


IGGYS = {"iggy": [b"", None], "iggy-typed": [None]}


@pytest.mark.parametrize("form", ["kafka-0", "kafka-2", "pulsar", "rest"])
@pytest.mark.parametrize("reader", IGGY_READERS)
async def test_mark_replaces_a_record_that_iggy_cannot_receive(formats, form, reader):
    await set_topic(formats, uncarried_records="mark")
    uncarried = IGGYS[view_of(reader)]
    values_sent = [b"first", *uncarried, b"last"]
    await formats.write(form, [Record(0, 0, key=b"k", value=value) for value in values_sent])
    shown = await formats.read(reader, 0)
    assert [(message["offset"], message["payload"]) for message in shown] == [
        (at, b"\0" if value in uncarried else value) for at, value in enumerate(values_sent)
    ]
    for value, message in zip(values_sent, shown, strict=True):
        marks = [text for name, _, text in message["headers"] if name == b"braidlog.value"]
        expected = [b"absent" if value is None else b"empty"] if value in uncarried else []
        assert marks == expected


@pytest.mark.parametrize("reader", [name for name in READERS if not name.startswith("iggy")])
async def test_a_mark_is_only_for_readers_that_cannot_receive_the_record(formats, reader):
    await set_topic(formats, uncarried_records="mark")
    await formats.write("kafka-2", [Record(0, 0, value=None), Record(0, 0, value=b"")])
    assert b"braidlog.value" not in flat(await formats.read(reader, 0))


def flat(shown):
    """Return all bytes of a reader's view."""
    return repr(shown).encode()


def chunks(*numbers):
    """Return pieces of a message of three chunks."""
    return [
        entry(b"%d" % at, (UUID, b"u"), (CHUNK_COUNT, 3), (CHUNK_TOTAL, 3), (CHUNK_ID, at))
        for at in numbers
    ]


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_chunked_message_appears_at_its_last_chunk(formats, reader):
    await store(formats, *chunks(0, 1))
    await formats.write("iggy", [Record(0, 0, value=b"between")])
    await store(formats, *chunks(2))
    assert await values(formats, reader) == [(2, b"between"), (3, b"012")]
    assert await values(formats, reader, 3) == [(3, b"012")]


async def test_the_last_chunk_points_to_the_other_chunks(formats):
    await store(formats, *chunks(0, 1))
    await formats.write("iggy", [Record(0, 0, value=b"between")])
    await store(formats, *chunks(2))
    assert await piece_offsets(formats.partition, 3) == [0, 1]
    assert await piece_offsets(formats.partition, 1) == []


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_chunked_message_too_large_to_join_is_handled_at_its_last_chunk(formats, reader):
    pieces = [
        entry(b"%d" % at, (UUID, b"u"), (CHUNK_COUNT, 2), (CHUNK_TOTAL, 1 << 30), (CHUNK_ID, at))
        for at in range(2)
    ]
    await store(formats, *pieces)
    await formats.write("rest", [Record(0, 0, value=b"next")])
    with pytest.raises(UnreadableRecord):
        await formats.read(reader, 0)
    await set_topic(formats, unreadable_records="skip")
    assert await values(formats, reader) == [(2, b"next")]
    await set_topic(formats, unreadable_records="raw")
    assert await values(formats, reader) == [(1, pieces[1]), (2, b"next")]


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_chunked_message_without_its_first_chunk_is_skipped(formats, reader):
    await store(formats, *chunks(1, 2))
    await formats.write("rest", [Record(0, 0, value=b"next")])
    assert await values(formats, reader) == [(2, b"next")]


async def test_pulsar_readers_receive_every_chunk(formats):
    await store(formats, *chunks(0, 1, 2))
    assert await formats.entries(0) == chunks(0, 1, 2)


@pytest.mark.parametrize("reader", READERS)
async def test_markers_reach_no_reader_and_keep_their_offsets(formats, reader):
    await store(formats, entry(b"", (MARKER_TYPE, 1)))
    await formats.write("kafka-2", [Record(0, 0, value=b"next")])
    assert await values(formats, reader) == [(1, b"next")]


@pytest.mark.parametrize("reader", FOREIGN)
async def test_a_delayed_message_is_visible_at_once(formats, reader):
    await store(formats, entry(b"later", (pulsar_forms.DELIVER_AT, DUE_MS)))
    assert await values(formats, reader) == [(0, b"later")]
    if reader == "rest":
        (shown,) = await formats.read(reader, 0)
        assert shown["deliverAt"] == DUE_MS


@pytest.mark.parametrize("reader", READERS)
async def test_gaps_are_skipped(formats, reader):
    form = "kafka-0" if reader == "pulsar" else "rest"
    await formats.write(form, [Record(0, 0, value=b"before")])
    append_gap(formats.partition.log, 10, formats.broker.now_us())
    await formats.write(form, [Record(0, 0, value=b"after")])
    assert await values(formats, reader) == [(0, b"before"), (10, b"after")]


@pytest.mark.parametrize("reader", READERS)
async def test_a_damaged_place_is_an_error_after_all_records_before(formats, reader):
    await formats.write("kafka-1", [Record(0, 0, value=b"before")])
    place, _ = await formats.write("kafka-1", [Record(0, 0, value=b"d" * 600)])
    damage(formats.partition)
    if reader != "pulsar":  # Pulsar reads batch by batch.
        messages, offset = await formats.read_once(reader, 0)
        assert (len(messages), offset) == (1, place)
    with pytest.raises(DamagedLog):
        await formats.read_once(reader, place)


def damage(partition):
    """Flip a bit of the last stored value."""
    (path,) = sorted(Path(partition.log.folder).glob("*.log"))[-1:]
    data = bytearray(path.read_bytes())
    data[data.rindex(b"d" * 500)] ^= 1
    path.write_bytes(data)


KEPT = (0, 3, 4)


# Pulsar's own readers receive stored entries: batched entries whole, with holes marked inside.
WHOLE = ("pulsar zlib", "pulsar batch", "pulsar batch zlib")
COMPACTED = [
    (form, reader)
    for form in WRITERS
    for reader in READERS
    if reader != "pulsar" or form not in WHOLE
]


@pytest.mark.parametrize(("form", "reader"), COMPACTED)
async def test_compacted_records_keep_their_offsets(formats, form, reader):
    await formats.write("rest", [Record(0, 0, value=b"before")])
    first = formats.partition.next_offset
    records = [Record(0, 0, key=b"%d" % at, value=b"v%d" % at) for at in range(5)]
    prepared = WRITERS[form](sendable(form, records), first, formats.broker.now_us())
    stored = codec_for(prepared.body_format)
    rest = stored.without(prepared.body, first, lambda offset: offset - first not in KEPT)
    assert rest.record_count == len(KEPT)
    formats.partition.log.append(
        [rest.body],
        BodyInfo(rest.record_count, flags=prepared.info.flags | BatchFlag.COMPACTED),
        body_format=prepared.body_format,
        append_us=formats.broker.now_us(),
        last_offset_delta=4,
    )
    await formats.broker.durability.all_durable()
    await formats.write("kafka-2", [Record(0, 0, value=b"after")])
    left = [(first + at, b"v%d" % at) for at in KEPT]
    assert await values(formats, reader) == [(0, b"before"), *left, (first + 5, b"after")]
    for start in range(first, first + 5):
        shown = await values(formats, reader, start)
        assert shown[:-1] == [pair for pair in left if pair[0] >= start]
