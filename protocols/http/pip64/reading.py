"""PIP-64's read of a partition: no subscription, no acknowledgement.

Knows requests, and the log through the broker's services; `streams.py` makes endless reads of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request

from braidlog.broker.errors import OffsetOutOfRange
from braidlog.broker.reading import entries
from braidlog.broker.reading.entries import EntryId
from braidlog.broker.reading.records import PlacedRecord, RecordsRead, read_records
from braidlog.protocols.http import limits, query
from braidlog.protocols.http.errors import (
    BAD_QUERY,
    BAD_QUERY_ID,
    OFFSET_OUT_OF_RANGE,
    RequestRefused,
)
from braidlog.protocols.http.ids import BadMessageId, MessageId, read_id
from braidlog.protocols.http.pip64.messages import ReadAnswer, ShownSchema
from braidlog.protocols.http.pip64.showing import Shower, ShowOptions, message_id
from braidlog.protocols.http.pip64.streams import Shown
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.resolving import SchemaFields, SchemaRegistry
from braidlog.protocols.http.waiting import Waiting

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import OutputBudget, OutputReservation, Waits
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.requests import Exchange

INT64_SPELLINGS = ("number", "string")
ENCODINGS = ("auto", "utf8", "base64")


@dataclass(slots=True, frozen=True)
class ReadLimits:
    """Limits of an answer: sizes, and the wait for the first message."""

    timeout_s: float
    messages: int
    bytes: int
    include_schema: bool


def read_limits(request: Request) -> ReadLimits:
    """Return the limits of a read or fetch; values above the listener's limits are lowered. Raises
    RequestRefused.
    """
    timeout_ms = query.number(
        request,
        ("timeout",),
        limits.TIMEOUT_MS_DEFAULT,
        least=0,
        most=limits.TIMEOUT_MS_MAX,
    )
    messages = query.number(
        request,
        ("max_messages", "maxMessages", "maxMessage"),
        limits.READ_MESSAGES_DEFAULT,
        least=1,
        most=limits.READ_MESSAGES_MAX,
    )
    size = query.number(
        request,
        ("max_bytes", "maxBytes", "maxByte"),
        limits.READ_BYTES_DEFAULT,
        least=1,
        most=limits.READ_BYTES_MAX,
    )
    assert timeout_ms is not None and messages is not None and size is not None
    include = query.truth(request, ("include_schema", "includeSchema"))
    return ReadLimits(timeout_ms / 1000, messages, size, include)


def show_options(request: Request, registry: SchemaRegistry, topic: Topic) -> ShowOptions:
    """Return the form in which the client wants values. Raises RequestRefused."""
    reader = None
    name = request.query_params.get("schema_type", request.query_params.get("schemaType"))
    if name is not None:
        chosen = registry.choose(topic, SchemaFields(type=name))
        if chosen.codec.type not in types.PRIMITIVE | types.WITHOUT_SCHEMA:
            raise RequestRefused(BAD_QUERY, f"schema_type {name[:40]!r} is not a primitive type")
        reader = chosen.codec
    return ShowOptions(
        query.choice(request, "encoding", ENCODINGS),
        query.choice(request, "int64", INT64_SPELLINGS) == "string",
        query.truth(request, ("exact",)),
        query.truth(request, ("include_format",)),
        reader,
    )


async def start_offset(request: Request, partition: Partition) -> int:
    """Return the offset at which a read begins. Raises RequestRefused; 416 beyond the log's end."""
    resumed = request.headers.get("last-event-id")
    if resumed:
        return await _after_id(resumed, partition)
    places = [name for name in ("position", "message_id", "timestamp") if _parameter(request, name)]
    if len(places) > 1:
        raise RequestRefused(BAD_QUERY, f"{places[0]} and {places[1]} exclude each other")
    if _parameter(request, "message_id"):
        return await _after_id(_parameter(request, "message_id") or "", partition)
    if _parameter(request, "timestamp"):
        time_ms = query.number(request, ("timestamp",), None, least=0, most=2**63 // 1000 - 1)
        assert time_ms is not None
        return await entries.resolve_time(partition, time_ms * 1000)
    text = (_parameter(request, "position") or "earliest").lower()
    if text == "earliest":
        return partition.log_start_offset
    if text == "latest":
        return partition.high_watermark
    offset = query.number(request, ("position",), None, least=0, most=None)
    assert offset is not None
    if offset > partition.high_watermark:
        end = partition.high_watermark
        raise RequestRefused(
            OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end of the log, {end}"
        )
    return max(offset, partition.log_start_offset)


def _parameter(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    if text is None and name == "message_id":
        text = request.query_params.get("messageId")
    return text


async def _after_id(text: str, partition: Partition) -> int:
    try:
        wanted = read_id(text)
        check_place(wanted, partition)
        return await after(wanted, partition)
    except BadMessageId as error:
        raise RequestRefused(BAD_QUERY_ID, str(error)) from None


def check_place(wanted: MessageId, partition: Partition) -> None:
    """Check that an id is of this partition. Raises BadMessageId."""
    if wanted.partition not in (-1, partition.index) or (
        wanted.partition == -1 and len(partition.topic.partition_ids) > 1
    ):
        raise BadMessageId(f"the message id is not of partition {partition.index}")
    if wanted.ledger != partition.partition_id:
        raise BadMessageId("the message id is of another topic, or of one deleted since")


async def after(wanted: MessageId, partition: Partition) -> int:
    """Return the offset after a message, or after the last message before a removed one. Raises
    BadMessageId.
    """
    if wanted.entry >= partition.high_watermark:
        raise BadMessageId("the message id is beyond the end of the log")
    if wanted.entry < partition.log_start_offset:
        return partition.log_start_offset
    covered = await entries.resolve_cumulative(partition, EntryId(wanted.ledger, wanted.entry))
    if covered is None:
        return partition.log_start_offset
    if wanted.batch_index < 0:
        return covered.position
    return min(wanted.entry + wanted.batch_index + 1, covered.position)


async def room_for(output: OutputBudget, wanted: int, waits: Waits) -> Room:
    """Reserve room for an answer with up to `wanted` bytes of keys and values. Raises what `waits`
    raises: see `Waiting.for_memory`.
    """
    expansion = limits.ANSWER_EXPANSION
    return Room(await output.reserve(expansion * wanted, expansion, waits))


class Room:
    """Memory that an answer may hold until the answer is sent."""

    def __init__(self, held: OutputReservation) -> None:
        self.bytes = held.size // limits.ANSWER_EXPANSION  # Of keys and values.
        self.held = held

    def until_sent(self, request: Request) -> None:
        """Release the room when the request has ended."""
        exchange: Exchange = request.scope["exchange"]
        exchange.at_end.append(self.give_back)

    def give_back(self) -> None:
        """Release the room."""
        self.held.keep(0)


class PartitionReader:
    """Reads a partition for a request: once, or without end for a stream of events."""

    def __init__(
        self,
        request: Request,
        partition: Partition,
        offset: int,
        waiting: Waiting,
        shower: Shower,
        output: OutputBudget,
    ) -> None:
        self._request = request
        self._partition = partition
        self._offset = offset
        self._waiting = waiting
        self._shower = shower
        self._output = output

    async def answer(self, wanted: ReadLimits) -> tuple[ReadAnswer, Sequence[ShownSchema]]:
        """Return the messages, and the schemas that the messages use."""
        partition = self._partition
        room = await self._wait(wanted.timeout_s, wanted.bytes, is_stream=False)
        room.until_sent(self._request)
        read = await self._read(room, wanted.messages)
        whole = ReadAnswer(
            await self._shower.show(partition, read.records, with_offset=True),
            read.next_offset,
            await _last_id(partition, read.records, read.next_offset),
            partition.log_start_offset,
            partition.high_watermark,
        )
        schemas = self._shower.schemas
        return whole, [schemas[version] for version in sorted(schemas)]

    @asynccontextmanager
    async def next_messages(self, seconds: float) -> AsyncIterator[Shown]:
        """Yield the next messages, after at most `seconds`."""
        room = await self._wait(seconds, limits.READ_BYTES_DEFAULT, is_stream=True)
        try:
            read = await self._read(room, limits.READ_MESSAGES_DEFAULT)
            self._offset = read.next_offset
            messages = await self._shower.show(self._partition, read.records, with_offset=True)
            yield Shown(messages, self._shower.take_largest())
        finally:
            room.give_back()

    async def _wait(self, seconds: float, bytes_max: int, *, is_stream: bool) -> Room:
        """Wait for a record, and for the room of an answer. Raises RequestRefused,
        ClientDisconnect.
        """
        partition, offset = self._partition, self._offset
        if offset >= partition.high_watermark and not partition.removed:
            wait = partial(partition.wait_for, offset)
            await self._waiting.wait(self._request, seconds, wait, is_stream=is_stream)
        waits = self._waiting.for_memory(self._request, is_stream=is_stream)
        return await room_for(self._output, bytes_max, waits)

    async def _read(self, room: Room, records_max: int) -> RecordsRead:
        """Return the next records: as many as exist now and fit the room.

        Records that retention removed are skipped. Raises UnreadableRecord, DamagedLog,
        TopicNotFound.
        """
        offset = self._offset
        while True:
            try:
                return await read_records(
                    self._partition,
                    offset,
                    bytes_max=room.bytes,
                    records_max=records_max,
                    memory=room.held,
                )
            except OffsetOutOfRange as error:
                if offset >= error.log_start_offset:
                    return RecordsRead(next_offset=offset)
                offset = error.log_start_offset


async def _last_id(
    partition: Partition, records: Sequence[PlacedRecord], next_offset: int
) -> str | None:
    """Return the id after which the next read begins; None at the beginning of the log."""
    if records:
        return message_id(partition, records[-1].entry, records[-1].batch_index)
    span = await entries.entry_at_or_before(partition, next_offset - 1)
    return None if span is None else message_id(partition, span.offset, -1)
