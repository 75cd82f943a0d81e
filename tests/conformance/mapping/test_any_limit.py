"""Each reader sees every visible record of any writer once, in order, with any limit."""

import random

import pytest

from braidlog.storage.formats.record import Record
from braidlog.storage.metadata.names import parse_topic
from conformance.mapping.views import seen_by
from conformance.mapping.writers import pulsar_entries
from tests.conformance.mapping.awkward import NOW_US
from tests.conformance.mapping.formats import FORMS, READERS, Formats, Limits, sendable, view_of

KIB, MIB = 1 << 10, 1 << 20
ROUNDS = 4
# Kafka's default limit; 5 MiB is that of Pulsar and HTTP.
LARGE = 1_000_000
LARGEST = {"pulsar": 5 * MIB - 10 * KIB, "rest": 3 * MIB, "iggy": 10 * MIB - KIB}
BODY_BYTES = 20 * MIB


def offsets_seen(writer, reader, records):
    """Return the offset of each record that the reader sees, and the size of the value."""
    seen_as = view_of(reader)
    shown = [record for record in records if seen_by(writer, seen_as, record) is not None]
    return [(message.offset, len(message.value)) for message in shown]


def messages_shown(reader, messages):
    if reader == "pulsar":
        return [(message["entryId"], len(message["payload"])) for message in messages]
    return [
        (message["offset"], len(message["payload" if reader[:4] == "iggy" else "value"]))
        for message in messages
    ]


async def write(formats, form, values):
    """Store records; return them as stored."""
    sent = sendable(form, [Record(0, 0, NOW_US, value=value) for value in values])
    base_offset, _ = await formats.write(form, sent)
    return [Record(at, 0, value=record.value) for at, record in enumerate(sent, base_offset)]


async def check(formats, form, records, limits, start=0):
    writer = view_of(form)
    for reader in READERS:
        if writer == reader == "pulsar":
            continue  # Entries hold several messages: see the test below.
        messages = await formats.read(reader, start, limits)
        wanted = offsets_seen(writer, reader, records[start:])
        assert messages_shown(reader, messages) == wanted, f"{reader}, {limits}, from {start}"


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
async def test_each_record_reaches_every_reader_once_and_in_order(broker, form):
    formats = Formats(broker, await broker.topics.create(parse_topic("t"), 1))
    rng = random.Random(form)
    records = []
    for count in (1, 2, 7, 30):
        sizes = [rng.choice((1, 20, 500, 5 * KIB, 40 * KIB)) for _ in range(count)]
        records += await write(formats, form, [rng.randbytes(size) for size in sizes])
    for _ in range(ROUNDS):
        limits = Limits(
            rng.choice((1, 100, 10 * KIB, rng.randrange(1, 500 * KIB), MIB)),
            rng.choice((None, 1, 3, 100)),
        )
        await check(formats, form, records, limits)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["kafka-0 gzip", "kafka-2 gzip", "pulsar batch", "iggy", "rest"])
async def test_the_largest_records_and_bodies_are_read_once_and_in_order(broker, form):
    """Bodies of up to 20 MiB unpacked, records up to the listener's limit."""
    formats = Formats(broker, await broker.topics.create(parse_topic("t"), 1))
    largest = LARGEST.get(view_of(form).removesuffix("-typed"), LARGE)
    is_run = form == "rest" or form.startswith("iggy")
    total = largest if is_run else BODY_BYTES
    records = await write(formats, form, [b"a", bytes(largest - 1), b"b"])
    records += await write(formats, form, [bytes(20 * KIB)] * (total // (20 * KIB) - 1))
    await check(formats, form, records, Limits(3 * MIB))
    await check(formats, form, records, Limits(100), start=len(records) - 2)


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in FORMS if form.startswith("pulsar")])
async def test_pulsar_entries_are_read_once_and_in_order_with_any_limit(broker, form):
    formats = Formats(broker, await broker.topics.create(parse_topic("t"), 1))
    rng = random.Random(form)
    came = []
    for count in (1, 2, 7, 30):
        sizes = [rng.choice((1, 500, 40 * KIB)) for _ in range(count)]
        sent = sendable(form, [Record(0, 0, NOW_US, value=bytes(size)) for size in sizes])
        came += [len(entry) for entry, _ in pulsar_entries(form, sent)]
        await formats.write(form, sent)
    for bytes_max in (1, 10 * KIB, 100 * KIB, MIB):
        entries = await formats.all_entries(Limits(bytes_max))
        assert [offset for offset, _ in entries] == sorted({offset for offset, _ in entries})
        assert [size for _, size in entries] == came
