"""A producer over WebSocket: each frame is a message, and each message gets an answer, in order.

Messages that arrive while earlier messages are being stored wait, within limits, and are then
stored together.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from random import randrange
from typing import TYPE_CHECKING, Final

import trio
from starlette.requests import Request

from braidlog.broker.delivery.open_producers import AccessMode, Producer
from braidlog.broker.errors import BrokerError, LimitExceeded
from braidlog.broker.reading.result import record_bytes
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.partitioning import key_partition
from braidlog.broker.topics.schemas import IncompatibleSchema, check_needed
from braidlog.protocols.http.errors import INCOMPATIBLE_SCHEMA, RequestRefused
from braidlog.protocols.http.ids import MessageId, write_id
from braidlog.protocols.http.limits import INLINE_BODY_BYTES
from braidlog.protocols.http.pip64.produce import (
    MAY_BE_TRIED_AGAIN,
    PROTOCOL,
    Placed,
    Producing,
)
from braidlog.protocols.http.pip64.showing import message_id
from braidlog.protocols.http.websocket import frames
from braidlog.protocols.http.websocket.frames import BadFrame
from braidlog.protocols.http.websocket.parameters import ProducerParameters
from braidlog.protocols.http.websocket.sequences import ProducerSequences
from braidlog.protocols.http.websocket.socket import FAILED, Socket, Sockets
from braidlog.storage.formats.record import Record

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition

# Characters of frames that wait to be stored; further frames are not read until these are stored.
WAITING_CHARACTERS: Final = 4 << 20
NO_PLACE: Final = 2**64 - 1  # -1 as Pulsar writes it, in the id of a repeated message.
HASH_MASK: Final = 0xFFFF_FFFF


@dataclass(slots=True)
class SentFrame:
    """A frame of the client; `answer` is set for a message that cannot be stored."""

    size: int
    record: Record | None = None
    partition: int = 0
    context: str | None = None
    answer: str = ""


class ProducerSocket(Socket):
    """A producer. Also the owner of its entries in the registry of producers."""

    version_text = "WebSocket"

    def __init__(self, sockets: Sockets, request: Request, producing: Producing) -> None:
        super().__init__(sockets, request)
        self._producing = producing
        self._opened: list[Producer] = []
        self._sequences: ProducerSequences | None = None
        self._frames: list[SentFrame] = []
        self._characters = 0
        self._refusal: BrokerError | None = None  # Of a message that a client may send again.
        self._came = trio.Event()
        self._room = trio.Event()

    # Opening.

    async def open(self) -> None:
        """Register a producer on every partition."""
        self._wanted = wanted = ProducerParameters.read(self.request.query_params)
        self._topic, self._partitions = await self.topic()
        self._name = wanted.name or f"websocket-{uuid.uuid4().hex[:12]}"
        self._sequences = ProducerSequences(
            self.broker, self._topic, self._name.encode(), wanted.initial_sequence
        )
        self._turn = randrange(len(self._partitions)) if self._partitions else 0
        for partition in self._partitions:
            await self._register(partition)
            await self._sequences.open(partition)

    async def _register(self, partition: Partition) -> None:
        registry = self.broker.open_producers
        partition.check_open()
        await partition.check_room()
        self.broker.client_policies.check_producer(self._topic, partition, encrypts=False)
        try:
            check_needed(self._topic)
        except IncompatibleSchema as error:
            raise RequestRefused(INCOMPATIBLE_SCHEMA, f"{FAILED}: {error}") from None
        opened = Producer(
            self,
            self._topic,
            partition,
            0,
            self._name,
            0,
            AccessMode.SHARED,
            0,
            self.broker.now_us(),
            {},
        )
        await registry.probe(opened)
        registry.admit(opened, None)  # Atomic: no await since the probe found the name free.
        partition.producer_joined()
        self._opened.append(opened)
        self.broker.metrics.number("braidlog_producers", PROTOCOL, partition.metrics_name).inc()

    def leave(self) -> None:
        """Remove the producer from every partition."""
        if self._sequences is not None:
            self._sequences.close()
        opened, self._opened = self._opened, []
        for producer in opened:
            self.broker.open_producers.remove(producer)
            producer.partition.producer_left()
            name = producer.partition.metrics_name
            self.broker.metrics.number("braidlog_producers", PROTOCOL, name).dec()

    # The interface for the registry of producers.

    @property
    def peer(self) -> str:
        """The client's address."""
        client = self.request.client
        return "" if client is None else f"{client.host}:{client.port}"

    def close_producer(self, producer: Producer) -> None:
        """End the connection: the topic is gone, or takes no more messages."""
        if not producer.partition.is_terminated:
            self.end("the topic is gone, or its backlog is full")

    def granted(self, producer: Producer) -> None:
        """Do nothing: the producer never waits for its turn."""

    def refused(self, producer: Producer, error: BrokerError) -> None:
        """Do nothing: the producer never waits for its turn."""

    def fenced(self, producer: Producer) -> None:
        """End the connection: an exclusive producer took over."""
        self.end("an exclusive producer took over")

    # Messages.

    async def received(self, text: str) -> None:
        """Queue a message; wait while too many messages are queued."""
        if len(text) > INLINE_BODY_BYTES:
            sent = await run_in_thread(self._read, text)
        else:
            sent = self._read(text)
        if sent.record is not None:
            self._number(sent, sent.record)
        self._frames.append(sent)
        self._characters += sent.size
        self._came.set()
        await self._pace_publishing(sent)
        while self._is_full():
            self._room = trio.Event()
            await self._room.wait()

    def _number(self, sent: SentFrame, record: Record) -> None:
        """Choose the partition and the sequence of a message; refuse the message if there is no
        sequence left.
        """
        assert self._sequences is not None
        sent.partition = self._place(record.key)
        try:
            record.sequence_id = self._sequences.take(sent.partition)
        except LimitExceeded as error:
            sent.record = None
            sent.answer = frames.send_error(frames.UNKNOWN, str(error), sent.context)

    async def _pace_publishing(self, sent: SentFrame) -> None:
        """Count a message for the publish rate of its partition, and wait for the rate."""
        if sent.record is None:
            return
        topic = self._topic
        pause_s = self.broker.client_policies.publish_pause_s(
            topic, topic.partition(sent.partition), 1, record_bytes(sent.record)
        )
        if pause_s > 0:
            await trio.sleep(pause_s)

    def _is_full(self) -> bool:
        waiting = len(self._frames)
        return waiting >= self._wanted.pending_max or self._characters >= WAITING_CHARACTERS

    def _read(self, text: str) -> SentFrame:
        try:
            message = frames.read_message(text)
            record = frames.record_of(message, self.broker.now_us() // 1000 * 1000)
        except BadFrame as error:
            answer = frames.send_error(error.number, str(error), error.context)
            return SentFrame(len(text), answer=answer)
        context = frames.text_of(message.context)
        delay_us = (record.deliver_at_us or 0) - self.broker.now_us()
        try:
            self._topic.client_limits.check_message(
                record_bytes(record), delay_us // 1000, is_encrypted=False
            )
        except BrokerError as error:
            refusal = frames.send_error(frames.UNKNOWN, str(error), context)
            return SentFrame(len(text), answer=refusal)
        record.producer_name = self._name.encode()
        return SentFrame(len(text), record, context=context)

    def _place(self, key: bytes | None) -> int:
        """Return the index of the partition for a message, as Java's routers choose."""
        count = len(self._partitions)
        if count == 1:
            return self._partitions[0].index
        if key is not None:
            number = (
                key_partition(key, count)
                if self._wanted.is_murmur
                else java_hash(key.decode()) % count
            )
            return self._partitions[number].index
        if self._wanted.is_round_robin:
            self._turn = (self._turn + 1) % count
        return self._partitions[self._turn].index

    async def run(self) -> None:
        """Store the queued messages, and answer them in their order. Raises BrokerError after a
        message that was refused for now, with deduplication.
        """
        sequences = self._sequences
        assert sequences is not None
        while True:
            await self._came.wait()
            self._came = trio.Event()
            sent, self._frames, self._characters = self._frames, [], 0
            self._room.set()
            await self._store(sent)
            for frame in sent:
                await self.send(frame.answer)
            if self._refusal is not None and sequences.number:
                # A later message would take a later number. Otherwise the refused message, sent
                # again after that, would count as a repeat: acknowledged, but not stored.
                raise self._refusal

    async def _store(self, sent: Sequence[SentFrame]) -> None:
        """Store the messages, and set the answer of each."""
        sequences = self._sequences
        assert sequences is not None
        storable = []
        for frame in sent:
            if frame.record is None:
                continue
            sequence = frame.record.sequence_id
            if sequence is not None and sequences.is_stored(frame.partition, sequence):
                frame.answer = self._repeated(frame)
            else:
                storable.append(frame)
        if not storable:
            return
        records = [frame.record for frame in storable if frame.record is not None]
        try:
            placed = await self._producing.store(
                self._topic,
                records,
                [frame.partition for frame in storable],
                producer_number=sequences.number,
            )
        except (BrokerError, RequestRefused) as error:
            self._note_refusal(error)
            for frame in storable:
                frame.answer = frames.send_error(frames.UNKNOWN, str(error), frame.context)
            return
        for frame, place in zip(storable, placed, strict=True):
            self._note_refusal(place.error)
            frame.answer = self._answer(place, frame.context)

    def _note_refusal(self, error: Exception | None) -> None:
        """Note an error after which a client may send the same message again."""
        if isinstance(error, MAY_BE_TRIED_AGAIN):
            self._refusal = error

    def _repeated(self, frame: SentFrame) -> str:
        """Return the answer to a message that was stored before: an id without a place."""
        index = frame.partition if self._topic.partitioned else -1
        return frames.ok(write_id(MessageId(NO_PLACE, NO_PLACE, index, -1)), frame.context)

    def _answer(self, place: Placed, context: str | None) -> str:
        if place.error is not None:
            return frames.send_error(frames.UNKNOWN, str(place.error), context)
        partition = self._topic.partition(place.partition)
        return frames.ok(message_id(partition, place.offset, -1), context)


def java_hash(text: str) -> int:
    """Return Pulsar's JavaStringHash of a key: Java's `hashCode`, without the sign."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    return reduce(lambda total, unit: (total * 31 + unit) & HASH_MASK, units, 0) & 0x7FFF_FFFF
