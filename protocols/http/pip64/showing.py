"""Records as the JSON messages of an answer. Knows records and schemas, no HTTP and no log."""

from __future__ import annotations

import base64
import codecs
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from braidlog.broker.reading.records import PlacedRecord
from braidlog.broker.reading.result import record_bytes
from braidlog.broker.reading.unpacking import run_packing
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.schemas import schema_of
from braidlog.protocols.http.ids import EntryIds, MessageId, write_id
from braidlog.protocols.http.limits import INLINE_SLOW_BYTES, LARGE_RECORD_BYTES, TURN_MESSAGES
from braidlog.protocols.http.pip64.messages import (
    ExactHeader,
    ExactMessage,
    ShownHeader,
    ShownMessage,
    ShownSchema,
)
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.primitives import BadValue, Json
from braidlog.protocols.http.values.values import RecordCodec, ValueCodec, split_pair
from braidlog.storage.formats.headers import header_text
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import format_name

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.values.resolving import SchemaRegistry

VERSION = struct.Struct(">q")  # A record's schema version, as in Pulsar's clients.
US = 1000  # Microseconds in a millisecond.
# Control characters other than blanks and line ends; text may have a few of them.
CONTROLS = bytes(sorted({*range(32), 127} - set(b"\t\n\r")))
CONTROLS_MIN = 16
# A large value becomes text in such pieces: each holds Python's lock for a fraction of a
# millisecond. Base64 needs a multiple of three.
TEXT_PIECE_BYTES = 3 << 16


@dataclass(slots=True, frozen=True)
class ShowOptions:
    """The form in which a reader wants values."""

    encoding: str = "auto"  # Of values without a schema: auto, utf8 or base64.
    int64_as_string: bool = False
    exact: bool = False  # Every stored byte and microsecond, no schema.
    include_format: bool = False  # Name the stored format of each message.
    reader: RecordCodec | None = None  # Used instead of the records' own schemas.


class Shower:
    """Converts records of a topic to messages."""

    def __init__(self, registry: SchemaRegistry, topic: Topic, options: ShowOptions) -> None:
        self.schemas: dict[int, ShownSchema] = {}  # Schemas of the messages so far, by version.
        self.largest_bytes = 0  # Of the records shown so far.
        self._ids: dict[Partition, EntryIds] = {}
        self._registry = registry
        self._topic = topic
        self._options = options

    async def show(
        self, partition: Partition, placed: Sequence[PlacedRecord], *, with_offset: bool
    ) -> list[ShownMessage]:
        """Return a message for each record, in order."""
        largest_bytes = max((record_bytes(record.record) for record in placed), default=0)
        self.largest_bytes = max(self.largest_bytes, largest_bytes)
        if largest_bytes > LARGE_RECORD_BYTES:
            work = partial(self._show_all, partition, placed, with_offset)
            return await run_packing(work, largest_bytes)
        if self._is_slow(placed):
            return await run_in_thread(self._show_all, partition, placed, with_offset)
        shown: list[ShownMessage] = []
        for number, record in enumerate(placed):
            if number % TURN_MESSAGES == TURN_MESSAGES - 1:
                await trio.lowlevel.checkpoint()
            shown.append(self.message(partition, record, with_offset=with_offset))
        return shown

    def take_largest(self) -> int:
        """Return `largest_bytes` of a read, and begin the next one."""
        largest_bytes, self.largest_bytes = self.largest_bytes, 0
        return largest_bytes

    def _show_all(
        self, partition: Partition, placed: Sequence[PlacedRecord], with_offset: bool
    ) -> list[ShownMessage]:
        return [self.message(partition, record, with_offset=with_offset) for record in placed]

    def _is_slow(self, placed: Sequence[PlacedRecord]) -> bool:
        size = 0
        for record in placed if not self._options.exact else ():
            try:
                codec, _ = self._codec(record.record)
            except BadValue:
                continue
            if codec is not None and codec.is_slow:
                size += record_bytes(record.record)
        return size > INLINE_SLOW_BYTES

    def message(
        self, partition: Partition, placed: PlacedRecord, *, with_offset: bool
    ) -> ShownMessage:
        """Return the message of a record."""
        record = placed.record
        ids = self._ids.get(partition)
        if ids is None:
            ids = self._ids[partition] = EntryIds(partition.partition_id, _shown_index(partition))
        place = ids.write(placed.entry, placed.batch_index)
        stored = format_name(placed.body_format) if self._options.include_format else None
        if self._options.exact:
            return _exact(ExactMessage(place, partition.index, format=stored), record)
        shown = ShownMessage(place, partition.index, format=stored)
        if with_offset:
            shown.offset = record.offset
        published_us = record.append_us if record.publish_us is None else record.publish_us
        shown.publishTime = published_us // US
        if record.event_us is not None:
            shown.eventTime = record.event_us // US
        if record.deliver_at_us is not None:
            shown.deliverAt = record.deliver_at_us // US
        shown.sequenceId = record.sequence_id
        shown.producerName = _text_or_none(record.producer_name)
        shown.orderingKey = _text_or_none(record.ordering_key)
        self._show_headers(shown, record.headers)
        self._show_contents(shown, record)
        return shown

    def _codec(self, record: Record) -> tuple[RecordCodec | None, int | None]:
        """Return the codec for a record, and the record's own schema version. Raises BadValue."""
        version = None
        if record.schema_version is not None and len(record.schema_version) == VERSION.size:
            version = VERSION.unpack(record.schema_version)[0]
        if self._options.reader is not None:
            return self._options.reader, version
        if version is None:
            return None, None
        return self._registry.codec(self._topic, version), version

    def _show_contents(self, shown: ShownMessage, record: Record) -> None:
        try:
            codec, version = self._codec(record)
        except BadValue as error:
            shown.decode_error = str(error)
            codec, version = None, None
        if version is not None and schema_of(self._topic.meta.schemas, version) is not None:
            shown.schema_version = version
            self._note_schema(version)
        key, value = record.key, record.value
        if codec is not None and codec.is_inline and value is not None:
            try:
                key, value = split_pair(value)
            except BadValue as error:
                shown.decode_error, codec = str(error), None
        is_text = codec is None or codec.type == types.NONE
        self._show_value(shown, None if is_text or codec is None else codec.value, value)
        self._show_key(shown, codec.key if codec is not None and codec.is_pair else None, key)

    def _show_value(
        self, shown: ShownMessage, codec: ValueCodec | None, value: bytes | None
    ) -> None:
        if value is None:
            shown.value = None
            return
        if codec is not None:
            try:
                shown.value = self._json(codec.read(value), value)
                return
            except BadValue as error:
                shown.decode_error = str(error)
        if codec is not None or shown.decode_error is not None:
            shown.value, shown.encoding = _base64(value), "base64"
        else:
            shown.value, shown.encoding = _as_text(value, self._options.encoding)

    def _show_key(self, shown: ShownMessage, codec: ValueCodec | None, key: bytes | None) -> None:
        if key is None:
            return
        if codec is not None:
            try:
                shown.key = self._json(codec.read(key), key)
                return
            except BadValue as error:
                shown.decode_error = shown.decode_error or f"key: {error}"
        text, encoding = _as_text(key, "auto" if codec is None else "base64")
        shown.key, shown.key_encoding = text, None if encoding == "utf8" else encoding

    def _json(self, value: Json, data: bytes) -> Json:
        """Return a 64-bit number as text if the reader wants that: JavaScript would lose the last
        digits.
        """
        is_long = type(value) is int and len(data) == 8
        return str(value) if is_long and self._options.int64_as_string else value

    def _show_headers(self, shown: ShownMessage, headers: Sequence[Header]) -> None:
        """Show properties as a map of texts; if a map cannot hold all, add every header in
        order.
        """
        properties: dict[str, str] = {}
        is_whole = True
        for header in headers:
            try:
                name, text = header.name.decode(), header_text(header).decode()
            except UnicodeDecodeError:
                is_whole = False
                continue
            is_whole = is_whole and name not in properties
            properties[name] = text
        shown.properties = properties
        if not is_whole:
            shown.headers = [_header(header) for header in headers]

    def _note_schema(self, version: int) -> None:
        if version not in self.schemas:
            meta = self._topic.meta.schemas[version]
            name = types.name_of(meta.type)
            self.schemas[version] = ShownSchema(name, version, _base64(meta.data), meta.properties)


def message_id(partition: Partition, entry: int, batch_index: int) -> str:
    """Return the id of a record as text."""
    return write_id(MessageId(partition.partition_id, entry, _shown_index(partition), batch_index))


def _shown_index(partition: Partition) -> int:
    return partition.index if partition.topic.partitioned else -1


def _exact(shown: ExactMessage, record: Record) -> ExactMessage:
    """Fill a message with every field of a record; the record's schema is not used."""
    shown.offset, shown.append_us = record.offset, record.append_us
    shown.publish_us, shown.event_us = record.publish_us, record.event_us
    shown.deliver_at_us, shown.sequence_id = record.deliver_at_us, record.sequence_id
    if record.message_id:
        shown.message_number = str(record.message_id)
    if record.schema_version is not None and len(record.schema_version) == VERSION.size:
        shown.schema_version = VERSION.unpack(record.schema_version)[0]
    shown.value, shown.encoding = _exact_text(record.value)
    if record.key is not None:
        shown.key, shown.key_encoding = _exact_text(record.key)
    shown.ordering_key, shown.ordering_key_encoding = _exact_text(record.ordering_key)
    shown.producer_name, shown.producer_name_encoding = _exact_text(record.producer_name)
    if record.headers:
        shown.headers = [_exact_header(header) for header in record.headers]
    return shown


def _exact_header(header: Header) -> ExactHeader:
    name, name_encoding = _exact_text(header.name)
    value, encoding = _exact_text(header.value)
    try:
        kind: str | int = HeaderKind(header.kind).name.lower()
    except ValueError:
        kind = header.kind
    return ExactHeader(name or "", value or "", encoding, name_encoding, kind)


def _exact_text(data: bytes | None) -> tuple[str | None, str | None]:
    """Return the text of bytes and `base64` if they are not UTF-8; None for absent bytes."""
    if data is None:
        return None, None
    text, encoding = _as_text(data, "auto")
    return text, None if encoding == "utf8" else encoding


def _header(header: Header) -> ShownHeader:
    value = header_text(header)
    try:
        shown = ShownHeader(header.name.decode(), "")
    except UnicodeDecodeError:
        shown = ShownHeader(_base64(header.name), "", name_encoding="base64")
    shown.value, encoding = _as_text(value, "auto")
    shown.encoding = None if encoding == "utf8" else encoding
    return shown


def _text_or_none(data: bytes | None) -> str | None:
    """Return the text of a field that is nearly always text; None for other bytes."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _as_text(data: bytes, encoding: str) -> tuple[str, str]:
    """Return bytes for JSON and their encoding: `utf8`, or `base64` if wanted or for bytes that are
    no text.
    """
    if encoding != "base64" and not is_binary(data):
        try:
            return _decoded(data), "utf8"
        except UnicodeDecodeError:
            pass
    return _base64(data), "base64"


def is_binary(data: bytes) -> bool:
    """Return True for more control characters than text has; each takes six bytes of JSON."""
    if len(data) <= TEXT_PIECE_BYTES and len(data.translate(None, CONTROLS)) == len(data):
        return False
    count = sum(len(piece) - len(piece.translate(None, CONTROLS)) for piece in _pieces(data))
    return count > CONTROLS_MIN + len(data) // 10


def _pieces(data: bytes) -> Iterator[bytes]:
    if len(data) <= TEXT_PIECE_BYTES:
        yield data
        return
    for start in range(0, len(data), TEXT_PIECE_BYTES):
        yield data[start : start + TEXT_PIECE_BYTES]


def _decoded(data: bytes) -> str:
    """Return the text of UTF-8. Raises UnicodeDecodeError."""
    if len(data) <= TEXT_PIECE_BYTES:
        return data.decode()
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = ""
    for piece in _pieces(data):
        text += decoder.decode(piece)  # Grows in place.
    return text + decoder.decode(b"", final=True)


def _base64(data: bytes) -> str:
    text = ""
    for piece in _pieces(data):
        # Grows in place: joining a list would take the memory of a large text twice.
        text += base64.b64encode(piece).decode("ascii")
    return text
