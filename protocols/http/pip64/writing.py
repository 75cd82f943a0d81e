"""The records of PIP-64's messages: keys and values by a schema, properties, times, sequences.

Knows no partition's log and no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from braidlog.broker.config.wording import explain
from braidlog.protocols.http.errors import (
    BAD_MESSAGES,
    BAD_VALUE_SCHEMA,
    RECORD_TOO_LARGE,
    RequestRefused,
)
from braidlog.protocols.http.limits import (
    PROPERTIES_BYTES_INLINE,
    PROPERTIES_MAX,
    RECORD_BYTES_MAX,
    RECORDS_BYTES_MIN,
    RECORDS_EXPANSION,
)
from braidlog.protocols.http.pip64.messages import (
    Number,
    ProducedMessage,
    ProduceRequest,
    either,
    raw_or_none,
)
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.jsontext import (
    DEPTH_MAX,
    RepeatedName,
    TooMany,
    check_names,
    elements,
    has_every_member,
    is_deep,
)
from braidlog.protocols.http.values.primitives import PRIMITIVES, BadValue, whole_number
from braidlog.protocols.http.values.values import NotFromJson, RecordCodec, join_pair
from braidlog.storage.formats.record import Header, Record

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

DEFAULT_PRODUCER = "rest"
INT64_MAX = 2**63 - 1
TIME_MS_MAX = INT64_MAX // 1000
UINT64_MAX = 2**64 - 1
PROPERTIES = msgspec.json.Decoder(dict[str, str])
AS_TEXT = (types.NONE, types.STRING)  # Types that store a string as its text.


class RecordWriter:
    """Makes the records of a request. Raises RequestRefused, with the place of the first fault."""

    def __init__(
        self,
        topic: Topic,
        codec: RecordCodec,
        now_us: int,
        request: ProduceRequest,
        only_partition: int | None,
        body_bytes: int,
    ) -> None:
        self._bytes_left = max(RECORDS_BYTES_MIN, RECORDS_EXPANSION * body_bytes)
        self._partitions = len(topic.partitions)
        self._topic_name = topic.name.full
        self._codec = codec
        self._now_us = now_us // 1000 * 1000  # Pulsar's clients publish in whole milliseconds.
        name = either(request.producer_name, request.producerName)
        self._producer = (name or DEFAULT_PRODUCER).encode()
        self._only_partition = only_partition
        self._offset = 0
        self.routing_keys: dict[int, bytes] = {}  # For keys inside the value (INLINE).

    def write_all(self, messages: Sequence[ProducedMessage]) -> list[Record]:
        """Return every record; offsets have no meaning yet."""
        return [self.write(number, message) for number, message in enumerate(messages)]

    def write(self, number: int, message: ProducedMessage) -> Record:
        try:
            return self._write(number, message)
        except NotFromJson as error:
            raise RequestRefused(BAD_VALUE_SCHEMA, f"messages[{number}]: {error}") from None
        except BadValue as error:
            raise RequestRefused(BAD_MESSAGES, f"messages[{number}]: {error}") from None

    def _write(self, number: int, message: ProducedMessage) -> Record:
        index = message.partition  # hot: see make bench
        if self._only_partition is not None:
            index = self.named_partition(message)
        if index is not None and not 0 <= index < self._partitions:
            place = f"messages[{number}]: {self._topic_name} has no partition {index}"
            raise RequestRefused(BAD_MESSAGES, place)
        key, value = self._key_and_value(number, message)
        size = (0 if key is None else len(key)) + (0 if value is None else len(value))
        record = Record(number, 0, self._now_us, None, key, value, (), None, self._producer)
        if message.properties is not msgspec.UNSET:
            headers = [
                Header(name.encode(), text.encode()) for name, text in _properties(message).items()
            ]
            size += sum(len(header.name) + len(header.value) for header in headers)
            record.headers = headers
        if _has_numbers(message):
            self._set_numbers(record, message)
        if size > RECORD_BYTES_MAX:
            text = f"messages[{number}]: {size} bytes, at most {RECORD_BYTES_MAX} are taken"
            raise RequestRefused(RECORD_TOO_LARGE, text)
        self._bytes_left -= size
        if self._bytes_left < 0:
            text = f"messages[{number}]: with the ones before it many times as large as the request"
            raise RequestRefused(RECORD_TOO_LARGE, text)
        return record

    def _set_numbers(self, record: Record, message: ProducedMessage) -> None:
        """Set the times and the sequence of a message that has any."""
        event_ms = _number(message.eventTime, message.event_time, TIME_MS_MAX, "eventTime")
        record.event_us = event_ms * 1000 if event_ms else None
        sequence = _number(message.sequenceId, message.sequence_id, UINT64_MAX, "sequenceId")
        record.sequence_id = sequence
        record.deliver_at_us = self._deliver_at_us(message)

    def _deliver_at_us(self, message: ProducedMessage) -> int | None:
        """Return the time of delivery; None for an immediate delivery, for which Pulsar's clients
        send 0.
        """
        at = _number(message.deliverAt, message.deliver_at, TIME_MS_MAX, "deliverAt")
        most = TIME_MS_MAX - self._now_us // 1000
        after = _number(message.deliverAfterMs, message.deliver_after_ms, most, "deliverAfterMs")
        if at is not None and after is not None:
            raise BadValue("deliverAt and deliverAfterMs exclude each other")
        if after:
            return self._now_us + after * 1000
        return at * 1000 if at else None

    def named_partitions(self, messages: Sequence[ProducedMessage]) -> list[int | None]:
        """Return the partition that each message is for. Raises as `named_partition`."""
        if self._only_partition is None:
            return [message.partition for message in messages]
        return [self.named_partition(message) for message in messages]

    def named_partition(self, message: ProducedMessage) -> int | None:
        """Return the partition that the request names. Raises BadValue for two different
        partitions.
        """
        if self._only_partition is None:
            return message.partition
        if message.partition not in (None, self._only_partition):
            raise BadValue(f"partition {message.partition} is not that of the path")
        return self._only_partition

    def _key_and_value(
        self, number: int, message: ProducedMessage
    ) -> tuple[bytes | None, bytes | None]:
        unset, codec_type, payload = msgspec.UNSET, self._codec.type, None
        is_encoded = message.encoding is not None or message.key_encoding is not None
        key_text = None if message.key is unset else raw_or_none(message.key)
        value_text = None if message.value is unset else raw_or_none(message.value)
        if value_text is None and message.payload is not None:
            if codec_type == types.BYTES:
                return self._codec.write(key_text, None)[0], message.payload.encode()
            if codec_type in AS_TEXT and not is_encoded:
                payload = message.payload.encode()
            else:
                value_text = _payload_text(message.payload, self._codec)
        for text in (key_text, value_text):
            if text is not None and len(text) > DEPTH_MAX and is_deep(text):
                raise BadValue("nested more than 100 deep")
        if not is_encoded:
            key, value = self._codec.write(key_text, value_text)
            value = value if payload is None else payload
        else:
            key = self._encoded(key_text, message.key_encoding, is_key=True)
            value = self._encoded(value_text, message.encoding, is_key=False)
        if self._codec.is_inline:
            if key is not None:
                self.routing_keys[number] = key
            return None, join_pair(key, value)
        return key, value

    def _encoded(self, text: bytes | None, encoding: str | None, *, is_key: bool) -> bytes | None:
        """Return bytes; the input may be base64, as in answers for bytes that are not text."""
        if text is None:
            return None
        part = self._codec.key if is_key else self._codec.value
        if encoding in (None, "utf8"):
            return part.write(text)
        if encoding != "base64":
            raise BadValue(f"an encoding is utf8 or base64, not {encoding[:40]!r}")
        return PRIMITIVES["BYTES"].write(msgspec.json.decode(text))


def _has_numbers(message: ProducedMessage) -> bool:
    """Return True if a message has a time or a sequence, as few have."""
    return not (
        message.eventTime is None
        and message.event_time is None
        and message.sequenceId is None
        and message.sequence_id is None
        and message.deliverAt is None
        and message.deliver_at is None
        and message.deliverAfterMs is None
        and message.deliver_after_ms is None
    )


def _properties(message: ProducedMessage) -> dict[str, str]:
    """Return a message's properties. Raises BadValue."""
    text = raw_or_none(message.properties)
    if text is None:
        return {}
    try:
        if len(text) > PROPERTIES_BYTES_INLINE:
            elements(text, PROPERTIES_MAX)
        properties = PROPERTIES.decode(text)
        if not has_every_member(text, properties):
            check_names(text)
    except (msgspec.DecodeError, RepeatedName) as error:
        raise BadValue(f"properties: {explain(error)}") from None
    except TooMany:
        properties = None
    if properties is None or len(properties) > PROPERTIES_MAX:
        raise BadValue(f"at most {PROPERTIES_MAX} properties")
    return properties


def _payload_text(payload: str, codec: RecordCodec) -> bytes:
    """Return a payload of Pulsar's own dialect, which is always text, as the JSON of a value."""
    if codec.type in AS_TEXT:
        return msgspec.json.encode(payload)
    try:
        msgspec.json.decode(payload.encode(), type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(payload)  # No JSON, such as a date: plain text.
    return payload.encode()


def _number(first: Number | None, second: Number | None, most: int, name: str) -> int | None:
    """Return a number from 0 to `most`, of a field that has two spellings."""
    value = second if first is None else first
    if value is None or value == "":
        return None
    number = whole_number(value)
    if not 0 <= number <= most:
        raise BadValue(f"{name} is a number from 0 to {most}")
    return number
