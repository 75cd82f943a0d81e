"""PIP-64's produce: checks a whole request, then appends a batch to each partition.

Knows records and partitions, no HTTP. A fault of the request raises RequestRefused before any
write; an error of an append is reported for each message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import trio

from braidlog.broker.errors import (
    BrokerError,
    LimitExceeded,
    NotOwner,
    ShuttingDown,
    StorageFailed,
    StorageFull,
)
from braidlog.broker.reading.result import record_bytes
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.partitioning import key_partition
from braidlog.broker.topics.schema_rules import load_parser
from braidlog.protocols.http.errors import (
    BAD_MESSAGES,
    INCOMPATIBLE_SCHEMA,
    PARTITION_NOT_FOUND,
    RequestRefused,
)
from braidlog.protocols.http.limits import (
    INLINE_BODY_BYTES,
    INLINE_SLOW_BYTES,
    MESSAGES_MAX,
    PIECE_MESSAGES,
    TURN_MESSAGES,
)
from braidlog.protocols.http.pip64.messages import (
    ProducedMessage,
    ProduceRequest,
    SchemaSettings,
    either,
    raw_or_none,
)
from braidlog.protocols.http.pip64.writing import RecordWriter
from braidlog.protocols.http.turns import between_messages
from braidlog.protocols.http.values.resolving import Chosen, SchemaFields, SchemaRegistry
from braidlog.storage.formats.plain.prepare import prepare
from braidlog.storage.formats.record import Record

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.runtime.poller import Poller
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic

PROTOCOL = "http"
NO_KEYS: Mapping[int, bytes] = {}
FINAL, RETRIABLE = 1, 2  # PIP-64's error codes of a message.
MAY_BE_TRIED_AGAIN = (StorageFull, StorageFailed, ShuttingDown, LimitExceeded, NotOwner)


class Placed(msgspec.Struct):
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


@dataclass(frozen=True, slots=True)
class _AppendOptions:
    """The way to store the records of a request; see `Producing.store`."""

    own_times: bool
    producer_number: int
    paced: Topic | None = None  # The topic whose publish rate counts the records.


@dataclass(slots=True)
class _Appended:
    """Records that were appended: places of messages, and the ticket of the last append."""

    placed: list[Placed]
    ticket: int
    paused_until: float = 0.0  # In trio's seconds.


@dataclass(slots=True)
class StoredMessages:
    """The result of a request: the schema's version, and each message's result. The client has to
    wait until `paused_until`, in trio's seconds, before its next request.
    """

    schema_version: int | None
    placed: list[Placed]
    paused_until: float


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
    ) -> StoredMessages:
        """Append every message; return the result after the messages are on disk.

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
        writer = RecordWriter(
            topic, chosen.codec, self._broker.now_us(), request, only_partition, body_bytes
        )
        inline = INLINE_SLOW_BYTES if chosen.codec.is_slow else INLINE_BODY_BYTES
        if body_bytes > inline:
            records = await run_in_thread(writer.write_all, messages)
        else:
            records = await _in_turns(writer, messages, self._broker.poller)
        self._check_policies(topic, records, chosen)
        version, ticket = await self._registry.register(topic, chosen)
        if version is not None:
            packed = version.to_bytes(8, "big")
            for record in records:
                record.schema_version = packed
        named = writer.named_partitions(messages)
        options = _AppendOptions(own_times=False, producer_number=0, paced=topic)
        appended = await self._store(topic, records, named, writer.routing_keys, ticket, options)
        return StoredMessages(version, appended.placed, appended.paused_until)

    async def store(
        self,
        topic: Topic,
        records: Sequence[Record],
        named: Sequence[int | None],
        *,
        own_times: bool = False,
        producer_number: int = 0,
    ) -> list[Placed]:
        """Append records to the partitions that are named, or by key, or in turn; return each
        record's result after the records are on disk. No policy of the topic is checked.

        Records with `own_times` have different publish times. `producer_number` stands for the name
        of their producer, if deduplication is on; sequences then ascend. Raises RequestRefused,
        BrokerError.
        """
        options = _AppendOptions(own_times, producer_number)
        return (await self._store(topic, records, named, NO_KEYS, 0, options)).placed

    async def _store(
        self,
        topic: Topic,
        records: Sequence[Record],
        named: Sequence[int | None],
        routing_keys: Mapping[int, bytes],
        ticket: int,
        options: _AppendOptions,
    ) -> _Appended:
        _check_partitions(topic)  # Another client may have deleted them meanwhile.
        shares = self._shares(topic, records, named, routing_keys)
        await self._broker.poller.give_way()
        appended = await self._append(topic, shares, len(records), ticket, options)
        await self._broker.durability.reached(max(appended.ticket, topic.ticket))
        return appended

    def _check_policies(self, topic: Topic, records: Sequence[Record], chosen: Chosen) -> None:
        """Check that the topic's settings allow the messages. Raises RequestRefused,
        BrokerError.
        """
        limits = topic.client_limits
        if chosen.new is not None and not limits.adds_schemas:
            text = "Schema not found and schema auto updating is disabled."  # Apache's words.
            raise RequestRefused(INCOMPATIBLE_SCHEMA, text)
        if limits.checks_messages:
            now_us = self._broker.now_us()
            for record in records:
                delay_us = (record.deliver_at_us or 0) - now_us
                limits.check_message(record_bytes(record), delay_us // 1000, is_encrypted=False)

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
            if index is None and count == 1:
                index = 0
            elif index is None:
                key = routing_keys.get(number, record.key)
                index = self._next_turn(topic, count) if key is None else key_partition(key, count)
            share = shares.get(index)
            if share is None:
                share = shares[index] = _PartitionPart()
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
        options: _AppendOptions,
    ) -> _Appended:
        """Append the shares.

        Raises NotOwner if the topic moves, StorageFull if the disk is full, in both cases only if
        every partition fails the same way: nothing was stored.
        """
        placed = [Placed(-1)] * count
        appended = _Appended(placed, ticket)
        refusals: list[BrokerError] = []
        for index, share in shares.items():
            base_offset, ledger, error = 0, -1, None
            try:
                partition = topic.partition(index)
                ledger = partition.partition_id
                base_offset = await self._append_share(partition, share, options, appended)
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
        return appended

    async def _append_share(
        self,
        partition: Partition,
        share: _PartitionPart,
        options: _AppendOptions,
        appended: _Appended,
    ) -> int:
        """Append a batch; note ticket and pause in `appended`, and return the base offset. Raises
        BrokerError.
        """
        body: list[bytes] = []
        broker = self._broker
        draft = prepare(share.records, PIECE_MESSAGES, own_times=options.own_times)
        for part in draft.parts:
            body.append(part)
            if len(body) * PIECE_MESSAGES < len(share.records):
                await between_messages(len(body) * PIECE_MESSAGES, broker.poller)
        if broker.stopping.is_set():
            raise ShuttingDown("the broker is stopping")
        info = draft.info
        if options.producer_number:
            info = replace(
                info,
                producer_id=options.producer_number,
                first_sequence=share.records[0].sequence_id or 0,
                last_sequence=share.records[-1].sequence_id or 0,
            )
        stored = partition.append(
            body, info, body_format=draft.body_format, append_us=broker.now_us()
        )
        size = sum(map(len, body))
        name, count = partition.metrics_name, len(share.records)
        broker.metrics.records_in(PROTOCOL, name, count, size, partition.traffic)
        appended.ticket = max(appended.ticket, stored.ticket)
        if options.paced is not None:
            pause_s = broker.client_policies.publish_pause_s(options.paced, partition, count, size)
            appended.paused_until = max(appended.paused_until, trio.current_time() + pause_s)
        return stored.base_offset


def _check_partitions(topic: Topic) -> None:
    if not topic.partitions:
        raise RequestRefused(PARTITION_NOT_FOUND, f"{topic.name} has no partitions")


async def _in_turns(
    writer: RecordWriter, messages: Sequence[ProducedMessage], poller: Poller
) -> list[Record]:
    records: list[Record] = []
    for start in range(0, len(messages), PIECE_MESSAGES):
        for number, message in enumerate(messages[start : start + PIECE_MESSAGES], start):
            records.append(writer.write(number, message))
        await between_messages(len(records), poller)
    await poller.give_way()
    return records


def schema_fields(request: SchemaSettings) -> SchemaFields:
    return SchemaFields(
        either(request.schema_type, request.schemaType),
        either(request.schema_version, request.schemaVersion),
        raw_or_none(request.key_schema, request.keySchema),
        raw_or_none(request.value_schema, request.valueSchema),
    )
