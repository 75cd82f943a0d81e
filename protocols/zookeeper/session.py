"""A ZooKeeper connection: frames to operations, answers and events to the outbox. Knows no bytes.

Requests of a connection are answered in order. Answers and events share a queue and wait for the
newest change of the tree to be durable: a client never sees a change that a crash could take back,
and an event is sent before every later answer.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.errors import BrokerError, LimitExceeded, NotAuthenticated
from braidlog.broker.limits import OUTPUT_SHARE_BYTES_MIN
from braidlog.broker.runtime.endings import EndConnection
from braidlog.protocols.zookeeper import words
from braidlog.protocols.zookeeper.acl import digest_id
from braidlog.protocols.zookeeper.callers import Caller
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode, wire_code
from braidlog.protocols.zookeeper.group_nodes import PROTOCOL
from braidlog.protocols.zookeeper.machine import ZooKeeperMachine, encode_event
from braidlog.protocols.zookeeper.messages import Connect, Event, KeeperRequest, Op, Word, Xid
from braidlog.protocols.zookeeper.operations import (
    OPERATIONS,
    Handler,
    OperationContext,
    Values,
    named_paths,
)
from braidlog.protocols.zookeeper.sessions import PASSWORD_BYTES
from braidlog.protocols.zookeeper.watches import Watch

if TYPE_CHECKING:
    from braidlog.broker.server.connection import Connection
    from braidlog.protocols.zookeeper.listener_state import Service
    from braidlog.protocols.zookeeper.sessions import LiveSession

# Time for the first frame of a connection, and for a client that closed its session to hang up.
SESSION_S: Final = 10.0
IDENTITIES_MAX: Final = 16  # Of a connection, by auth.
AUTH_BYTES_MAX: Final = 4096  # Name and password.
NO_PASSWORD: Final = bytes(PASSWORD_BYTES)


class Watching:
    """The watches of a connection, and the way of their events. Implements `NodeWatcher`."""

    def __init__(self, service: Service, connection: Connection) -> None:
        self.watches: set[Watch] = set()
        self.watch_bytes = 0
        self._nodes = service.nodes
        self._outbox = connection.outbox
        # Events behind an answer that is being sent in pieces; None: no such answer.
        self._held: list[tuple[Event, str]] | None = None

    def send_event(self, event: Event, path: str) -> None:
        if self._held is not None:
            self._held.append((event, path))
        else:
            self._outbox.answer([encode_event(event, path)], self._nodes.ticket)

    @contextmanager
    def holding_events(self) -> Iterator[None]:
        """Send the events of this block at its end. After an error the connection ends, and no
        event is sent.
        """
        held = self._held = []
        yield
        self._held = None
        for event, path in held:
            self.send_event(event, path)


class ZooKeeperSession:
    """The handlers of a connection; see `braidlog.broker.runtime.sessions.Session`."""

    def __init__(
        self, service: Service, connection: Connection, *, is_forwarded: bool = False
    ) -> None:
        """Serve a connection of the listener that `service` belongs to, or a connection that
        another broker forwards.
        """
        self._service = service
        self._connection = connection
        self._outbox = connection.outbox
        self._machine = ZooKeeperMachine(service.options.frame_bytes_max)
        self.frame_size = self._machine.frame_size
        self._live: LiveSession | None = None
        self._caller = Caller(service.broker, connection, is_forwarded=is_forwarded)
        self._caller.identities.append(("ip", connection.host))
        self._watching = Watching(service, connection)
        self._context = OperationContext(
            service.tree, self._caller, self._watching, service.options.chroot
        )
        self._idle_since: float | None = None  # Time without a session, as seen by `on_deadline`.

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Serve a frame. Raises ProtocolError, EndConnection."""
        self._check_current()
        if not self._machine.is_connected:
            first = self._machine.decode_first(frame)
            if isinstance(first, Word):
                self._word(first)
            else:
                self._connect(first)
            return None
        request = self._machine.decode(frame)
        live = self._live
        if live is None or self._service.sessions.live.get(live.session_id) is not live:
            raise EndConnection("the session has ended")
        live.heard(self._service.now())
        match request.op:
            case Op.PING:
                self._answer(Xid.PING, Op.PING, ())
            case Op.AUTH:
                return self._auth(request)
            case Op.CLOSE:
                return self._close(request, live)
            case _:
                return self._serve(request)
        return None

    # Sessions

    def _word(self, word: Word) -> None:
        text = words.answer(self._service, word.name, is_allowed=not self._needs_login)
        raise EndConnection(f"answered {word.name.decode()}", text)

    def _connect(self, first: Connect) -> None:
        service, machine = self._service, self._machine
        if first.zxid_seen > service.nodes.zxid:
            raise EndConnection(
                f"the client has seen zxid {first.zxid_seen:#x}, newest is {service.nodes.zxid:#x}",
                hint="the client's session is of another data directory",
            )
        service.nodes.next_zxid()
        try:
            if first.session_id:
                live = service.sessions.resume(
                    first.session_id, first.password, first.timeout_ms, self._connection
                )
            else:
                live = service.sessions.begin(first.timeout_ms, self._connection)
        except BrokerError as error:
            raise EndConnection(str(error)) from None
        if live is None:
            refusal = machine.encode_connected(0, NO_PASSWORD, 0, has_read_only=first.has_read_only)
            raise EndConnection("the session has expired", refusal)
        self._live = live
        self._caller.session_id = live.session_id
        timeout_ms = int(live.timeout_s * 1000)
        parts = machine.encode_connected(
            live.session_id, live.password, timeout_ms, has_read_only=first.has_read_only
        )
        self._outbox.answer([parts], service.nodes.ticket)

    async def _close(self, request: KeeperRequest, live: LiveSession) -> None:
        live.holder = None
        await self._service.end_session(live, "")
        self._answer(request.xid, Op.CLOSE, ())

    @property
    def _needs_login(self) -> bool:
        required = self._service.broker.authentication.required
        return required and self._connection.principal.is_anonymous

    async def _auth(self, request: KeeperRequest) -> None:
        """Add an id of the client; where access control is on, log in by name and password."""
        _, scheme, data = request.fields
        try:
            if scheme != "digest" or len(data or b"") > AUTH_BYTES_MAX:
                raise NotAuthenticated(f"scheme {scheme[:40]!r} is not served, only digest")
            text = (data or b"").decode(errors="replace")
            if self._service.broker.authentication.required:
                await self._log_in(text)
            identity = ("digest", digest_id(text))
            identities = self._caller.identities
            if identity not in identities:
                if len(identities) > IDENTITIES_MAX:
                    raise LimitExceeded(f"limit of {IDENTITIES_MAX} ids of a client reached")
                identities.append(identity)
        except (NotAuthenticated, LimitExceeded) as error:
            self._refuse(request.xid, ZkCode.AUTH_FAILED)
            raise EndConnection(str(error)) from None
        self._answer(request.xid, Op.AUTH, ())  # Go's client numbers it as any request.

    async def _log_in(self, text: str) -> None:
        name, _, password = text.partition(":")
        broker, connection = self._service.broker, self._connection
        identity = await broker.authentication.password(name, password, connection.at)
        connection.act_for(identity.principal, identity)

    # Requests

    def _serve(self, request: KeeperRequest) -> Coroutine[Any, Any, None] | None:
        context = self._context
        context.ticket, context.pieces = 0, None
        try:
            if self._needs_login:
                raise NodeError(ZkCode.NO_AUTH, "the client has not logged in")
            if request.op not in OPERATIONS:
                raise NodeError(ZkCode.UNIMPLEMENTED, f"type {request.op} is not served")
            name, handler = OPERATIONS[request.op]
            self._service.count(name)
            paths = map(context.path, named_paths(request.op, request.fields))
            refresh = context.tree.view.refresh(paths)
            if refresh is not None:
                return self._serve_later(request, self._refreshed(refresh, handler, request))
            result = handler(context, *request.fields)
        except (NodeError, BrokerError) as error:
            self._fail(request, error)
            return None
        if isinstance(result, Coroutine):
            return self._serve_later(request, result)
        self._answer(request.xid, request.op, result)
        return None

    async def _refreshed(
        self, refresh: Coroutine[Any, Any, None], handler: Handler, request: KeeperRequest
    ) -> Values:
        """Ask other brokers for their part of the nodes, then serve the request."""
        await refresh
        self._check_current()
        result = handler(self._context, *request.fields)
        return await result if isinstance(result, Coroutine) else result

    def _check_current(self) -> None:
        """Raise EndConnection if another broker has the nodes now: the client reconnects there."""
        if not self._service.is_current:
            raise EndConnection("another broker has the nodes now")

    async def _serve_later(
        self, request: KeeperRequest, result: Coroutine[Any, Any, Values]
    ) -> None:
        assert self._live is not None, "requests follow `Connect`"
        self._live.is_served = True
        try:
            values = await result
        except (NodeError, BrokerError) as error:
            self._fail(request, error)
            return
        finally:
            self._live.is_served = False
        if self._context.pieces is not None:
            await self._answer_in_pieces(request, self._context.pieces, *values)
        else:
            self._answer(request.xid, request.op, values)

    def _fail(self, request: KeeperRequest, error: NodeError | BrokerError) -> None:
        code = error.code if isinstance(error, NodeError) else wire_code(error)
        self._refuse(request.xid, code)

    def _refuse(self, xid: int, code: ZkCode) -> None:
        self._check_current()
        service = self._service
        service.broker.metrics.number("braidlog_errors", PROTOCOL, str(int(code))).inc()
        answer = self._machine.encode_error(xid, service.nodes.zxid, code)
        self._outbox.answer([answer], service.nodes.ticket)

    def _answer(self, xid: int, op: int, values: Values) -> None:
        self._check_current()
        nodes = self._service.nodes
        answer = self._machine.encode(xid, nodes.zxid, op, values)
        self._outbox.answer([answer], max(self._context.ticket, nodes.ticket))

    async def _answer_in_pieces(
        self,
        request: KeeperRequest,
        pieces: AbstractContextManager[None],
        data: bytes,
        stat: Sequence[int] = (),
    ) -> None:
        """Send an answer to a read of data piece by piece, each once the peer has taken the last.
        No other output of the connection comes between: later requests wait, and so do events.
        """
        self._check_current()
        nodes, outbox = self._service.nodes, self._outbox
        head, tail = self._machine.encode_around(
            request.xid, nodes.zxid, request.op, len(data), stat
        )
        ticket = max(self._context.ticket, nodes.ticket)
        with pieces, self._watching.holding_events():
            position = 0
            while position < len(data):
                await outbox.finished()
                await self._some_free()
                size = outbox.budget.allowance(min(len(data) - position, OUTPUT_SHARE_BYTES_MIN))
                outbox.answer([head, data[position : position + size]], ticket)
                outbox.flush()
                position, head = position + size, b""
            outbox.answer([tail], ticket)

    async def _some_free(self) -> None:
        """Wait for memory for a piece: the client is silent without its fault."""
        assert self._live is not None, "requests follow `Connect`"
        self._live.heard(self._service.now())
        self._live.is_served = True
        try:
            await self._outbox.budget.wait_for_room()
        finally:
            self._live.is_served = False

    # The driver's calls

    def turn_ended(self) -> None:
        """Do nothing: no state is kept between frames."""

    def on_deadline(self, now: float) -> float:
        """End a connection without a session. The service ends expired sessions."""
        if self._live is None or self._live.holder is not self._connection:
            if self._idle_since is not None and now >= self._idle_since + SESSION_S:
                raise EndConnection(f"no session for {SESSION_S:.0f} s")
            self._idle_since = now if self._idle_since is None else self._idle_since
        return now + SESSION_S

    def goodbye(self) -> None:
        """Send nothing: clients reconnect, and keep their sessions."""

    async def closed(self) -> None:
        """Remove the watches; the session waits for its client."""
        self._service.tree.watches.drop(self._context.watcher)
        if self._live is not None:
            self._service.sessions.left(self._live, self._connection)
