"""One client connection of a framed protocol: the driver that every such adapter shares. Knows no
protocol.

It owns the receive buffer, hands whole frames to the session in order, sends what is ready once a
turn, keeps time, and ends the connection in good order. A peer that breaks the rules or a bug ends
this connection and nothing else.
"""

from __future__ import annotations

import socket
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

import structlog
import trio

from broker.access.rights import ANONYMOUS, Action, Principal, Resource
from broker.limits import CLOSE_S, FRAME_STALL_S, LINGER_BYTES_MAX, LINGER_S, TURN_FRAMES_MAX
from broker.server.adapters import EndConnection, ProtocolError, Session, is_framed, takes_runs
from broker.server.outbox import Outbox
from broker.server.receive_buffer import OutOfBuffers, ReceiveBuffer

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.server.listener import Listener

DISCARD_BYTES = 64 * 1024


class Connection:
    """What a session knows of its connection, and the driver around the session.

    For sessions: `id`, `protocol`, `peer`, `local`, `advertised`, `loopback`, `principal`,
    `outbox`, `nursery`, `log`, `heard_at`, `check` and `end`.
    """

    def __init__(
        self, broker: Broker, listener: Listener, sock: socket.socket, connection_id: int
    ) -> None:
        self.id = connection_id
        self.protocol = listener.protocol
        self.peer = address_text(sock.getpeername())
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self.advertised: tuple[str, int] = listener.advertised_to(self.local)
        self.loopback = (
            listener.loopback
        )  # whether the listener can be reached from this machine only
        self.principal: Principal = ANONYMOUS  # The session says who it is, once that is known.
        self.log: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(
            protocol=self.protocol, connection=connection_id, peer=self.peer
        )
        self.outbox = Outbox(
            sock,
            broker.durability,
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

    def check(self, action: Action, resource: Resource) -> None:
        """Raises NotAuthorized if the client may not do that."""
        self._broker.access.check(self.principal, action, resource)

    def end(self, reason: str) -> None:
        """End the connection from any of its tasks; what was answered still leaves."""
        self.log.info("connection_ended", reason=reason)
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
                adapter = self._listener.adapter
                assert is_framed(adapter)
                self._session = adapter.open_session(self._broker, self, self._listener.options)
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
            self.log.error("connection_failed", exc_info=error)
            return
        ends = [cause for cause in causes if isinstance(cause, EndConnection)]
        if not ends:
            self.log.debug("connection_lost", reason=str(causes[0]))
            return
        if isinstance(ends[0], ProtocolError):
            self._broker.metrics.number("braidlog_protocol_errors", self.protocol).inc()
            self.log.warning("protocol_error", reason=ends[0].reason)
        else:
            self.log.info("connection_ended", reason=ends[0].reason)
        if ends[0].reply:
            self.outbox.answer([ends[0].reply])

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
                raise EndConnection(str(error)) from None
            self._emptied = size < len(room)
            self.heard_at = trio.current_time()
            self._inlet.received(size)
            if not waited:
                await trio.lowlevel.checkpoint()
            return size > 0
        return False

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
            await self._session.turn_ended()
            raise
        await self._session.turn_ended()
        return more

    async def _hand_over(self, session: Session) -> bool:  # hot: see make bench
        inlet, outbox = self._inlet, self.outbox
        frame_size, handle = session.frame_size, session.handle
        handle_run = session.handle_run if takes_runs(session) else None
        left = TURN_FRAMES_MAX
        while left > 0:
            filled = inlet.filled()
            if not filled:
                return False
            size = frames = 0
            if handle_run is not None:
                size, frames = handle_run(filled, left)
            if frames:
                inlet.consume(size)
                left -= frames
            else:
                needed = frame_size(filled)
                if needed is None or needed > len(filled):
                    inlet.expect(needed or 0)
                    return False
                inlet.consume(needed)
                await handle(filled[:needed])
                left -= 1
            if outbox.over_limit:
                outbox.flush()
                await outbox.drained()
        return True

    async def _keep_time(self) -> None:
        assert self._session is not None
        due = 0.0
        while True:
            now = trio.current_time()
            if now >= due:
                due = self._session.on_deadline(now)
            if self._receiving and len(self._inlet) and now - self.heard_at >= FRAME_STALL_S:
                raise ProtocolError(f"no byte for {FRAME_STALL_S:.0f} s in the middle of a frame")
            await trio.sleep_until(min(due, now + FRAME_STALL_S / 2))

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
