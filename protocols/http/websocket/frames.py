"""The JSON frames of Pulsar's WebSocket API, as Apache Pulsar 4.2 writes and reads them.

Knows records and text, no topic and no connection.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta

import msgspec

from braidlog.protocols.http.limits import PROPERTIES_MAX
from braidlog.storage.formats.headers import header_text
from braidlog.storage.formats.record import Header, Record

Scalar = str | int | float | bool | None
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INT64_MAX = 2**63 - 1
TIME_MS_MAX = INT64_MAX // 1000
# An ISO date and time with an offset, as Apache's DateFormatter reads it.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")

# Apache's numbers (WebSocketError.java).
BAD_JSON, BAD_PAYLOAD, UNKNOWN = 3, 7, 8


class BadFrame(ValueError):
    """A frame that cannot be used, with Apache's number of the fault."""

    def __init__(self, number: int, text: str, context: str | None = None) -> None:
        super().__init__(text)
        self.number = number
        self.context = context


class SentMessage(msgspec.Struct):
    """A producer's message. Apache's reader turns numbers and truths into text, and skips unknown
    fields.
    """

    payload: Scalar = None
    properties: dict[str, Scalar] | None = None
    key: Scalar = None
    context: Scalar = None
    eventTime: Scalar = None
    deliverAt: int | None = None
    deliverAfterMs: int | None = None


class Command(msgspec.Struct):
    """A consumer's or reader's frame; without a type: an acknowledgement."""

    type: Scalar = None
    messageId: Scalar = None
    permitMessages: int | None = None


class SendResult(msgspec.Struct, omit_defaults=True):
    """The answer to a producer's message."""

    result: str
    errorMsg: str | None = None
    messageId: str | None = None
    context: str | None = None


class MessageFrame(msgspec.Struct, omit_defaults=True):
    """A message for a consumer or reader."""

    messageId: str
    payload: str
    properties: dict[str, str]
    publishTime: str
    redeliveryCount: int
    eventTime: str | None = None
    key: str | None = None


_message_decoder = msgspec.json.Decoder(SentMessage)
_command_decoder = msgspec.json.Decoder(Command)


def read_message(text: str) -> SentMessage:
    """Return a producer's message. Raises BadFrame."""
    try:
        return _message_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise BadFrame(BAD_JSON, str(error)) from None


def read_command(text: str) -> Command:
    """Return a consumer's frame. Raises BadFrame."""
    try:
        return _command_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise BadFrame(BAD_JSON, str(error)) from None


def record_of(sent: SentMessage, now_us: int) -> Record:
    """Return the record of a producer's message. Raises BadFrame."""
    context = text_of(sent.context)
    try:
        return Record(
            0,
            0,
            now_us,
            _event_us(text_of(sent.eventTime)),
            _bytes(text_of(sent.key)),
            _payload(text_of(sent.payload)),
            _headers(sent.properties),
            deliver_at_us=_deliver_at_us(sent, now_us),
        )
    except (ValueError, UnicodeEncodeError) as error:
        raise BadFrame(BAD_PAYLOAD, str(error), context) from None


def text_of(value: Scalar) -> str | None:
    """Return a field as text; a number or truth in JSON's spelling, as Apache takes it."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _payload(text: str | None) -> bytes:
    """Return the bytes of a payload: base64, with or without padding. Raises ValueError."""
    if text is None:
        raise ValueError("payload is missing: base64 is expected")
    try:
        padding = "=" * (-len(text) % 4) if "=" not in text else ""
        return base64.b64decode(text + padding, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Invalid Base64 message-payload error={error}") from None


def _headers(properties: dict[str, Scalar] | None) -> list[Header]:
    """Return the properties of a message. Raises ValueError."""
    if not properties:
        return []
    if len(properties) > PROPERTIES_MAX:
        raise ValueError(f"{len(properties)} properties exceed the limit of {PROPERTIES_MAX}")
    headers = []
    for name, value in properties.items():
        text = text_of(value)
        if text is None:
            raise ValueError(f"Need Non-Null value for key: {name}")
        headers.append(Header(name.encode(), text.encode()))
    return headers


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _event_us(text: str | None) -> int | None:
    """Return the event time. Raises ValueError."""
    if text is None:
        return None
    if not TIME.fullmatch(text):
        raise ValueError(f"Text '{text[:64]}' could not be parsed: an ISO 8601 time is expected")
    try:
        time_us = (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"Text '{text[:64]}' could not be parsed: {error}") from None
    # Pulsar's event times are whole milliseconds from 1 on; 0 means none.
    return time_us // 1000 * 1000 if time_us > 0 else None


def _deliver_at_us(sent: SentMessage, now_us: int) -> int | None:
    """Return the time of delivery. As in Apache, `deliverAfterMs` wins, and only numbers above 0
    count. Raises ValueError.
    """
    at_us = None
    if sent.deliverAt is not None and sent.deliverAt > 0:
        at_us = _time_us(sent.deliverAt, "deliverAt")
    if sent.deliverAfterMs is not None and sent.deliverAfterMs > 0:
        at_us = _time_us(now_us // 1000 + sent.deliverAfterMs, "deliverAfterMs")
    return at_us


def _time_us(time_ms: int, name: str) -> int:
    if time_ms > TIME_MS_MAX:
        raise ValueError(f"{name} is above the limit of {TIME_MS_MAX} ms")
    return time_ms * 1000


def ok(message_id: str, context: str | None) -> str:
    """Return the answer to a stored message."""
    return _result(SendResult("ok", messageId=message_id, context=context))


def send_error(number: int, text: str, context: str | None = None) -> str:
    """Return the answer to a message that was not stored."""
    return _result(SendResult(f"send-error:{number}", text, context=context))


def _result(result: SendResult) -> str:
    # Apache adds these two fields to every answer, with these values.
    return msgspec.json.encode(result).decode()[:-1] + ',"errorCode":0,"schemaVersion":0}'


def delivered(record: Record, message_id: str, redelivery_count: int) -> str:
    """Return the frame of a record for a consumer or reader."""
    published_us = record.append_us if record.publish_us is None else record.publish_us
    shown = MessageFrame(
        message_id,
        base64.b64encode(record.value or b"").decode(),
        _properties(record),
        time_text(published_us),
        redelivery_count,
        time_text(record.event_us) if record.event_us else None,
        None if record.key is None else _key_text(record.key),
    )
    return msgspec.json.encode(shown).decode()


def _properties(record: Record) -> dict[str, str]:
    """Return the properties that are text; a frame cannot hold others."""
    properties: dict[str, str] = {}
    for header in record.headers:
        try:
            properties[header.name.decode()] = header_text(header).decode()
        except UnicodeDecodeError:
            continue
    return properties


def _key_text(key: bytes) -> str:
    """Return a key as text; base64 for bytes that are not UTF-8, as Pulsar's clients show them."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return base64.b64encode(key).decode()


def time_text(time_us: int) -> str:
    """Return a time as Apache's DateFormatter writes it, in UTC; out of the calendar's range the
    milliseconds since 1970.
    """
    try:
        moment = EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return str(time_us // 1000)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


END_OF_TOPIC = {True: '{"endOfTopic":true}', False: '{"endOfTopic":false}'}
