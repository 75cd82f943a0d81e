"""A client connection of a framed protocol: the driver that every such adapter shares. Knows no
protocol.

The poller serves the connection as long as nothing waits. Waits are awaited in a task of the
connection. The driver keeps time and ends the connection cleanly. A peer that breaks the rules, or
a bug, ends only this connection.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog
import trio

from braidlog.broker.access.acting import work_for
from braidlog.broker.access.listing import seen, sees_all
from braidlog.broker.access.rights import ANONYMOUS, Action, Principal, Resource
from braidlog.broker.errors import LimitExceeded, NotAuthenticated
from braidlog.broker.limits import CLOSE_S
from braidlog.broker.runtime.endings import EndConnection, ProtocolError
from braidlog.broker.runtime.error_groups import forget_frames, leaves
from braidlog.broker.runtime.outbox import Outbox
from braidlog.broker.runtime.receiver import Receiver, Waiting
from braidlog.broker.runtime.sessions import Session, holds_rights
from braidlog.broker.runtime.streams import Stream, is_encrypted
from braidlog.broker.server.lingering import close_sending_side
from braidlog.broker.server.tcp_info import TCP_CLOSE, TCP_CLOSE_WAIT, tcp_state, tcp_traffic
from braidlog.broker.server.written_topics import WrittenTopics
from braidlog.storage.log.file_part import LostBytes

if TYPE_CHECKING:
    from braidlog.broker.access.authentication import Identity
    from braidlog.broker.access.quotas import Allowance
    from braidlog.broker.broker import Broker

T = TypeVar("T")

LIBRARY_MAX = 100  # characters of a client's library that are kept
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: bytes that the peer did not read are dropped.


class Served(Protocol):
    """The part of a listener that its connections use."""

    name: str
    protocol: str

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the listener."""

    def advertised_to(self, local: tuple[str, int]) -> tuple[str, int]:
        """Return the address to which clients that connected to `local` should connect."""

    def open_session(self, broker: Broker, connection: Connection) -> Session:
        """Return the handlers for a new connection."""


class Connection:
    """The connection as its session sees it, and the driver around the session.

    Guarantees: frames reach the session whole and in order; answers given before the end are sent
    unless the peer does not read them; an error ends this connection and no other. The connection
    waits only for coroutines of its session, and for a peer that does not read.

    For sessions: `id`, `protocol`, `listener_name`, `peer`, `host`, `local`, `advertised`,
    `loopback`, `is_encrypted`, `principal`, `outbox`, `nursery`, `log`, `heard_at`, `check`,
    `act_for`, `note_library`, `answer_half_closed`, `end`.
    Implements `OpenConnection` and `ListedConnection`.
    """

    def __init__(self, broker: Broker, listener: Served, sock: Stream, connection_id: int) -> None:
        self.id = connection_id
        self.protocol = listener.protocol
        self.listener_name = listener.name
        address = sock.getpeername()
        self.peer = address_text(address)
        self.host: str = address[0]
        self.is_encrypted = is_encrypted(sock)
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self.advertised: tuple[str, int] = listener.advertised_to(self.local)
        self.loopback = listener.loopback  # True if only this machine can reach the listener
        self.at = f"{self.protocol} {self.host}"  # the client's origin, for the audit log
        self.library = ""  # The client's library and version, as the client names them.
        self.principal: Principal = ANONYMOUS  # The client's principal; set by `act_for`.
        self.written_topics = WrittenTopics()
        self._proof: Identity | None = None  # The client's proof of identity at the login.
        self._allowance: Allowance | None = None
        self.outbox = Outbox(
            sock,
            broker.durability,
            broker.output,
            start_flusher=self._start_flusher,
            on_broken=self._on_broken,
        )
        self.nursery: trio.Nursery  # tasks of the session; cancelled when the connection ends
        self._broker = broker
        self._listener = listener
        self._sock = sock
        self._flushes_in: trio.Nursery | None = None  # the nursery of the flusher task
        self._session: Session | None = None  # None before the conversation has begun
        self._receiver: Receiver
        self._parked: trio.lowlevel.Task | None = None  # this task, while the poller serves
        self._in_turn = False  # the poller is serving a turn
        self._is_cancelled = False  # during that turn
        self._met: Waiting | Exception | None = None  # the reason that the poller stopped serving
        self._leaving = False
        self._fault: Exception | None = None  # the error of a deadline
        self._begun_seen = 0  # at the last `notice_gone`
        self._answers_half_closed = False  # see `answer_half_closed`

    @property
    def log(self) -> structlog.typing.FilteringBoundLogger:
        """A log that names the connection."""
        log: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(**self._names)
        return log

    @property
    def _names(self) -> dict[str, object]:
        return {"protocol": self.protocol, "connection": self.id, "peer": self.peer}

    def note_library(self, name: str) -> None:
        """Keep the name of the client's library, for people; unprintable characters become `?`."""
        self.library = "".join(c if c.isprintable() else "?" for c in name[:LIBRARY_MAX])

    def stand_for(self, peer: str, host: str) -> None:
        """Take the address of a client that another broker forwards."""
        self.peer, self.host = peer, host
        self.at = f"{self.protocol} {host}"

    def traffic(self) -> tuple[int, int]:
        return tcp_traffic(self._sock)

    def check(self, action: Action, resource: Resource) -> None:
        """Raise NotAuthorized if the client may not do that."""
        self._broker.access.check(self.principal, action, resource, self.at)

    def check_within(self, within: Resource) -> None:
        """Raise NotAuthorized if the client may see nothing in that tenant or namespace."""
        self._broker.access.check_within(self.principal, within, self.at)

    def sees_all(self, namespace: tuple[str, str]) -> bool:
        """Return True if the client may see all of a namespace."""
        return sees_all(self._broker.access, self.principal, namespace)

    async def seen(
        self, namespace: tuple[str, str], items: Sequence[T], resource_of: Callable[[T], Resource]
    ) -> Sequence[T]:
        """Return the items of a namespace that the client may see."""
        return await seen(self._broker.access, self.principal, namespace, items, resource_of)

    def act_for(self, principal: Principal, proof: Identity | None = None) -> None:
        """Set the client's principal from now on, and its proof, if there is a proof.

        Raises LimitExceeded, and then changes nothing.
        """
        allowance = self._broker.quotas.of(principal)
        if allowance is not self._allowance:
            if allowance is not None:
                allowance.connect()
            self._leave_allowance()
            self._allowance = allowance
        self._count_user(principal)
        self.principal, self._proof = principal, proof
        if self._session is not None:
            self._receiver.limit(allowance)

    def _count_user(self, principal: Principal) -> None:
        """Count the connection under another user in the metrics."""
        if principal.name == self.principal.name:
            return
        for user, change in ((self.principal, -1), (principal, 1)):
            if not user.is_anonymous:
                gauge = self._broker.metrics.of_user("braidlog_user_connections", user.name)
                gauge.inc(change)

    def access_changed(self) -> None:
        if not self.is_open:
            return
        if self._proof is not None:
            try:
                principal = self._broker.authentication.renewed(self._proof)
                if principal != self.principal:
                    self.act_for(principal, self._proof)
            except (NotAuthenticated, LimitExceeded) as error:
                self.end(str(error))
                return
        assert self._session is not None, "it is open"
        if holds_rights(self._session):
            self._session.access_changed()

    def _leave_allowance(self) -> None:
        if self._allowance is not None:
            self._allowance.disconnect()
            self._allowance = None

    @property
    def heard_at(self) -> float:
        return self._receiver.heard_at

    def end(self, reason: str) -> None:
        if self._session is None:
            return
        self._note("connection_ended", "", reason=reason)
        self._leave()
        self.nursery.cancel_scope.cancel()

    def drain(self) -> None:
        if self._leaving or self._session is None:
            return
        self._leave()
        try:
            self._session.goodbye()
        except Exception:  # A bug there must not keep the broker from stopping.
            self.log.exception("goodbye_failed")
        if self._parked is not None:
            self._unpark(None)

    def cut_off(self, reason: str) -> None:
        if self._session is None:
            return
        self._note("connection_cut_off", "", reason=reason)
        self._leave()
        self.outbox.abandon()
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        self.nursery.cancel_scope.cancel()

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self._leaving

    @property
    def is_at_rest(self) -> bool:
        """See OpenConnection."""
        return self._parked is not None and not (self._receiver.is_in_frame or self.outbox.flushing)

    @property
    def held_bytes(self) -> int:
        return self._receiver.held_bytes

    def stalled_s(self, now: float) -> float:
        """Return the seconds for which almost no bytes of an unfinished frame have arrived;
        progress is noticed only in this call.
        """
        return self._receiver.stalled_s(now, receiving=self._parked is not None)

    @contextmanager
    def answer_half_closed(self) -> Generator[None, None, None]:
        """Answer the request that waits here even if the peer closes its sending side meanwhile.
        The peer may still read, or may be gone: TCP shows no difference. So waits need a limit.
        """
        self._answers_half_closed = True
        try:
            yield
        finally:
            self._answers_half_closed = False

    def notice_gone(self) -> bool:
        """Check whether the peer has closed the connection while a request waits for its answer.
        Return True from the second check during the same request on. A peer that closed only its
        sending side counts as gone, unless the session answers such peers.
        """
        begun = self._receiver.begun
        is_same, self._begun_seen = begun == self._begun_seen, begun
        if not is_same or begun == self._receiver.done:
            return False
        state = tcp_state(self._sock)
        return state == TCP_CLOSE or (state == TCP_CLOSE_WAIT and not self._answers_half_closed)

    async def run(self) -> None:
        """Serve the connection to its end, whatever the reason. Raises only cancellation."""
        work_for(self)
        with self._sock:
            try:
                await self._converse()
                await self._finish()
            except Exception:  # A bug ends only this connection.
                self.log.exception("connection_failed")
            finally:
                self.outbox.abandon()
                self._count_user(ANONYMOUS)
                self.principal = ANONYMOUS
                self._leave_allowance()
                trio.lowlevel.notify_closing(self._sock)
                self._forget()

    def _forget(self) -> None:
        """Drop references that lead back here. Python frees such cycles by a garbage collection
        that holds the event loop, for long if thousands of connections have ended.
        """
        self._session = None
        with suppress(AttributeError):  # The connection may have ended before these existed.
            del self.nursery, self._receiver

    async def _converse(self) -> None:
        failures: list[Exception] = []
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = self._flushes_in = nursery
                session = self._listener.open_session(self._broker, self)
                self._receiver = Receiver(
                    self._sock, self._broker.buffers, self.outbox, session, self._broker.poller
                )
                self._receiver.limit(self._allowance)
                self._session = session
                try:
                    due = session.on_deadline(trio.current_time())
                    self._broker.deadlines.watch(self, due)
                    await self._read()
                except Exception as error:  # Not as a group: trio's groups are cycles of frames.
                    failures.append(error)
                finally:  # The nursery closes before its end: from now on no task may be started.
                    self._leaving, self._flushes_in = True, None
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:  # A client may leave just as the broker stops.
            ended, cancelled = group.split(Exception)
            if ended is not None:
                failures.append(ended)
            if cancelled is not None:
                raise cancelled from None
        except Exception as error:  # An error of any of the tasks; `_ended_by` sorts them.
            failures.append(error)
        finally:
            self._broker.deadlines.unwatch(self)
            if self._fault is not None:
                failures.append(self._fault)
                self._fault = None
            if failures:
                self._ended_by(failures)
                forget_frames(failures)
            self._leaving = True  # No goodbye of a stopping broker follows the last answer.
            if self._session is not None:
                self._receiver.close()
                with trio.CancelScope(deadline=trio.current_time() + CLOSE_S, shield=True):
                    await self._session.closed()

    def _ended_by(self, errors: Sequence[Exception]) -> None:
        """Log the causes that ended the conversation: a bug comes before the client's faults, which
        come before the network's.
        """
        causes = [cause for error in errors for cause in leaves(error)]
        bugs = [cause for cause in causes if not isinstance(cause, EndConnection | OSError)]
        if bugs:
            self._note("connection_failed", type(bugs[0]).__name__, exc_info=bugs[0])
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
        """Log an end. Clients can cause any number: each kind is logged seldom, with a count."""
        log, cause = self._broker.seldom, f"{self.protocol} {cause}"
        levels = {"connection_failed": log.error, "connection_ended": log.info}
        levels.get(event, log.warning)(event, cause=cause, **self._names, **fields)

    async def _read(self) -> None:
        """Handle every frame, until the end of the stream or of the connection."""
        receiver = self._receiver
        waiting = None
        if not isinstance(self._sock, socket.socket):
            waiting = receiver.begin_turn()  # Finds bytes that TLS has already decrypted.
        while True:
            await receiver.finish_turn(waiting)
            if self._leaving or receiver.at_end:
                return
            if receiver.has_more and not self._broker.poller.is_in_the_loop:
                await trio.lowlevel.checkpoint()
                waiting = receiver.begin_turn()
                continue
            waiting = await self._served_by_poller(has_more=receiver.has_more)
            if waiting is None:
                return

    async def _served_by_poller(self, *, has_more: bool) -> Waiting | None:
        """Park this task until a turn has to wait, and return the wait; None at the end.

        Raises the errors of handlers.
        """

        def abort(_: object) -> trio.lowlevel.Abort:
            if self._in_turn:  # The poller wakes this task at the end of the turn.
                self._is_cancelled = True
                return trio.lowlevel.Abort.FAILED
            self._parked = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._parked = trio.lowlevel.current_task()
        self._broker.poller.watch(self._sock.fileno(), self._serve, is_due=has_more)
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._broker.poller.unwatch(self._sock.fileno())
        met, self._met = self._met, None
        if isinstance(met, Exception):
            raise met
        return met

    def _serve(self) -> bool:  # hot: see make bench
        """Make a turn in the poller's task; return True if there is more to do."""
        if self._parked is None:  # This connection's task was woken in this pass.
            return False
        receiver = self._receiver
        self._in_turn = True
        try:
            waiting = receiver.begin_turn()
        except Exception as error:  # Raised in the reading task, which sorts errors.
            self._unpark(error)
            return False
        finally:
            self._in_turn = False
        if waiting is not None:
            self._unpark(waiting)
        elif self._leaving or self._is_cancelled or receiver.at_end:
            self._unpark(None)
        else:
            return receiver.has_more
        return False

    def _unpark(self, met: Waiting | Exception | None) -> None:
        assert self._parked is not None
        self._met = met
        task, self._parked = self._parked, None
        trio.lowlevel.reschedule(task)

    def _leave(self) -> None:
        self._leaving = True
        if self._session is not None:
            self._receiver.stop()

    def keep_time(self, now: float) -> float:
        """Call the session at its deadline; return the next. An error ends the connection."""
        assert self._session is not None
        try:
            return self._session.on_deadline(now)
        except Exception as error:  # As that of a task of the connection.
            self._fault = error
            self._leave()
            self.nursery.cancel_scope.cancel()
            return math.inf

    async def _finish(self) -> None:
        """Send pending output, close the sending side, and wait a moment for the peer to close its
        side.
        """
        has_all = self._session is not None and self._receiver.at_end
        if has_all and self.outbox.is_empty and isinstance(self._sock, socket.socket):
            return  # Nothing to send and nothing unread: `close` ends the connection as well.
        if not self.outbox.is_empty:
            with trio.move_on_after(CLOSE_S) as closing:
                async with trio.open_nursery() as nursery:
                    self._flushes_in = nursery
                    self.outbox.flush()
                    await self.outbox.finished()
                    nursery.cancel_scope.cancel()
            self._flushes_in = None
            if closing.cancelled_caught:
                return
        await close_sending_side(self._sock)

    def _start_flusher(self) -> bool:
        """Start the flusher task, unless the conversation has ended: then `_finish` flushes."""
        if self._flushes_in is None:
            return False
        self._flushes_in.start_soon(self.outbox.run)
        return True

    def _on_broken(self, error: OSError) -> None:
        if isinstance(error, LostBytes):
            self._note("stored_bytes_lost", "", reason=str(error))
        else:
            self.log.debug("connection_lost", reason=str(error))
        self._leave()
        self.nursery.cancel_scope.cancel()


def address_text(address: tuple[Any, ...]) -> str:
    """Return `host:port`, with IPv6 in brackets."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
