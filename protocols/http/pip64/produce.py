"""PIP-64's produce: checks a whole request, then appends a batch to each partition.

Knows records and partitions, no HTTP. A fault of the request raises RequestRefused before any
write; an error of an append is reported for each message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from braidlog.broker.config.wording import explain
from braidlog.broker.errors import (
    BrokerError,
    LimitExceeded,
    NotOwner,
    ShuttingDown,
    StorageFailed,
    StorageFull,
)
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.partitioning import key_partition
from braidlog.broker.topics.schema_rules import load_parser
from braidlog.protocols.http.errors import (
    BAD_MESSAGES,
    BAD_VALUE_SCHEMA,
    PARTITION_NOT_FOUND,
    RECORD_TOO_LARGE,
    RequestRefused,
)
from braidlog.protocols.http.limits import (
    INLINE_BODY_BYTES,
    INLINE_SLOW_BYTES,
    MESSAGES_MAX,
    PIECE_MESSAGES,
    PROPERTIES_BYTES_INLINE,
    PROPERTIES_MAX,
    RECORD_BYTES_MAX,
    RECORDS_BYTES_MIN,
    RECORDS_EXPANSION,
    TURN_MESSAGES,
)
from braidlog.protocols.http.pip64.messages import (
    Number,
    ProducedMessage,
    ProduceRequest,
    SchemaSettings,
    either,
    raw_or_none,
)
from braidlog.protocols.http.turns import between_messages
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.jsontext import (
    RepeatedName,
    TooMany,
    check_names,
    elements,
    has_every_member,
    is_deep,
)
from braidlog.protocols.http.values.primitives import PRIMITIVES, BadValue, whole_number
from braidlog.protocols.http.values.resolving import SchemaFields, SchemaRegistry
from braidlog.protocols.http.values.values import NotFromJson, RecordCodec, join_pair
from braidlog.storage.formats.plain.prepare import prepare
from braidlog.storage.formats.record import Header, Record

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.runtime.poller import Poller
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic

PROTOCOL = "http"
DEFAULT_PRODUCER = "rest"
INT64_MAX = 2**63 - 1
TIME_MS_MAX = INT64_MAX // 1000
UINT64_MAX = 2**64 - 1
NO_KEYS: Mapping[int, bytes] = {}
FINAL, RETRIABLE = 1, 2  # PIP-64's error codes of a message.
MAY_BE_TRIED_AGAIN = (StorageFull, StorageFailed, ShuttingDown, LimitExceeded, NotOwner)


@dataclass(slots=True)
class Placed:
    """The result for a message: its place, or the error that prevented the append."""

    partition: int
    ledger: int = -1
    offset: int = -1
    error: BrokerError | None = None

    @property
    def error_code(self) -> int:
        """PIP-64's code of the error."""
        return RETRIABLE if isinstance(self.error, MAY_BE_TRIED_AGAIN) else FINAL


@dataclass(slots=True)
class _PartitionPart:
    """The part of a request for a single partition."""

    records: list[Record] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # Indexes of the messages in the request.


class Producing:
    """Stores the messages of requests of a broker."""

    def __init__(self, broker: Broker, registry: SchemaRegistry) -> None:
        self._broker = broker
        self._registry = registry
        self._turns: dict[int, int] = {}  # By topic id: the partition of the next round-robin.

    async def produce(
        self,
        topic: Topic,
        request: ProduceRequest,
        *,
        only_partition: int | None = None,
        body_bytes: int,
    ) -> tuple[int | None, list[Placed]]:
        """Append every message; after the messages are on disk, return the schema version and each
        message's result.

        `body_bytes` is the request's size. Raises RequestRefused, BrokerError.
        """
        messages = request.messages or []
        if len(messages) > MESSAGES_MAX:
            raise RequestRefused(BAD_MESSAGES, f"at most {MESSAGES_MAX} messages a request")
        _check_partitions(topic)
        fields = schema_fields(request)
        if fields != SchemaFields():
            await load_parser()
        chosen = self._registry.choose(topic, fields)
        writer = _RecordWriter(
            topic, chosen.codec, self._broker.now_us(), request, only_partition, body_bytes
        )
        inline = INLINE_SLOW_BYTES if chosen.codec.is_slow else INLINE_BODY_BYTES
        if body_bytes > inline:
            records = await run_in_thread(writer.write_all, messages)
        else:
            records = await _in_turns(writer, messages, self._broker.poller)
        version, ticket = await self._registry.register(topic, chosen)
        packed = None if version is None else version.to_bytes(8, "big")
        for record in records:
            record.schema_version = packed
        named = [writer.named_partition(message) for message in messages]
        return version, await self.store(
            topic, records, named, routing_keys=writer.routing_keys, ticket=ticket
        )

    async def store(
        self,
        topic: Topic,
        records: Sequence[Record],
        named: Sequence[int | None],
        *,
        routing_keys: Mapping[int, bytes] = NO_KEYS,
        own_times: bool = False,
        ticket: int = 0,
    ) -> list[Placed]:
        """Append records to the partitions that are named, or by key, or in turn; return each
        record's result after the records are on disk.

        Records with `own_times` have different publish times. Raises RequestRefused, BrokerError.
        """
        _check_partitions(topic)  # Another client may have deleted them meanwhile.
        shares = self._shares(topic, records, named, routing_keys)
        await self._broker.poller.give_way()
        placed, ticket = await self._append(topic, shares, len(records), ticket, own_times)
        await self._broker.durability.reached(max(ticket, topic.ticket))
        return placed

    def _shares(
        self,
        topic: Topic,
        records: Sequence[Record],
        named: Sequence[int | None],
        routing_keys: Mapping[int, bytes],
    ) -> dict[int, _PartitionPart]:
        """Return the records by partition: the named partition, the key's, or the next in turn."""
        count = len(topic.partitions)
        shares: dict[int, _PartitionPart] = {}
        for number, (index, record) in enumerate(zip(named, records, strict=True)):
            if index is None:
                key = routing_keys.get(number, record.key)
                index = self._next_turn(topic, count) if key is None else key_partition(key, count)
            share = shares.setdefault(index, _PartitionPart())
            record.offset = len(share.records)  # Within its batch.
            share.records.append(record)
            share.numbers.append(number)
        return shares

    def _next_turn(self, topic: Topic, count: int) -> int:
        if len(self._turns) > 2 * len(self._broker.topics) + TURN_MESSAGES:
            self._turns.clear()  # Most belong to deleted topics.
        index = self._turns.get(topic.meta.topic_id, 0) % count
        self._turns[topic.meta.topic_id] = index + 1
        return index

    async def _append(
        self,
        topic: Topic,
        shares: dict[int, _PartitionPart],
        count: int,
        ticket: int,
        own_times: bool,
    ) -> tuple[list[Placed], int]:
        """Append the shares; return the places of messages and the ticket.

        Raises NotOwner if the topic moves, StorageFull if the disk is full, in both cases only if
        every partition fails the same way: nothing was stored.
        """
        placed = [Placed(-1)] * count
        refusals: list[BrokerError] = []
        for index, share in shares.items():
            base_offset, ledger, error = 0, -1, None
            try:
                partition = topic.partition(index)
                ledger = partition.partition_id
                base_offset, needed = await self._append_share(partition, share, own_times)
                ticket = max(ticket, needed)
            except BrokerError as refused:
                error = refused
                refusals.append(refused)
                name = type(refused).__name__
                self._broker.metrics.number("braidlog_errors", PROTOCOL, name).inc()
            for place, number in enumerate(share.numbers):
                placed[number] = Placed(index, ledger, base_offset + place, error)
        for kind in (NotOwner, StorageFull):
            if len(refusals) == len(shares) and all(
                isinstance(refusal, kind) for refusal in refusals
            ):
                raise refusals[0]
        return placed, ticket

    async def _append_share(
        self, partition: Partition, share: _PartitionPart, own_times: bool
    ) -> tuple[int, int]:
        """Append a batch; return its base offset and ticket. Raises BrokerError."""
        body: list[bytes] = []
        broker = self._broker
        draft = prepare(share.records, PIECE_MESSAGES, own_times=own_times)
        for part in draft.parts:
            body.append(part)
            if len(body) * PIECE_MESSAGES < len(share.records):
                await between_messages(len(body) * PIECE_MESSAGES, broker.poller)
        if broker.stopping.is_set():
            raise ShuttingDown("the broker is stopping")
        appended = partition.append(
            body, draft.info, body_format=draft.body_format, append_us=broker.now_us()
        )
        size = sum(map(len, body))
        broker.metrics.records_in(PROTOCOL, partition.figures_name, len(share.records), size)
        return appended.base_offset, appended.ticket


class _RecordWriter:
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
        """Return the record of a message."""
        try:
            return self._write(number, message)
        except NotFromJson as error:
            raise RequestRefused(BAD_VALUE_SCHEMA, f"messages[{number}]: {error}") from None
        except BadValue as error:
            raise RequestRefused(BAD_MESSAGES, f"messages[{number}]: {error}") from None

    def _write(self, number: int, message: ProducedMessage) -> Record:
        index = self.named_partition(message)
        if index is not None and not 0 <= index < self._partitions:
            place = f"messages[{number}]: {self._topic_name} has no partition {index}"
            raise RequestRefused(BAD_MESSAGES, place)
        key, value = self._key_and_value(number, message)
        headers = [
            Header(name.encode(), text.encode()) for name, text in _properties(message).items()
        ]
        event_ms = _number(message.eventTime, message.event_time, TIME_MS_MAX, "eventTime")
        sequence = _number(message.sequenceId, message.sequence_id, UINT64_MAX, "sequenceId")
        record = Record(
            number,
            0,
            self._now_us,
            event_ms * 1000 if event_ms else None,
            key,
            value,
            headers,
            producer_name=self._producer,
            sequence_id=sequence,
            deliver_at_us=self._deliver_at_us(message),
        )
        size = len(key or b"") + len(value or b"")
        size += sum(len(header.name) + len(header.value) for header in headers)
        if size > RECORD_BYTES_MAX:
            text = f"messages[{number}]: {size} bytes, at most {RECORD_BYTES_MAX} are taken"
            raise RequestRefused(RECORD_TOO_LARGE, text)
        self._bytes_left -= size
        if self._bytes_left < 0:
            text = f"messages[{number}]: with the ones before it many times as large as the request"
            raise RequestRefused(RECORD_TOO_LARGE, text)
        return record

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
        key_text = raw_or_none(message.key)
        value_text = raw_or_none(message.value)
        if value_text is None and message.payload is not None:
            if self._codec.type == types.BYTES:
                return self._codec.write(key_text, None)[0], message.payload.encode()
            value_text = _payload_text(message.payload, self._codec)
        if any(text is not None and is_deep(text) for text in (key_text, value_text)):
            raise BadValue("nested more than 100 deep")
        if message.encoding == message.key_encoding is None:
            key, value = self._codec.write(key_text, value_text)
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


def _check_partitions(topic: Topic) -> None:
    if not topic.partitions:
        raise RequestRefused(PARTITION_NOT_FOUND, f"{topic.name} has no partitions")


async def _in_turns(
    writer: _RecordWriter, messages: Sequence[ProducedMessage], poller: Poller
) -> list[Record]:
    records: list[Record] = []
    for number, message in enumerate(messages):
        records.append(writer.write(number, message))
        await between_messages(number + 1, poller)
    await poller.give_way()
    return records


def _properties(message: ProducedMessage) -> dict[str, str]:
    """Return a message's properties. Raises BadValue."""
    text = raw_or_none(message.properties)
    if text is None:
        return {}
    try:
        if len(text) > PROPERTIES_BYTES_INLINE:
            elements(text, PROPERTIES_MAX)
        properties = msgspec.json.decode(text, type=dict[str, str])
        if not has_every_member(text, properties):
            check_names(text)
    except (msgspec.DecodeError, RepeatedName) as error:
        raise BadValue(f"properties: {explain(error)}") from None
    except TooMany:
        properties = None
    if properties is None or len(properties) > PROPERTIES_MAX:
        raise BadValue(f"at most {PROPERTIES_MAX} properties")
    return properties


def schema_fields(request: SchemaSettings) -> SchemaFields:
    """Return the schema fields of a request."""
    return SchemaFields(
        either(request.schema_type, request.schemaType),
        either(request.schema_version, request.schemaVersion),
        raw_or_none(request.key_schema, request.keySchema),
        raw_or_none(request.value_schema, request.valueSchema),
    )


def _payload_text(payload: str, codec: RecordCodec) -> bytes:
    """Return a payload of Pulsar's own dialect, which is always text, as the JSON of a value."""
    if codec.type in (types.NONE, types.STRING):
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
