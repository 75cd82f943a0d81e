"""A reader over WebSocket: no subscription; each acknowledgement lets one more message come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio
from starlette.requests import Request

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.errors import OffsetOutOfRange
from braidlog.broker.reading.records import RecordsRead, read_records
from braidlog.broker.runtime.output_budget import just_wait
from braidlog.protocols.http.ids import BadMessageId
from braidlog.protocols.http.limits import READ_BYTES_DEFAULT
from braidlog.protocols.http.pip64.produce import PROTOCOL
from braidlog.protocols.http.pip64.reading import Room, after, check_place, room_for
from braidlog.protocols.http.websocket import frames
from braidlog.protocols.http.websocket.consumer import written
from braidlog.protocols.http.websocket.frames import BadFrame
from braidlog.protocols.http.websocket.parameters import ReaderParameters, bad_parameter
from braidlog.protocols.http.websocket.socket import BAD_DATA, Socket, Sockets

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition


class ReaderSocket(Socket):
    """A reader. `_positions` has the next offset of each partition."""

    def __init__(self, sockets: Sockets, request: Request) -> None:
        super().__init__(sockets, request)
        self._positions: dict[Partition, int] = {}
        self._window = 0
        self._widened = trio.Event()

    async def open(self) -> None:
        """Find the start in every partition."""
        self._wanted = wanted = ReaderParameters.read(self.request.query_params)
        self._topic, partitions = await self.topic()
        policies, kind = self.broker.client_policies, SubscriptionKind.EXCLUSIVE
        policies.check_consumer(self._topic, b"", kind, is_durable=False)
        for partition in partitions:
            self.broker.dispatchers.check_count(self._topic, partition)
        for partition in partitions:
            self._positions[partition] = (
                partition.log_start_offset if wanted.is_earliest else partition.high_watermark
            )
        if wanted.start is not None:
            partition = next(
                (item for item in partitions if item.partition_id == wanted.start.ledger),
                partitions[0],
            )
            try:
                check_place(wanted.start, partition)
                self._positions[partition] = await after(wanted.start, partition)
            except BadMessageId as error:
                raise bad_parameter(f"Invalid messageId value: {error}") from None
        self._window = wanted.queue

    def leave(self) -> None:
        """Do nothing: a reader leaves no trace."""

    async def run(self) -> None:
        """Send messages of all partitions, in turns."""
        while True:
            if self._window <= 0:
                self._widened = trio.Event()
                await self._widened.wait()
                continue
            self._check_again()
            ready = list(self._ready())
            if not ready:
                await self._wait()
            for partition in ready:
                if self._window > 0:
                    await self._send_some(partition)

    def _ready(self) -> Iterator[Partition]:
        for partition, offset in self._positions.items():
            partition.check_here()
            if offset < partition.high_watermark:
                yield partition

    async def _wait(self) -> None:
        """Wait for a record in any partition."""

        async def wait_for(partition: Partition, offset: int) -> None:
            await self._guarded(lambda: partition.wait_for(offset))
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for partition, offset in self._positions.items():
                nursery.start_soon(wait_for, partition, offset)

    async def _send_some(self, partition: Partition) -> None:
        room = await room_for(self.broker.output, READ_BYTES_DEFAULT, just_wait)
        try:
            read = await self._read(partition, room)
            self._positions[partition] = read.next_offset
            for placed in read.records:
                self._window -= 1
                await self.send(await written(partition, placed, 0))
                size = len(placed.record.value or b"")
                self.broker.metrics.records_out(
                    PROTOCOL, partition.metrics_name, 1, size, partition.traffic
                )
        finally:
            room.give_back()

    async def _read(self, partition: Partition, room: Room) -> RecordsRead:
        """Return the next records; records that retention removed are skipped."""
        offset = self._positions[partition]
        try:
            return await read_records(
                partition,
                offset,
                bytes_max=room.bytes,
                records_max=self._window,
                memory=room.held,
            )
        except OffsetOutOfRange as error:
            return RecordsRead(next_offset=max(offset, error.log_start_offset))

    async def received(self, text: str) -> None:
        """Handle a frame: every frame but a question counts as an acknowledgement."""
        try:
            command = frames.read_command(text)
        except BadFrame as error:
            self.end(str(error), BAD_DATA)
            return
        if command.type == "isEndOfTopic":
            is_end = self._topic.is_terminated and not any(self._ready())
            await self.send(frames.END_OF_TOPIC[is_end])
            return
        self._window = min(self._window + 1, self._wanted.queue)
        self._widened.set()
