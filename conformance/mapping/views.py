"""The written rules of docs/mapping.md as functions: the fields of writers, and the views of
readers.

Written from the protocols' documents, not from the codecs: tests compare the broker with these
rules. A record is the neutral record that every protocol maps to. Knows no bytes of any protocol.
"""

import base64
import struct
from collections.abc import Callable

from msgspec.structs import replace

from braidlog.storage.formats.record import Header, HeaderKind, Record

Seen = dict[str, object]

US_PER_MS = 1000
TIME_MS_MAX = (2**63 - 1) // US_PER_MS  # Later times are cut to this: the log holds microseconds.
IGGY_TEXT_MAX = 255
FOREIGN_PRODUCER = b"braidlog"
KEY_HEADER = b"braidlog.key"
BASE64_PROPERTY = b"braidlog.base64"
NUMBERS = {
    HeaderKind.INT8: "<b",
    HeaderKind.INT16: "<h",
    HeaderKind.INT32: "<i",
    HeaderKind.INT64: "<q",
    HeaderKind.UINT8: "<B",
    HeaderKind.UINT16: "<H",
    HeaderKind.UINT32: "<I",
    HeaderKind.UINT64: "<Q",
}


# The fields that a writer's clients can express; the other fields stay with them.


def kafka_0_writes(record: Record) -> Record:
    """Return message format 0: key and value."""
    return Record(record.offset, record.append_us, key=record.key, value=record.value)


def kafka_1_writes(record: Record) -> Record:
    """Return message format 1: also the time; -1 is none."""
    return replace(kafka_0_writes(record), publish_us=kafka_time(record.publish_us))


def kafka_2_writes(record: Record) -> Record:
    """Return record batches: also headers, which are text to other protocols."""
    headers = [Header(header.name, header.value) for header in record.headers]
    return replace(kafka_1_writes(record), headers=headers or ())


def kafka_time(time_us: int | None) -> int | None:
    """Return a record's time, which the client gave in milliseconds."""
    time_ms = -1 if time_us is None else time_us // US_PER_MS
    return None if time_ms == -1 else time_ms * US_PER_MS


def pulsar_writes(record: Record) -> Record:
    """Return a message: all but an id and the kinds of headers. Times are
    milliseconds, 0 is none.
    """
    publish_us = record.append_us if record.publish_us is None else record.publish_us
    return replace(
        record,
        publish_us=max(publish_us // US_PER_MS, 0) * US_PER_MS,
        event_us=_time_or_none(record.event_us),
        deliver_at_us=_time_or_none(record.deliver_at_us),
        headers=[Header(header.name, header.value) for header in record.headers] or (),
        producer_name=record.producer_name or b"",
        sequence_id=record.sequence_id or 0,
        message_id=0,
        chunk=None,
    )


def iggy_writes(record: Record) -> Record:
    """Return a message of the classic dialects: payload, headers, id and the SEND's partitioning
    key.
    """
    return Record(
        record.offset,
        record.append_us,
        key=record.key,
        value=record.value,
        headers=record.headers or (),
        message_id=record.message_id,
    )


def iggy_typed_writes(record: Record) -> Record:
    """Return a message of the later dialects: also the client's time; 0 is none."""
    sent_us = record.publish_us
    return replace(iggy_writes(record), publish_us=sent_us if sent_us and sent_us > 0 else None)


def rest_writes(record: Record) -> Record:
    """Return a message over HTTP: key, value, text properties, times, number and
    producer's name.
    """
    return Record(
        record.offset,
        record.append_us,
        publish_us=record.publish_us,
        event_us=_time_or_none(record.event_us),
        deliver_at_us=_time_or_none(record.deliver_at_us),
        key=record.key,
        value=record.value,
        headers=[Header(header.name, header.value) for header in record.headers] or (),
        producer_name=record.producer_name or b"rest",
        sequence_id=record.sequence_id,
    )


# A reader's view of a record, for any writer.


def kafka_0_sees(record: Record) -> Seen:
    """Return the view of Fetch below version 4."""
    return {"offset": record.offset, "key": record.key, "value": record.value}


def kafka_2_sees(record: Record) -> Seen:
    """Return the view of Fetch from version 4 on."""
    headers = [(header.name, text_of(header)) for header in record.headers]
    return kafka_0_sees(record) | {"headers": headers, "timestamp": _published_us(record) // 1000}


def pulsar_sees(record: Record) -> Seen:
    """Return an unbatched entry of a single record."""
    event_us, deliver_us = _time_or_none(record.event_us), _time_or_none(record.deliver_at_us)
    producer = record.producer_name
    return {
        "entryId": record.offset,
        "payload": record.value or b"",
        "null_value": record.value is None,
        "partition_key": record.key,
        "properties": pulsar_properties(record),
        "publish_time": max(_published_us(record) // US_PER_MS, 0),
        "event_time": (event_us or 0) // US_PER_MS,
        "deliver_at_time": (deliver_us or 0) // US_PER_MS,
        "ordering_key": record.ordering_key,
        "producer_name": producer if producer is not None and is_text(producer) else b"braidlog",
        "sequence_id": record.offset if record.sequence_id is None else record.sequence_id,
        "schema_version": record.schema_version,
    }


def pulsar_properties(record: Record) -> list[tuple[bytes, bytes]]:
    """Return headers as text; non-text values are Base64, with a last property that names them."""
    properties, encoded = [], []
    for place, header in enumerate(record.headers):
        name, value = header.name, text_of(header)
        if not is_text(name) or not is_text(value):
            name, value = base64.b64encode(name), base64.b64encode(value)
            encoded.append(str(place))
        properties.append((name, value))
    if encoded:
        properties.append((BASE64_PROPERTY, ",".join(encoded).encode()))
    return properties


def iggy_sees(record: Record) -> Seen | None:
    """Return the view of a classic dialect's poll; None (left out) without a payload."""
    if not record.value:
        return None
    return {
        "offset": record.offset,
        "payload": record.value,
        "headers": iggy_headers(record),
        "id": record.message_id,
        "timestamp": record.append_us,
    }


def iggy_typed_sees(record: Record) -> Seen | None:
    """Return the view of a later dialect's poll; None (left out) if the value is absent."""
    if record.value is None:
        return None
    seen = iggy_sees(replace(record, value=record.value or b"-"))
    assert seen is not None
    sent_us = max(_published_us(record), 0)
    return seen | {"payload": record.value, "origin_timestamp": sent_us}


def iggy_headers(record: Record) -> list[tuple[bytes, int, bytes]]:
    """Return the headers that Iggy can hold, with the key as the last header."""
    headers = list(record.headers)
    if record.key is not None:
        headers.append(Header(KEY_HEADER, record.key, HeaderKind.RAW))
    headers_seen = []
    for header in headers:
        if not (1 <= len(header.name) <= IGGY_TEXT_MAX and 1 <= len(header.value) <= IGGY_TEXT_MAX):
            continue
        if is_text(header.name):
            is_raw = header.kind == HeaderKind.STRING and not is_text(header.value)
            headers_seen.append(
                (header.name, int(HeaderKind.RAW) if is_raw else int(header.kind), header.value)
            )
    return headers_seen


def rest_sees(record: Record) -> Seen:
    """Return a message of an answer in JSON; non-text bytes are marked and in Base64."""
    headers = [(header.name, text_of(header)) for header in record.headers]
    texts = [(name, value) for name, value in headers if is_text(name) and is_text(value)]
    tells_all = len(dict(texts)) == len(headers)
    return {
        "offset": record.offset,
        "key": record.key,
        "value": record.value,
        "properties": {name.decode(): value.decode() for name, value in texts},
        "headers": None if tells_all else headers,
        "publishTime": _published_us(record) // US_PER_MS,
        "eventTime": None if record.event_us is None else record.event_us // US_PER_MS,
        "deliverAt": None if record.deliver_at_us is None else record.deliver_at_us // US_PER_MS,
        "sequenceId": record.sequence_id,
        "producerName": _text_or_none(record.producer_name),
        "orderingKey": _text_or_none(record.ordering_key),
    }


WRITES: dict[str, Callable[[Record], Record]] = {
    "kafka-0": kafka_0_writes,
    "kafka-1": kafka_1_writes,
    "kafka-2": kafka_2_writes,
    "pulsar": pulsar_writes,
    "iggy": iggy_writes,
    "iggy-typed": iggy_typed_writes,
    "rest": rest_writes,
}
SEES: dict[str, Callable[[Record], Seen | None]] = {
    "kafka-0": kafka_0_sees,
    "kafka-2": kafka_2_sees,
    "pulsar": pulsar_sees,
    "iggy": iggy_sees,
    "iggy-typed": iggy_typed_sees,
    "rest": rest_sees,
}
IGGY = ("iggy", "iggy-typed")
TIMED_KAFKA = ("kafka-1", "kafka-2")


def seen_by(writer: str, reader: str, stored: Record) -> Seen | None:
    """Return `reader`'s view of a record that `writer` stored; None if the record is left out.

    Readers of the writer's protocol see the sent fields: Iggy's readers do not see the partitioning
    key of Iggy's writers, and a missing client time is none.
    """
    if writer in IGGY and reader in IGGY:
        stored = replace(stored, key=None)
    seen = SEES[reader](stored)
    if seen is not None and writer == reader and reader in IGGY:
        seen["headers"] = [
            (header.name, int(header.kind), header.value) for header in stored.headers
        ]
        if reader == "iggy-typed":
            seen["origin_timestamp"] = stored.publish_us or 0
    if seen is not None and writer in TIMED_KAFKA and reader == "kafka-2":
        seen["timestamp"] = -1 if stored.publish_us is None else stored.publish_us // US_PER_MS
    return seen


# Values.


def text_of(header: Header) -> bytes:
    """Return numbers as decimals, booleans as words, other values unchanged."""
    value, kind = header.value, header.kind
    if kind in NUMBERS and len(value) == struct.calcsize(NUMBERS[HeaderKind(kind)]):
        return str(struct.unpack(NUMBERS[HeaderKind(kind)], value)[0]).encode()
    if kind in (HeaderKind.INT128, HeaderKind.UINT128) and len(value) == 16:
        signed = kind == HeaderKind.INT128
        return str(int.from_bytes(value, "little", signed=signed)).encode()
    if kind == HeaderKind.BOOL and value in (b"\x00", b"\x01"):
        return b"true" if value == b"\x01" else b"false"
    if kind == HeaderKind.FLOAT64 and len(value) == 8:
        return repr(struct.unpack("<d", value)[0]).encode()
    if kind == HeaderKind.FLOAT32 and len(value) == 4:
        return _float32_text(value)
    return value


def is_text(value: bytes) -> bool:
    """Return True if the bytes are UTF-8."""
    return value.decode(errors="replace").encode() == value


def _float32_text(value: bytes) -> bytes:
    number = struct.unpack("<f", value)[0]
    for digits in (6, 7, 8, 9):
        text = f"{number:.{digits}g}"
        if digits == 9 or _float32_of(text) == value:
            return text.encode()
    raise AssertionError("nine digits are always enough")


def _float32_of(text: str) -> bytes:
    try:
        return struct.pack("<f", float(text))
    except OverflowError:
        return b""


def _published_us(record: Record) -> int:
    return record.append_us if record.publish_us is None else record.publish_us


def _time_or_none(time_us: int | None) -> int | None:
    """Return a time in whole milliseconds; a time within the first millisecond or
    before is none.
    """
    time_ms = (time_us or 0) // US_PER_MS
    return time_ms * US_PER_MS if time_ms > 0 else None


def _text_or_none(value: bytes | None) -> bytes | None:
    return value if value is not None and is_text(value) else None
