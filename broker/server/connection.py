"""One client connection of a framed protocol: the driver that every such adapter shares. Knows no
protocol.

It owns the receive buffer, hands whole frames to the session in order, sends what is ready once a
turn, keeps time, and ends the connection in good order. A peer that breaks the rules or a bug ends
this connection and nothing else.
"""

from __future__ import annotations

import socket
import struct
import time
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Protocol

import structlog
import trio

from broker.access.rights import ANONYMOUS, Action, Principal, Resource
from broker.limits import (
    CLOSE_S,
    LINGER_BYTES_MAX,
    LINGER_S,
    RECEIVE_MEMORY_S,
    STALL_BYTES,
    TURN_FRAMES_MAX,
    TURN_S_MAX,
)
from broker.server.endings import EndConnection, ProtocolError
from broker.server.outbox import Outbox
from broker.server.receive_buffer import OutOfBuffers, ReceiveBuffer
from broker.server.sessions import Session, takes_runs
from broker.server.tls import TlsSocket

if TYPE_CHECKING:
    from broker.broker import Broker

Stream = socket.socket | TlsSocket

DISCARD_BYTES = 64 * 1024
# States of a socket whose peer has closed its side, or that is reset (tcp(7), TCP_INFO).
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: what the peer did not take is thrown away.


class Served(Protocol):
    """What a connection asks of the listener that took it in."""

    protocol: str

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""

    def advertised_to(self, local: tuple[str, int]) -> tuple[str, int]:
        """Where clients that came in at `local` are told to connect."""

    def open_session(self, broker: Broker, connection: Connection) -> Session:
        """The handlers for a connection that has just come in."""


class Connection:
    """What a session knows of its connection, and the driver around the session.

    For sessions: `id`, `protocol`, `peer`, `host`, `local`, `advertised`, `loopback`,
    `is_encrypted`, `principal`, `outbox`, `nursery`, `log`, `heard_at`, `check` and `end`.
    """

    def __init__(self, broker: Broker, listener: Served, sock: Stream, connection_id: int) -> None:
        self.id = connection_id
        self.protocol = listener.protocol
        self.peer = address_text(sock.getpeername())
        self.host: str = sock.getpeername()[0]
        self.is_encrypted = isinstance(sock, TlsSocket)
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self.advertised: tuple[str, int] = listener.advertised_to(self.local)
        self.loopback = listener.loopback  # whether only this machine can reach the listener
        self.principal: Principal = ANONYMOUS  # The session says who it is, once that is known.
        self.log: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(
            protocol=self.protocol, connection=connection_id, peer=self.peer
        )
        self.outbox = Outbox(
            sock,
            broker.durability,
            broker.output,
            start_flusher=self._start_flusher,
            on_broken=self._on_broken,
        )
        self.nursery: trio.Nursery  # tasks of the session; cancelled when the connection ends
        self.heard_at = trio.current_time()  # time of the last bytes received, in trio's seconds
        self._broker = broker
        self._listener = listener
        self._sock = sock
        self._inlet = ReceiveBuffer(broker.buffers)
        self._io: trio.Nursery
        self._session: Session | None = None
        self._receiving = False
        self._emptied = False  # the last receive took all that the socket had
        self._leaving = False
        self._begun = 0  # frames given to the session
        self._done = 0  # of which it has handled so many
        self._begun_seen = 0  # at the last `is_gone`
        self._received = 0  # bytes
        # What was received and begun when something last moved, and when that was seen.
        self._progress = (0, 0)
        self._progress_at = self.heard_at

    def check(self, action: Action, resource: Resource) -> None:
        """Raises NotAuthorized if the client may not do that."""
        self._broker.access.check(self.principal, action, resource)

    def end(self, reason: str) -> None:
        """End the connection from any of its tasks; what was answered still leaves."""
        self._note("connection_ended", "", reason=reason)
        self._leaving = True
        self.nursery.cancel_scope.cancel()

    def drain(self) -> None:
        """The broker is stopping: tell the client, read nothing more, finish what was begun."""
        if self._leaving or self._session is None:
            return
        self._leaving = True
        try:
            self._session.goodbye()
        except Exception:
            self.log.exception("goodbye_failed")
        trio.lowlevel.notify_closing(self._sock)

    def cut_off(self, reason: str) -> None:
        """End the connection at once: the peer does not take what is for it."""
        self._note("connection_cut_off", "", reason=reason)
        self._leaving = True
        self.outbox.abandon()
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        self.nursery.cancel_scope.cancel()

    @property
    def is_open(self) -> bool:
        """Whether nothing has ended it yet."""
        return self._session is not None and not self._leaving

    @property
    def held_bytes(self) -> int:
        """Memory for what it has received and not handled."""
        return self._inlet.held_bytes

    def stalled_s(self, now: float) -> float:
        """For how long next to nothing of a frame that has begun has come in, as far as was seen
        by those who asked.
        """
        received, begun = self._progress
        moves = self._received - received >= STALL_BYTES or self._begun != begun
        if moves or not (self._receiving and len(self._inlet)):
            self._progress = (self._received, self._begun)
            self._progress_at = now
        return now - self._progress_at

    def is_gone(self) -> bool:
        """Whether the peer has closed the connection while a handler of it is at work, and was so
        when this was asked before: nobody waits for the answer.
        """
        is_same, self._begun_seen = self._begun == self._begun_seen, self._begun
        if not is_same or self._begun == self._done:
            return False
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return info[0] in (TCP_CLOSE, TCP_CLOSE_WAIT)

    async def run(self) -> None:
        """Serve the connection until it is over, whatever the reason. Only cancellation leaves as
        an exception.
        """
        with self._sock:
            try:
                async with trio.open_nursery() as io:
                    self._io = io
                    await self._converse()
                    await self._finish()
                    io.cancel_scope.cancel()
            except Exception:
                self.log.exception("connection_failed")
            finally:
                self.outbox.abandon()
                trio.lowlevel.notify_closing(self._sock)

    async def _converse(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                self._session = self._listener.open_session(self._broker, self)
                nursery.start_soon(self._keep_time)
                await self._read()
                nursery.cancel_scope.cancel()
        except Exception as error:
            self._ended_by(error)
        finally:
            self._leaving = True  # No goodbye of a stopping broker comes behind the last answer.
            self._inlet.close()
            if self._session is not None:
                with trio.CancelScope(deadline=trio.current_time() + CLOSE_S, shield=True):
                    await self._session.closed()

    def _ended_by(self, error: Exception) -> None:
        """Sort what ended the conversation: a bug comes before the client's faults, which come
        before the network's.
        """
        causes = list(_leaves(error))
        bugs = [cause for cause in causes if not isinstance(cause, EndConnection | OSError)]
        if bugs:
            self._note("connection_failed", type(bugs[0]).__name__, exc_info=error)
            return
        ends = [cause for cause in causes if isinstance(cause, EndConnection)]
        if not ends:
            self.log.debug("connection_lost", reason=str(causes[0]))
            return
        if isinstance(ends[0], ProtocolError):
            self._broker.metrics.number("braidlog_protocol_errors", self.protocol).inc()
        event = "protocol_error" if isinstance(ends[0], ProtocolError) else "connection_ended"
        hint = {"hint": ends[0].hint} if ends[0].hint else {}
        self._note(event, ends[0].hint, reason=ends[0].reason, **hint)
        if ends[0].reply:
            self.outbox.answer([ends[0].reply])

    def _note(self, event: str, cause: str, **fields: object) -> None:
        """Log an end: clients can cause them without end, so each kind seldom, with its count."""
        log, cause = self._broker.seldom, f"{self.protocol} {cause}"
        bound = {"protocol": self.protocol, "connection": self.id, "peer": self.peer}
        if event == "connection_failed":
            log.error(event, cause=cause, **bound, **fields)
        elif event == "connection_ended":
            log.info(event, cause=cause, **bound, **fields)
        else:
            log.warning(event, cause=cause, **bound, **fields)

    async def _read(self) -> None:
        outbox = self.outbox
        while not self._leaving and await self._receive():
            while await _sending_before_waits(self._turn(), outbox):
                await trio.lowlevel.checkpoint()
            if outbox.over_limit:
                await outbox.drained()
            if not outbox.has_answers_room:
                await outbox.answers_room()

    async def _receive(self) -> bool:
        """Take what the socket has, or wait for it; False at the end of the stream. One checkpoint,
        either way.
        """
        waited = False
        while not self._leaving:
            if self._emptied:  # Asking it again for nothing costs as much as a small request.
                self._emptied = False
                self._inlet.rest()
                waited = True
                await self._wait_readable()
                continue
            try:
                room = self._inlet.room()
                size = self._sock.recv_into(room)
            except BlockingIOError:
                self._emptied = True
                continue
            except OutOfBuffers as error:
                await self._wait_for_memory(error)
                waited = True
                continue
            self._emptied = size < len(room)
            self.heard_at = trio.current_time()
            self._inlet.received(size)
            self._received += size
            if not waited:
                await trio.lowlevel.checkpoint()
            return size > 0
        return False

    async def _wait_for_memory(self, error: OutOfBuffers) -> None:
        """Receive nothing until others have given memory back. Raises EndConnection if they do
        not.
        """
        with trio.move_on_after(RECEIVE_MEMORY_S):
            await self._broker.buffers.freed()
            return
        raise EndConnection(f"no memory to receive into: {error}")

    async def _wait_readable(self) -> None:
        self._receiving = True
        try:
            await trio.lowlevel.wait_readable(self._sock)
        except trio.ClosedResourceError:
            pass  # `drain` wakes us so; the caller looks at `_leaving`.
        finally:
            self._receiving = False

    async def _turn(self) -> bool:
        """Hand over the whole frames received; True if more of them are left than one turn may
        take.
        """
        assert self._session is not None
        try:
            more = await self._hand_over(self._session)
        except EndConnection:
            await self._end_turn(self._session)
            raise
        await self._end_turn(self._session)
        return more

    async def _end_turn(self, session: Session) -> None:
        waiting = session.turn_ended()
        if waiting is not None:
            await waiting

    async def _hand_over(self, session: Session) -> bool:  # hot: see make bench
        inlet, outbox = self._inlet, self.outbox
        frame_size, handle = session.frame_size, session.handle
        handle_run = session.handle_run if takes_runs(session) else None
        left = TURN_FRAMES_MAX
        clock: _TurnClock | None = None
        while left > 0:
            filled = inlet.filled()
            if not filled:
                return False
            if left < TURN_FRAMES_MAX:
                clock = clock or _TurnClock()
                if clock.is_over():
                    return True
            size = frames = 0
            if handle_run is not None:
                size, frames = handle_run(filled, left)
            if frames:
                inlet.consume(size)
                left -= frames
                self._done = self._begun = self._begun + frames
            else:
                needed = frame_size(filled)
                if needed is None or needed > len(filled):
                    inlet.expect(needed or 0)
                    return False
                inlet.consume(needed)
                self._begun += 1
                waiting = handle(filled[:needed])
                if waiting is not None:
                    await waiting
                self._done = self._begun
                left -= 1
            if outbox.over_limit:
                outbox.flush()
                await outbox.drained()
            if self._leaving:  # Nobody will read the answers.
                return False
        return True

    async def _keep_time(self) -> None:
        assert self._session is not None
        while True:
            await trio.sleep_until(self._session.on_deadline(trio.current_time()))

    async def _finish(self) -> None:
        """Send what is pending, close our side, and wait a moment for the peer to close its own."""
        with trio.move_on_after(CLOSE_S) as closing:
            await self.outbox.finished()
        if closing.cancelled_caught:
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
            with trio.move_on_after(LINGER_S):
                await self._linger()
        except OSError:
            pass  # The peer is gone: what lingering is there to find out.

    async def _linger(self) -> None:
        """Read on for a while: closing over unread bytes sends a reset, which can overtake the last
        answer.
        """
        discarded = 0
        while discarded < LINGER_BYTES_MAX:
            try:
                received = len(self._sock.recv(DISCARD_BYTES))
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
                continue
            if not received:
                return
            discarded += received
            await trio.lowlevel.checkpoint()

    def _start_flusher(self) -> None:
        self._io.start_soon(self.outbox.run)

    def _on_broken(self, error: OSError) -> None:
        self.log.debug("connection_lost", reason=str(error))
        self._leaving = True
        self.nursery.cancel_scope.cancel()


class _TurnClock:
    """Tells when a turn has taken TURN_S_MAX of the processor, or up to twice as much.

    The wall's clock is quick to ask, and says when to ask the processor's, which is not.
    """

    __slots__ = ("_ask_at", "_begun")

    def __init__(self) -> None:
        self._ask_at = time.perf_counter() + TURN_S_MAX
        self._begun: float | None = None

    def is_over(self) -> bool:
        """Whether others are to have their turn."""
        now = time.perf_counter()
        if now < self._ask_at:
            return False
        self._ask_at = now + TURN_S_MAX
        used = time.thread_time()
        if self._begun is None:
            self._begun = used
        return used - self._begun >= TURN_S_MAX / 2


@types.coroutine
def _sending_before_waits(
    turn: Coroutine[Any, Any, bool], outbox: Outbox
) -> Generator[Any, Any, bool]:
    """Await a turn whose output leaves with one send at its end, or as soon as it really waits for
    something.

    So pipelined requests share a send, and no answer waits behind a handler that does (a long
    poll).
    """
    resume: Any = turn.send
    argument: Any = None
    while True:
        outbox.gathering = True
        try:
            awaited = resume(argument)
        except StopIteration as stop:
            return bool(stop.value)
        finally:
            outbox.gathering = False
            outbox.flush()
        try:
            argument = yield awaited
            resume = turn.send
        except BaseException as error:
            argument = error
            resume = turn.throw


def _leaves(error: BaseException) -> Generator[BaseException, None, None]:
    """The errors in a group, groups inside groups included."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def address_text(address: tuple[Any, ...]) -> str:
    """`host:port` as people write it, IPv6 in brackets."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
