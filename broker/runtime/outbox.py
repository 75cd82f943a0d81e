"""Unsent bytes of a client: sent at once if the socket accepts them, otherwise by a flusher task.

Answers that wait for the disk queue here in order, and commit tickets release them. Knows sockets
and tickets, no protocol. No other code may write to the socket: a cancelled `send_all` leaves half
a frame on the wire.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import Protocol, cast

import trio

from braidlog.broker.limits import (
    ANSWER_BYTES_MAX,
    ANSWERS_MAX,
    OUTBOX_LARGE_BYTES,
    OUTPUT_SHARE_BYTES_MIN,
    SENDMSG_PARTS_MAX,
    STALL_BYTES,
)
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.streams import Stream
from braidlog.storage.formats.api import Buffer, Part, StoredPart
from braidlog.storage.log.file_part import LostBytes, all_in_memory


class Tickets(Protocol):
    """Durable commit tickets, and outboxes that wait for them (`broker/commit/durability.py`)."""

    @property
    def durable_ticket(self) -> int:
        """The newest durable ticket: all writes marked with this or a lower ticket are on disk."""

    def watch(self, outbox: Outbox, ticket: int) -> None:
        """Call `outbox.release()` once this ticket is durable."""


class Outbox:
    """Unsent bytes and pending answers of a connection.

    Guarantees: bytes leave in the order of the calls, a frame whole or not at all, and an answer
    never before the ticket is durable. `put` and `answer` never wait; `drained`, `answers_room` and
    `finished` do.
    """

    def __init__(
        self,
        sock: Stream,
        tickets: Tickets,
        budget: OutputBudget,
        *,
        start_flusher: Callable[[], bool],
        on_broken: Callable[[OSError], None],
    ) -> None:
        """Take `start_flusher`, which starts `run` as a task of the connection and returns False if
        the connection has no tasks now (the next `flush` tries again), and `on_broken`, which is
        called when the socket fails.
        """
        self.budget = budget
        self._sock = sock
        self._tickets = tickets
        self._start_flusher: Callable[[], bool] = start_flusher
        self._on_broken: Callable[[OSError], None] = on_broken
        self._plain = sock if isinstance(sock, socket.socket) else None
        self._unsent: deque[Buffer] = deque()
        self._unsent_bytes = 0
        self.sent_bytes = 0  # in all
        self._answers: deque[tuple[int, list[Buffer], int]] = deque()
        self._answer_bytes = 0
        self._charged = 0  # bytes charged to the budget
        self._changed = trio.lowlevel.ParkingLot()
        self.flushing = False  # the flusher task runs
        self._progress_at = 0.0  # since then the peer has taken less than STALL_BYTES
        self._broken = False
        self.gathering = False  # True during a receive turn: output is sent together at the end

    @property
    def sends_files(self) -> bool:
        """True if the socket accepts places in files directly (`storage/log/file_part.py`)."""
        return self._plain is not None

    @property
    def over_limit(self) -> bool:
        """True if the unsent bytes exceed this connection's share."""
        unsent = self._unsent_bytes
        return unsent > OUTPUT_SHARE_BYTES_MIN and unsent > self.budget.share

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that wait for the socket."""
        return self._unsent_bytes

    @property
    def pending_answers(self) -> int:
        """Number of answers that wait for the disk, or behind such an answer."""
        return len(self._answers)

    @property
    def has_answers_room(self) -> bool:
        """True if the queue of pending answers is below its limits."""
        return len(self._answers) < ANSWERS_MAX and self._answer_bytes <= ANSWER_BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """True if no byte and no answer waits."""
        return not self._unsent and not self._answers

    @property
    def is_broken(self) -> bool:
        """True if no client can receive later output."""
        return self._broken

    @property
    def has_room(self) -> bool:
        """True if both unsent bytes and pending answers are below their limits."""
        if self._unsent_bytes > OUTPUT_SHARE_BYTES_MIN and self.over_limit:
            return False
        return len(self._answers) < ANSWERS_MAX and self._answer_bytes <= ANSWER_BYTES_MAX

    def stalled_s(self, now: float) -> float:
        """Return the seconds for which the peer has taken almost none of the unsent bytes."""
        return now - self._progress_at if self.flushing else 0.0

    def put(self, parts: Sequence[Part]) -> None:
        """Send whole frames, after the unsent bytes. Never blocks; the caller may reuse its buffers
        afterwards.

        Does not wait for pending answers: use `answer` if the protocol answers in order. A frame
        with places in files has at least OUTBOX_LARGE_BYTES.
        """
        if self._broken:
            return
        size = sum(map(len, parts))
        if self.gathering and size < OUTBOX_LARGE_BYTES:
            self._unsent.append(_joined(parts))
            self._unsent_bytes += size
            return
        if not all_in_memory(parts):
            self._put_files(parts)
            return
        self._unsent.extend(parts)
        self._unsent_bytes += size
        self.flush()
        if self._unsent:
            self._own_unsent()

    def _put_files(self, parts: Sequence[Part]) -> None:
        """Send frames with places in files. The rest that the socket does not accept now is read
        into memory: no file stays open for a client that does not read.
        """
        self.flush()
        if self._broken:
            return
        try:
            for is_stored, run in groupby(parts, _is_stored):
                if is_stored:
                    for part in run:
                        self._put_file(cast("StoredPart", part))
                else:
                    memory = cast("list[Buffer]", list(run))
                    self._put_memory(memory, is_last=memory[-1] is parts[-1])
        except OSError as error:
            self._break(error)
            return
        self.flush()

    def _put_memory(self, parts: list[Buffer], *, is_last: bool) -> None:
        """Send parts in memory. Raises OSError."""
        sent = 0
        if not self._unsent and self._plain is not None:
            # If more parts follow, packets are filled; the last part must leave at once.
            flags = 0 if is_last else socket.MSG_MORE
            # A full socket accepts nothing, which is not an error.
            with suppress(BlockingIOError):
                sent = self._plain.sendmsg(parts[:SENDMSG_PARTS_MAX], (), flags)
        self.sent_bytes += sent
        left = deque(parts)
        _drop(left, sent)
        owned = [bytes(part) for part in left]
        self._unsent.extend(owned)
        self._unsent_bytes += sum(map(len, owned))

    def _put_file(self, part: StoredPart) -> None:
        """Send a part of a file. Raises OSError."""
        sent = 0
        if not self._unsent and self._plain is not None:
            sent = part.send(self._plain.fileno())
            self.sent_bytes += sent
        if sent < len(part):
            self._unsent.append(part.read(sent))
            self._unsent_bytes += len(part) - sent

    def answer(self, parts: Sequence[Part], ticket: int = 0) -> None:
        """Send an answer once `ticket` is durable (0: at once) and every earlier answer has left.
        Never blocks.
        """
        if self._broken:
            return
        if not self._answers and ticket <= self._tickets.durable_ticket:
            self.put(parts)
            return
        size = sum(map(len, parts))
        try:
            owned = _owned(parts, size)
        except LostBytes as error:
            self._break(error)
            return
        self._answers.append((ticket, owned, size))
        self._answer_bytes += size
        self._charge()
        if len(self._answers) == 1:
            self._tickets.watch(self, ticket)

    def release(self) -> bool:
        """Send the answers that became durable. Return True while other answers wait; these are
        watched.
        """
        durable = self._tickets.durable_ticket
        answers = self._answers
        while answers and answers[0][0] <= durable:
            _, parts, size = answers.popleft()
            self._unsent.extend(parts)
            self._unsent_bytes += size
            self._answer_bytes -= size
        self.flush()
        if self._changed:  # Some task waits, which is rare: this check is faster than a call.
            self._changed.unpark_all()
        if not answers:
            return False
        self._tickets.watch(self, answers[0][0])
        return True

    def flush(self) -> None:
        """Send the bytes that the socket accepts now; the flusher task sends the rest."""
        if self._unsent and not self.flushing:
            self._send_some()
            if self._unsent and not self._broken:
                self._progress_at = trio.current_time()
                self.flushing = self._start_flusher()
        if self._unsent_bytes + self._answer_bytes != self._charged:
            self._charge()

    async def run(self) -> None:
        """Run as the flusher task, while the socket has not accepted all bytes."""
        sent_bytes = 0
        try:
            while self._unsent:
                try:
                    await trio.lowlevel.wait_writable(self._sock)
                except trio.ClosedResourceError:  # Let the driver wake the reader of this socket.
                    await trio.lowlevel.checkpoint()
                sent_bytes += self._send_some()
                if sent_bytes >= STALL_BYTES:
                    sent_bytes, self._progress_at = 0, trio.current_time()
                self._charge()
                self._changed.unpark_all()
        finally:
            self.flushing = False
            self.budget.sent()

    async def drained(self) -> None:
        """Wait until unsent bytes are within the share: back-pressure for tasks that produce output
        in a loop.
        """
        while self._unsent_bytes > self.budget.share:
            await self._changed.park()

    async def answers_room(self) -> None:
        """Wait until the queue of pending answers is below its limits."""
        while not self.has_answers_room:
            await self._changed.park()

    async def finished(self) -> None:
        """Wait until every pending answer and byte has left, or the socket broke."""
        while self._answers or self._unsent:
            await self._changed.park()

    def abandon(self) -> None:
        """Drop unsent bytes and pending answers, and accept no more: the socket is broken or
        closed.
        """
        self._broken = True
        # Both refer to the owner of this outbox.
        self._start_flusher, self._on_broken = _start_nothing, _nothing
        self._unsent.clear()
        self._answers.clear()
        self._unsent_bytes = self._answer_bytes = 0
        self._charge()
        self._changed.unpark_all()

    def _break(self, error: OSError) -> None:
        on_broken = self._on_broken
        self.abandon()
        on_broken(error)

    def _charge(self) -> None:
        held = self._unsent_bytes + self._answer_bytes
        if held != self._charged:
            self.budget.charge(held - self._charged)
            self._charged = held

    def _own_unsent(self) -> None:
        self._unsent = deque(map(_own, self._unsent))

    def _send_some(self) -> int:  # hot: see make bench
        """Send the bytes that the socket accepts; return their number."""
        unsent = self._unsent
        sent_bytes = 0
        while unsent:
            try:
                if len(unsent) == 1:
                    sent = self._sock.send(unsent[0])
                elif self._unsent_bytes <= 4 * OUTBOX_LARGE_BYTES:
                    joined = b"".join(unsent)
                    unsent.clear()
                    unsent.append(joined)
                    sent = self._sock.send(joined)
                elif len(unsent) <= SENDMSG_PARTS_MAX:
                    sent = self._sock.sendmsg(unsent)
                else:
                    sent = self._sock.sendmsg(islice(unsent, SENDMSG_PARTS_MAX))
            except BlockingIOError:
                return sent_bytes
            except OSError as error:
                self._break(error)
                return sent_bytes
            sent_bytes += sent
            self.sent_bytes += sent
            self._unsent_bytes -= sent
            if self._unsent_bytes:
                _drop(unsent, sent)
            else:
                unsent.clear()
        return sent_bytes


def _start_nothing() -> bool:
    """Flusher of an abandoned outbox: no task."""
    return False


def _nothing(*_: object) -> None:
    """No-op callback of an abandoned outbox."""


def _drop(unsent: deque[Buffer], sent: int) -> None:
    """Remove `sent` bytes from the front."""
    while sent:
        part = unsent.popleft()
        size = len(part)
        if size > sent:
            unsent.appendleft(memoryview(part)[sent:])
            return
        sent -= size
    while unsent and not len(unsent[0]):
        unsent.popleft()


def _is_owned(part: Part) -> bool:
    """Return True if no other code can change these bytes."""
    return type(part) is bytes or (type(part) is memoryview and type(part.obj) is bytes)


def _is_stored(part: Part) -> bool:
    return isinstance(part, StoredPart)


def _joined(parts: Sequence[Part]) -> bytes:
    """Return small parts joined; no part is in a file."""
    if len(parts) == 1 and type(parts[0]) is bytes:
        return parts[0]
    # A frame with a StoredPart is large; a check of each small part costs more than the join.
    return b"".join(parts)  # type: ignore[arg-type]


def _owned(parts: Sequence[Part], size: int) -> list[Buffer]:
    """Return the parts as owned bytes. Raises LostBytes."""
    if size < OUTBOX_LARGE_BYTES:
        return [_joined(parts)]
    return [_own(part) for part in parts]


def _own(part: Part) -> Buffer:
    if isinstance(part, StoredPart):
        return part.read()
    return part if _is_owned(part) else bytes(part)
