"""The written rules of docs/mapping.md as functions: what a writer can say, what a reader is given.

Written from the protocols' documents, not from the codecs: tests hold the broker against them. A
record is the neutral one that every protocol maps to. Knows no bytes of any protocol.
"""

import base64
import struct
from collections.abc import Callable

from msgspec.structs import replace

from braidlog.storage.formats.record import Header, HeaderKind, Record

Seen = dict[str, object]

US_PER_MS = 1000
TIME_MS_MAX = (2**63 - 1) // US_PER_MS  # Later times are cut to it: the log holds microseconds.
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


# What a writer's clients can say of a record: the rest of it stays with them.


def kafka_0_writes(record: Record) -> Record:
    """Message format 0: key and value."""
    return Record(record.offset, record.append_us, key=record.key, value=record.value)


def kafka_1_writes(record: Record) -> Record:
    """Message format 1: the time besides; -1 is none."""
    return replace(kafka_0_writes(record), publish_us=kafka_time(record.publish_us))


def kafka_2_writes(record: Record) -> Record:
    """Record batches: headers besides, which are text to other protocols."""
    headers = [Header(one.name, one.value) for one in record.headers]
    return replace(kafka_1_writes(record), headers=headers or ())


def kafka_time(time_us: int | None) -> int | None:
    """A record's time, which its client gave in milliseconds."""
    time_ms = -1 if time_us is None else time_us // US_PER_MS
    return None if time_ms == -1 else time_ms * US_PER_MS


def pulsar_writes(record: Record) -> Record:
    """A message: all but an id and the kinds of headers. Times are milliseconds, 0 is none."""
    publish_us = record.append_us if record.publish_us is None else record.publish_us
    return replace(
        record,
        publish_us=max(publish_us // US_PER_MS, 0) * US_PER_MS,
        event_us=_time_or_none(record.event_us),
        deliver_at_us=_time_or_none(record.deliver_at_us),
        headers=[Header(one.name, one.value) for one in record.headers] or (),
        producer_name=record.producer_name or b"",
        sequence_id=record.sequence_id or 0,
        message_id=0,
        chunk=None,
    )


def iggy_writes(record: Record) -> Record:
    """A message of the classic dialects: payload, headers, id and the SEND's partitioning key."""
    return Record(
        record.offset,
        record.append_us,
        key=record.key,
        value=record.value,
        headers=record.headers or (),
        message_id=record.message_id,
    )


def iggy_typed_writes(record: Record) -> Record:
    """One of the later dialects: the client's time besides; 0 is none."""
    sent_us = record.publish_us
    return replace(iggy_writes(record), publish_us=sent_us if sent_us and sent_us > 0 else None)


def rest_writes(record: Record) -> Record:
    """A message over HTTP: key, value, properties of text, times, number and producer's name."""
    return Record(
        record.offset,
        record.append_us,
        publish_us=record.publish_us,
        event_us=_time_or_none(record.event_us),
        deliver_at_us=_time_or_none(record.deliver_at_us),
        key=record.key,
        value=record.value,
        headers=[Header(one.name, one.value) for one in record.headers] or (),
        producer_name=record.producer_name or b"rest",
        sequence_id=record.sequence_id,
    )


# What a reader is given of a record, whoever wrote it.


def kafka_0_sees(record: Record) -> Seen:
    """Fetch below version 4."""
    return {"offset": record.offset, "key": record.key, "value": record.value}


def kafka_2_sees(record: Record) -> Seen:
    """Fetch from version 4 on."""
    headers = [(one.name, text_of(one)) for one in record.headers]
    return kafka_0_sees(record) | {"headers": headers, "timestamp": _published_us(record) // 1000}


def pulsar_sees(record: Record) -> Seen:
    """An unbatched entry made of one record."""
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
    """Headers as text; those that are none in Base64, and at the end which they are."""
    found, encoded = [], []
    for place, header in enumerate(record.headers):
        name, value = header.name, text_of(header)
        if not is_text(name) or not is_text(value):
            name, value = base64.b64encode(name), base64.b64encode(value)
            encoded.append(str(place))
        found.append((name, value))
    if encoded:
        found.append((BASE64_PROPERTY, ",".join(encoded).encode()))
    return found


def iggy_sees(record: Record) -> Seen | None:
    """A poll of the classic dialects: None, left out, without a payload."""
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
    """A poll of the later dialects: None, left out, where the value is absent."""
    if record.value is None:
        return None
    seen = iggy_sees(replace(record, value=record.value or b"-"))
    assert seen is not None
    sent_us = max(_published_us(record), 0)
    return seen | {"payload": record.value, "origin_timestamp": sent_us}


def iggy_headers(record: Record) -> list[tuple[bytes, int, bytes]]:
    """The headers that Iggy can hold, and the key as the last one."""
    headers = list(record.headers)
    if record.key is not None:
        headers.append(Header(KEY_HEADER, record.key, HeaderKind.RAW))
    found = []
    for one in headers:
        if not (1 <= len(one.name) <= IGGY_TEXT_MAX and 1 <= len(one.value) <= IGGY_TEXT_MAX):
            continue
        if is_text(one.name):
            is_raw = one.kind == HeaderKind.STRING and not is_text(one.value)
            found.append((one.name, int(HeaderKind.RAW) if is_raw else int(one.kind), one.value))
    return found


def rest_sees(record: Record) -> Seen:
    """A message of an answer in JSON; bytes that are no text come as Base64, and say so."""
    headers = [(one.name, text_of(one)) for one in record.headers]
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
    """What `reader` is given of a record that `writer` stored; None: it is left out.

    Within one protocol it is what was sent: Iggy's readers are not shown the partitioning key of
    Iggy's writers, and a time that a client did not give is none.
    """
    if writer in IGGY and reader in IGGY:
        stored = replace(stored, key=None)
    seen = SEES[reader](stored)
    if seen is not None and writer == reader and reader in IGGY:
        seen["headers"] = [(one.name, int(one.kind), one.value) for one in stored.headers]
        if reader == "iggy-typed":
            seen["origin_timestamp"] = stored.publish_us or 0
    if seen is not None and writer in TIMED_KAFKA and reader == "kafka-2":
        seen["timestamp"] = -1 if stored.publish_us is None else stored.publish_us // US_PER_MS
    return seen


# Values.


def text_of(header: Header) -> bytes:
    """Numbers as decimals, booleans as words, other values as they are."""
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
    """Whether the bytes are UTF-8."""
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
    """Whole milliseconds of a time; what falls into the first one or before it is none."""
    time_ms = (time_us or 0) // US_PER_MS
    return time_ms * US_PER_MS if time_ms > 0 else None


def _text_or_none(value: bytes | None) -> bytes | None:
    return value if value is not None and is_text(value) else None
