"""Connections of clients in a cluster: the catalogue's owner serves each session.

`ClusterClient` is at the broker that the client connects to. Its first frame decides: if this
broker owns the catalogue, a `ZooKeeperSession` serves the client; otherwise every frame goes to the
owner and every answer comes back, unchanged. `ForwardedClient` is at the owner: the first frame
there is an introduction, which names the client. If the connection between the brokers is lost, the
client's is ended too: the client reconnects, and its session goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from braidlog.broker.access.rights import Principal
from braidlog.broker.cluster.placement import elsewhere
from braidlog.broker.errors import LimitExceeded, NotOwner
from braidlog.broker.runtime.endings import EndConnection, ProtocolError
from braidlog.protocols.framing import LengthPrefix
from braidlog.protocols.zookeeper.jute import I32
from braidlog.protocols.zookeeper.machine import ZooKeeperMachine
from braidlog.protocols.zookeeper.session import SESSION_S, ZooKeeperSession

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.cluster.placement import Owner
    from braidlog.broker.server.connection import Connection
    from braidlog.protocols.zookeeper.listener_state import Service
    from braidlog.protocols.zookeeper.options import ZooKeeperOptions

# Time for the catalogue to have an owner that serves the nodes; then the client is disconnected,
# and tries its next address.
FIND_S: Final = 5.0
INTRODUCTION_BYTES_MAX: Final = 16 * 1024
RECEIVE_BYTES: Final = 64 * 1024
INTRODUCTION: Final = LengthPrefix(I32, 1, INTRODUCTION_BYTES_MAX)

FindService = Callable[[], "Service | None"]


class Introduction(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A forwarded client: address and identity."""

    peer: str
    host: str
    name: str
    roles: list[str]
    is_anonymous: bool


class ClusterClient:
    """The handlers of a client's connection; see `braidlog.broker.runtime.sessions.Session`."""

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        options: ZooKeeperOptions,
        find_service: FindService,
    ) -> None:
        """`find_service` returns the tree if this broker has the nodes."""
        self._broker = broker
        self._connection = connection
        self._machine = ZooKeeperMachine(options.frame_bytes_max)
        self._find_service = find_service
        self._session: ZooKeeperSession | None = None
        self._owner: trio.SocketStream | None = None
        self._idle_since: float | None = None

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole size of the next frame, None until known. Raises ProtocolError."""
        return self._machine.frame_size(view)

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Serve or forward a frame. Raises ProtocolError, EndConnection."""
        if self._session is not None:
            return self._session.handle(frame)
        if self._owner is not None:
            return self._send(bytes(frame))
        self._machine.decode_first(frame)
        return self._begin(bytes(frame))

    async def _begin(self, frame: bytes) -> None:
        tries = self._broker.peers.tries(FIND_S)
        while True:
            try:
                await self._choose()
                break
            except NotOwner as error:
                if not await tries.again(error):
                    raise EndConnection(str(error)) from None
        if self._session is not None:
            waiting = self._session.handle(memoryview(bytearray(frame)))
            if waiting is not None:
                await waiting
        else:
            await self._send(self._introduction() + frame)
            self._connection.nursery.start_soon(self._return_answers)

    async def _choose(self) -> None:
        """Choose the broker that has the nodes. Raises NotOwner."""
        owner = self._broker.placement.catalogue_owner()
        if owner is None:
            service = self._find_service()
            if service is None:
                raise NotOwner("this broker has not read the nodes yet")
            self._session = ZooKeeperSession(service, self._connection)
        else:
            self._owner = await self._connect(owner)

    async def _connect(self, owner: Owner) -> trio.SocketStream:
        if not owner.node_id:
            raise elsewhere("the catalogue", owner)
        return await self._broker.peers.forward(owner.node_id, self._connection.listener_name)

    def _introduction(self) -> bytes:
        connection = self._connection
        principal = connection.principal
        client = Introduction(
            connection.peer,
            connection.host,
            principal.name,
            sorted(principal.roles),
            principal.is_anonymous,
        )
        body = msgspec.msgpack.encode(client)
        return I32.pack(len(body)) + body

    async def _send(self, data: bytes) -> None:
        assert self._owner is not None
        try:
            await self._owner.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise EndConnection(f"the owner of the catalogue has gone: {error}") from None

    async def _return_answers(self) -> None:
        """Send the owner's answers to the client until the owner ends the connection."""
        assert self._owner is not None
        outbox = self._connection.outbox
        budget = outbox.budget
        try:
            while data := await self._owner.receive_some(budget.allowance(RECEIVE_BYTES)):
                outbox.answer([data])
                if outbox.over_limit:
                    await outbox.drained()
                if budget.is_spent(outbox.unsent_bytes):
                    await budget.wait_for_room(lambda: outbox.unsent_bytes)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._connection.end(f"the owner of the catalogue has gone: {error}")
        else:
            self._connection.end("the owner of the catalogue has ended the connection")

    # The driver's calls

    def turn_ended(self) -> None:
        """Do nothing: no state is kept between frames."""

    def on_deadline(self, now: float) -> float:
        """End a connection without a first frame. The owner ends forwarded connections."""
        if self._session is not None:
            return self._session.on_deadline(now)
        if self._owner is None:
            if self._idle_since is not None and now >= self._idle_since + SESSION_S + FIND_S:
                raise EndConnection(f"no session for {SESSION_S + FIND_S:.0f} s")
            self._idle_since = now if self._idle_since is None else self._idle_since
        return now + SESSION_S

    def goodbye(self) -> None:
        """Send nothing: clients reconnect, and keep their sessions."""

    async def closed(self) -> None:
        """End the connection to the owner, or the session's."""
        if self._owner is not None:
            await trio.aclose_forcefully(self._owner)
        if self._session is not None:
            await self._session.closed()


class ForwardedClient:
    """Serves a client of another broker, which forwards its frames."""

    def __init__(self, connection: Connection, find_service: FindService) -> None:
        self._connection = connection
        self._find_service = find_service
        self._session: ZooKeeperSession | None = None

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole size of the next frame, None until known. Raises ProtocolError."""
        if self._session is None:
            return INTRODUCTION.frame_size(view)
        return self._session.frame_size(view)

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Serve a frame. Raises ProtocolError, EndConnection."""
        if self._session is not None:
            return self._session.handle(frame)
        try:
            client = msgspec.msgpack.decode(frame[I32.size :], type=Introduction)
        except msgspec.MsgspecError as error:
            raise ProtocolError(str(error)) from None
        service = self._find_service()
        if service is None:
            raise EndConnection("this broker has not read the nodes yet")
        connection = self._connection
        connection.stand_for(client.peer, client.host)
        principal = Principal(client.name, frozenset(client.roles), client.is_anonymous)
        try:
            connection.act_for(principal)
        except LimitExceeded as error:
            raise EndConnection(str(error)) from None
        self._session = ZooKeeperSession(service, connection, is_forwarded=True)
        return None

    # The driver's calls

    def turn_ended(self) -> None:
        """Do nothing: no state is kept between frames."""

    def on_deadline(self, now: float) -> float:
        """End a connection without a session."""
        return now + SESSION_S if self._session is None else self._session.on_deadline(now)

    def goodbye(self) -> None:
        """Send nothing: clients reconnect, and keep their sessions."""

    async def closed(self) -> None:
        """End the session's connection."""
        if self._session is not None:
            await self._session.closed()
