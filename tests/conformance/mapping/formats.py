"""Writers and readers of every format: hand-made bytes around the broker's own code.

A writer takes the records of its clients, stores them as the broker does on arrival, and returns
the base offset. A reader returns its clients' view from an offset on.
"""

import base64
import json
from dataclasses import dataclass

import msgspec

from braidlog.broker.delivery.entry_reads import read_entries
from braidlog.broker.reading.records import read_records
from braidlog.broker.reading.transcode import read_as
from braidlog.protocols.http.pip64.messages import ProduceRequest, ShownMessage
from braidlog.protocols.http.pip64.produce import Producing
from braidlog.protocols.http.pip64.showing import Shower, ShowOptions
from braidlog.protocols.http.values.resolving import SchemaRegistry
from braidlog.protocols.iggy import forms
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from conformance.mapping import iggy_forms, kafka_forms, pulsar_forms
from conformance.mapping.views import SEES, US_PER_MS
from conformance.mapping.writers import WRITERS
from tests.conformance.mapping import awkward

READ_BYTES = 1 << 20
# Poll forms of Iggy's dialects, and their parsers.
IGGY_READERS = {
    "iggy": (forms.OLDEST_FORM, iggy_forms.read_classic),
    "iggy-typed 0.7": (forms.CRC_FORM, iggy_forms.read_untyped_crc),
    "iggy-typed 0.8": (forms.XXH_FORM, iggy_forms.read_untyped),
    "iggy-typed 0.9": (forms.TYPED_FORM, iggy_forms.read_typed),
    "iggy-typed 0.11": (forms.BATCH_FORM, iggy_forms.read_batches),
    "iggy-typed 0.12": (forms.PRODUCER_BATCH_FORM, iggy_forms.read_batches),
}
READERS = (*(name for name in SEES if not name.startswith("iggy")), *IGGY_READERS)


@dataclass(frozen=True)
class Limits:
    """Limits of a read; Pulsar's reads have no limit of records."""

    bytes_max: int = READ_BYTES
    records_max: int | None = None


NO_LIMITS = Limits()


class Formats:
    """A topic with a single partition, and its readers and writers."""

    def __init__(self, broker, topic):
        self.broker = broker
        self.topic = topic
        (self.partition,) = topic.partitions
        registry = SchemaRegistry(broker)
        self._producing = Producing(broker, registry)
        self._shower = Shower(registry, topic, ShowOptions(encoding="base64"))

    async def write(self, form, records):
        """Store the records by the writer of that form; return (base offset, append time)."""
        partition = self.partition
        base_offset, now_us = partition.next_offset, self.broker.now_us()
        if form == "rest":
            await self._produce(records)
        else:
            prepared = WRITERS[form](records, base_offset, now_us)
            partition.append(
                [prepared.body],
                prepared.info,
                body_format=prepared.body_format,
                append_us=now_us,
            )
            await self.broker.durability.all_durable()
        (first, *_) = await partition.read(base_offset, 1)
        return base_offset, first.header.append_us

    async def _produce(self, records):
        text = json.dumps(
            {"schema_type": "BYTES", "messages": [_message(record) for record in records]}
        )
        request = msgspec.json.decode(text, type=ProduceRequest)
        produced = await self._producing.produce(self.topic, request, body_bytes=len(text))
        placed = produced.placed
        assert [place.error for place in placed] == [None] * len(records)

    async def read(self, reader, offset, limits=NO_LIMITS):
        """Return the view of the reader's clients from an offset to the end, by reads with these
        limits.
        """
        messages, end = [], self.partition.high_watermark
        while offset < end:
            more, next_offset = await self.read_once(reader, offset, limits)
            assert next_offset > offset
            messages, offset = messages + more, next_offset
        return messages

    async def read_once(self, reader, offset, limits=NO_LIMITS):
        """Return the records of a single read, and the offset at which the next read begins."""
        if reader in IGGY_READERS:
            form, parse = IGGY_READERS[reader]
            return await self._transcoded(form.codec, parse, offset, limits, form.shown)
        read = getattr(self, "_read_" + reader.replace("-", "_"))
        return await read(offset, limits)

    async def _read_kafka_0(self, offset, limits):
        return await self._transcoded(KAFKA, kafka_forms.read_0, offset, limits)

    async def _read_kafka_2(self, offset, limits):
        return await self._transcoded(KAFKA_BATCHES, kafka_forms.read_2, offset, limits)

    async def _transcoded(self, codec, parse, offset, limits, show=None):
        result = await read_as(
            self.partition,
            codec,
            offset,
            bytes_max=limits.bytes_max,
            records_max=limits.records_max,
        )
        parts = result.parts
        if show is not None:
            views = (memoryview(part) for part in parts)
            parts = [part for view in views for part in show(view, self.partition.index)]
        seen = [message for part in parts for message in parse(bytes(part))]
        return [message for message in seen if message["offset"] >= offset], result.next_offset

    async def _read_pulsar(self, offset, limits):
        read = await read_entries(self.partition, offset, limits.bytes_max)
        entries = [
            pulsar_forms.read_entry(entry.offset, bytes(entry.body)) for entry in read.entries
        ]
        return entries, read.next_offset

    async def all_entries(self, limits):
        """Return (entry id, bytes) of all entries, by reads with these limits."""
        sizes, offset = [], 0
        while offset < self.partition.high_watermark:
            read = await read_entries(self.partition, offset, limits.bytes_max)
            sizes += [(entry.offset, len(entry.body)) for entry in read.entries]
            offset = read.next_offset
        return sizes

    async def entries(self, offset):
        """Return the bytes of the entries from an offset on, as for a Pulsar consumer."""
        read = await read_entries(self.partition, offset, READ_BYTES)
        return [bytes(entry.body) for entry in read.entries]

    async def _read_rest(self, offset, limits):
        read = await read_records(
            self.partition,
            offset,
            bytes_max=limits.bytes_max,
            records_max=limits.records_max or 10_000,
        )
        shown = await self._shower.show(self.partition, read.records, with_offset=True)
        return [_shown(message) for message in shown], read.next_offset


FORMS = (*WRITERS, "rest")


def view_of(form):
    """Return the name of a writer's or reader's rules."""
    return form.partition(" ")[0]


def sendable(form, records):
    """Return the records as that writer's clients can send them."""
    writer = view_of(form)
    if form in ("iggy-typed 0.11", "iggy-typed 0.12"):
        return awkward.for_batch_form(awkward.for_iggy(records, empty_payloads=True))
    if writer.startswith("iggy"):
        return awkward.for_iggy(records)
    if writer == "pulsar":
        records = awkward.for_pulsar(records)
        return awkward.for_pulsar_batch(records) if "batch" in form else records
    return awkward.for_rest(records) if form == "rest" else records


def _message(record):
    message = {"properties": {h.name.decode(): h.value.decode() for h in record.headers}}
    if record.value is not None:
        message |= {"value": base64.b64encode(record.value).decode(), "encoding": "base64"}
    if record.key is not None:
        message |= {"key": base64.b64encode(record.key).decode(), "key_encoding": "base64"}
    for name, time_us in (("eventTime", record.event_us), ("deliverAt", record.deliver_at_us)):
        if time_us is not None:
            message[name] = time_us // US_PER_MS
    if record.sequence_id is not None:
        message["sequenceId"] = record.sequence_id
    return message


def _shown(shown: ShownMessage):
    fields = msgspec.to_builtins(shown)
    headers = fields.get("headers")
    name, ordering_key = fields.get("producerName"), fields.get("orderingKey")
    return {
        "offset": fields["offset"],
        "key": _bytes(fields.get("key"), fields.get("key_encoding")),
        "value": _bytes(fields.get("value"), fields.get("encoding")),
        "properties": fields["properties"],
        "headers": headers
        and [
            (_bytes(h["name"], h.get("name_encoding")), _bytes(h["value"], h.get("encoding")))
            for h in headers
        ],
        "publishTime": fields["publishTime"],
        "eventTime": fields.get("eventTime"),
        "deliverAt": fields.get("deliverAt"),
        "sequenceId": fields.get("sequenceId"),
        "producerName": None if name is None else name.encode(),
        "orderingKey": None if ordering_key is None else ordering_key.encode(),
    }


def _bytes(text, encoding):
    if text is None:
        return None
    return base64.b64decode(text) if encoding == "base64" else text.encode()
