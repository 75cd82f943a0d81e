"""docs/mapping.md as a property: what one protocol stored, every other reads as the page says.

The views below say what a reader of each format sees of a record. They are written from the page,
not from the codecs.
"""

import base64
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given

from storage.codecs.api import Codec
from storage.codecs.record import Header, HeaderKind, Record
from storage.codecs.registry import codec_named
from tests.storage.codecs.strategies import QUICK, record_lists

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


def kafka_view(record: Record) -> Record:
    return Record(record.offset, record.append_us, key=record.key, value=record.value)


def pulsar_view(record: Record) -> Record:
    publish_us = record.append_us if record.publish_us is None else record.publish_us
    event_ms = (record.event_us or 0) // 1000
    deliver_ms = (record.deliver_at_us or 0) // 1000
    producer = record.producer_name
    return replace(
        record,
        publish_us=max(publish_us // 1000, 0) * 1000,
        event_us=event_ms * 1000 if event_ms > 0 else None,
        deliver_at_us=deliver_ms * 1000 if deliver_ms > 0 else None,
        headers=pulsar_headers(record),
        producer_name=b"braidlog" if producer is None or not is_text(producer) else producer,
        sequence_id=record.offset if record.sequence_id is None else record.sequence_id,
        message_id=0,
    )


def pulsar_headers(record: Record) -> list[Header] | tuple[()]:
    found, encoded = [], []
    for place, header in enumerate(record.headers):
        name, value = header.name, text_of(header)
        if not is_text(name) or not is_text(value):
            name, value = base64.b64encode(name), base64.b64encode(value)
            encoded.append(str(place))
        found.append(Header(name, value))
    if encoded:
        found.append(Header(b"braidlog.base64", ",".join(encoded).encode()))
    return found or ()


def iggy_view(record: Record) -> Record:
    headers = [
        replace(h, kind=HeaderKind.RAW)
        if h.kind == HeaderKind.STRING and not is_text(h.value)
        else h
        for h in record.headers
    ]
    if record.key is not None:
        headers.append(Header(b"braidlog.key", record.key, HeaderKind.RAW))
    fitting = [
        h
        for h in headers
        if is_text(h.name) and 1 <= len(h.name) <= 255 and 1 <= len(h.value) <= 255
    ]
    return Record(
        record.offset,
        record.append_us,
        value=record.value,
        headers=fitting or (),
        message_id=record.message_id,
    )


def text_of(header: Header) -> bytes:
    """Numbers as decimals, bytes as they are."""
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
        return float32_text(value)
    return value


def float32_text(value: bytes) -> bytes:
    number = struct.unpack("<f", value)[0]
    for digits in (6, 7, 8, 9):
        text = f"{number:.{digits}g}"
        if digits == 9 or float32_of(text) == value:
            return text.encode()
    raise AssertionError("nine digits are always enough")


def float32_of(text: str) -> bytes:
    try:
        return struct.pack("<f", float(text))
    except OverflowError:
        return b""


def is_text(value: bytes) -> bool:
    return value.decode(errors="replace").encode() == value


VIEWS: dict[str, Callable[[Record], Record]] = {
    "plain": lambda record: replace(record, headers=record.headers or ()),
    "kafka": kafka_view,
    "pulsar": pulsar_view,
    "iggy": iggy_view,
}
CARRIED: dict[str, Callable[[Record], bool]] = {
    "plain": lambda record: True,
    "kafka": lambda record: True,
    "pulsar": lambda record: True,
    "iggy": lambda record: bool(record.value),
}


def through(codec: Codec, records: list[Record]) -> list[Record]:
    """What a reader of the format has after the records went into a body and out again."""
    base_offset, append_us = records[0].offset, records[0].append_us
    body = codec.encode(records, base_offset)
    decoded = codec.decode(body, base_offset, append_us)
    assert decoded.failed is None
    assert decoded.next_offset == records[-1].offset + 1
    return decoded.records


@pytest.mark.parametrize("name", VIEWS)
@QUICK
@given(records=record_lists())
def test_a_reader_sees_all_that_its_format_can_express(name: str, records: list[Record]) -> None:
    codec = codec_named(name)
    assert [codec.carries(record) for record in records] == [CARRIED[name](r) for r in records]
    carried = [record for record in records if CARRIED[name](record)]
    if carried:
        assert through(codec, carried) == [VIEWS[name](record) for record in carried]


PAIRS = [(a, b) for a in VIEWS for b in VIEWS if a != b]


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
@QUICK
@given(records=record_lists())
def test_what_one_format_holds_every_other_reads(
    writer: str, reader: str, records: list[Record]
) -> None:
    written = [record for record in records if CARRIED[writer](record)]
    if not written:
        return
    stored = through(codec_named(writer), written)
    readable = [record for record in stored if CARRIED[reader](record)]
    if readable:
        seen = through(codec_named(reader), readable)
        wanted = [VIEWS[reader](VIEWS[writer](r)) for r in written if CARRIED[reader](r)]
        assert seen == wanted


@pytest.mark.parametrize("name", VIEWS)
@QUICK
@given(records=record_lists())
def test_reading_begins_and_ends_where_it_is_asked_to(name: str, records: list[Record]) -> None:
    codec = codec_named(name)
    carried = [record for record in records if CARRIED[name](record)]
    if not carried:
        return
    base_offset = carried[0].offset
    body = codec.encode(carried, base_offset)
    whole = codec.decode(body, base_offset, 7).records
    for place, record in enumerate(carried):
        rest = codec.decode(body, base_offset, 7, start_offset=record.offset)
        assert rest.records == whole[place:]
        first = codec.decode(body, base_offset, 7, records_max=place + 1)
        assert first.records == whole[: place + 1]
        assert first.next_offset == record.offset + 1
    assert codec.decode(body, base_offset, 7, start_offset=carried[-1].offset + 1).records == []


@pytest.mark.parametrize("name", VIEWS)
@QUICK
@given(records=record_lists())
def test_positions_are_those_of_the_records(name: str, records: list[Record]) -> None:
    codec = codec_named(name)
    carried = [record for record in records if CARRIED[name](record)]
    if not carried:
        return
    base_offset = carried[0].offset
    body = codec.encode(carried, base_offset)
    starts = codec.split(body, base_offset)
    assert [offset for offset, _ in starts] == [record.offset for record in carried]
    sizes = [len(codec.encode([r], base_offset)) - starts[0][1] for r in carried]
    ends = [pos for _, pos in starts[1:]] + [len(body)]
    assert [end - pos for (_, pos), end in zip(starts, ends, strict=True)] == sizes
    assert bytes(codec.readable(body)) == body[starts[0][1] :]
    assert codec.inspect(body).record_count == len(carried)
