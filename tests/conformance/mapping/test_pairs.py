"""Every ordered pair of writer and reader follows the written rules, and hidden fields stay in the
log.
"""

import random
import struct

import pytest
from msgspec.structs import replace

from braidlog.storage.formats.iggy.prepare import SentForm, prepare
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.metadata.names import parse_topic
from conformance.mapping import iggy_forms
from conformance.mapping.views import WRITES, seen_by
from conformance.mapping.writers import pulsar_entries
from tests.conformance.mapping import awkward
from tests.conformance.mapping.awkward import NOW_US
from tests.conformance.mapping.formats import (
    FORMS,
    IGGY_READERS,
    READERS,
    Formats,
    sendable,
    view_of,
)

ROUNDS, RECORDS_MAX = 12, 6
HUGE = 1300
NO_TEXT = b"\xff" * 4
TYPED_NAMES = [
    (HeaderKind.UINT32, NO_TEXT),
    (HeaderKind.UINT32, b"\0\0\0\0"),  # This is UTF-8.
    (HeaderKind.STRING, b"a"),
]
TYPED_NAME = struct.Struct("<BI")  # Kind and length of a name or value.


@pytest.mark.parametrize("form", FORMS)
async def test_every_reader_sees_a_writers_records_by_the_rules(broker, form):
    formats = await opened(broker)
    writer = view_of(form)
    for seed in range(ROUNDS):
        rng = random.Random(f"{form} {seed}")
        sent = sendable(form, awkward.records(rng, rng.randrange(1, RECORDS_MAX)))
        base_offset, append_us = await formats.write(form, sent)
        stored = await stored_records(formats.partition, base_offset)
        expected = [
            expected_record(writer, record, now, offset, append_us)
            for offset, (record, now) in enumerate(zip(sent, stored, strict=True), base_offset)
        ]
        assert stored == expected, f"seed {seed}: in the log"
        for reader in READERS:
            if writer == reader == "pulsar":
                continue  # Entries are returned as stored: see the next test.
            wanted = [seen_by(writer, view_of(reader), record) for record in expected]
            seen = await formats.read(reader, base_offset)
            assert seen == [message for message in wanted if message is not None], (
                f"seed {seed}: {reader}"
            )


def expected_record(writer, sent, stored, offset, append_us):
    """Return the record that the rules make from the sent record.

    The broker chooses two fields: the time of an HTTP request, and the id of an Iggy message
    without an id.
    """
    record = WRITES[writer](replace(sent, offset=offset, append_us=append_us))
    if writer == "rest":
        assert append_us - 60_000_000 < stored.publish_us <= append_us
        record.publish_us = stored.publish_us
    if writer.startswith("iggy") and not sent.message_id:
        record.message_id = stored.message_id
    return record


async def stored_records(partition, offset):
    """Return all records from an offset on, as the log holds them."""
    records = []
    for batch in await partition.read(offset, 1 << 24):
        codec = codec_for(batch.header.body_format)
        decoded = codec.decode(batch.body, batch.base_offset, batch.header.append_us)
        assert decoded.failed is None
        records += [replace(record, headers=record.headers or ()) for record in decoded.records]
    return records


@pytest.mark.parametrize("form", [form for form in FORMS if form.startswith("pulsar")])
async def test_pulsar_entries_are_returned_as_stored(broker, form):
    formats = await opened(broker)
    for seed in range(ROUNDS):
        rng = random.Random(f"{form} {seed}")
        sent = sendable(form, awkward.records(rng, rng.randrange(1, RECORDS_MAX)))
        came = [entry for entry, _ in pulsar_entries(form, sent)]
        base_offset, _ = await formats.write(form, sent)
        assert await formats.entries(base_offset) == came, f"seed {seed}"


async def test_a_null_header_value_is_null_for_its_format_and_empty_for_others(broker):
    formats = await opened(broker)
    headers = [Header(b"a", None), Header(b"b", b"")]
    offset, _ = await formats.write("kafka-2", [Record(0, 0, headers=headers)])
    (same,) = await formats.read("kafka-2", offset)
    assert same["headers"] == [(b"a", None), (b"b", b"")]
    (other,) = await formats.read("pulsar", offset)
    assert other["properties"] == [(b"a", b""), (b"b", b"")]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
async def test_a_huge_batch_is_read_whole_and_in_order(broker, form):
    """The batch has more records than any step of decoding, conversion or delivery
    takes at once.
    """
    formats = await opened(broker)
    writer = view_of(form)
    records = [Record(0, 0, NOW_US, value=b"v%d" % number) for number in range(HUGE)]
    base_offset, _ = await formats.write(form, sendable(form, records))
    stored = await stored_records(formats.partition, base_offset)
    assert [(message.offset, message.value) for message in stored] == list(
        enumerate((record.value for record in records), base_offset)
    )
    for reader in READERS:
        if writer == reader == "pulsar":
            continue
        wanted = [seen_by(writer, view_of(reader), record) for record in stored]
        assert await formats.read(reader, base_offset) == wanted, reader
        middle = await formats.read(reader, base_offset + HUGE // 2 + 1)
        assert middle == wanted[HUGE // 2 + 1 :], reader


async def test_header_names_of_other_kinds_than_text_reach_readers_that_can_express_them(broker):
    formats = await opened(broker)
    names = [TYPED_NAME.pack(kind, len(name)) + name for kind, name in TYPED_NAMES]
    headers = b"".join(name + TYPED_NAME.pack(HeaderKind.STRING, 1) + b"v" for name in names)
    sent = iggy_forms.TYPED.pack(0, bytes(16), 0, 0, 0, len(headers), 1, 0) + b"p" + headers
    now_us = formats.broker.now_us()
    prepared = prepare(SentForm.TYPED, memoryview(sent), 1, 0, now_us, None)
    formats.partition.append(
        [prepared.body], prepared.info, body_format=prepared.body_format, append_us=now_us
    )
    await formats.broker.durability.all_durable()
    for reader in IGGY_READERS:
        (message,) = await formats.read(reader, 0)
        if reader in ("iggy-typed 0.7", "iggy-typed 0.8"):
            expected = [b"a"]
        else:
            expected = [name for _, name in TYPED_NAMES if reader != "iggy" or name != NO_TEXT]
        assert [name for name, _, _ in message["headers"]] == expected, reader


async def opened(broker):
    return Formats(broker, await broker.topics.create(parse_topic("t"), 1))
