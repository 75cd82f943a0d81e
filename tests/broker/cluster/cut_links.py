"""Links between brokers in this process that can be cut once the other side has done the work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from broker.cluster.calls import INTERNAL
from broker.cluster.links import MAC_BYTES, MAGIC, NONCE_BYTES
from tests.broker.cluster.nodes import Node
from tests.waiting import until

HANDSHAKE_BYTES = len(MAGIC) + NONCE_BYTES + MAC_BYTES  # What the side sends that is called.
PIECE_BYTES = 1 << 16


class Cutter:
    """Forwards what comes for a broker's internal port. `answers_to_lose`: so many answers are
    dropped, and their connections are cut.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.answers_to_lose = 0
        self.lost = 0

    async def forward(self, client: trio.SocketStream) -> None:
        """Serve one connection."""
        async with (
            client,
            await trio.open_tcp_stream(*self._target) as server,
            trio.open_nursery() as both,
        ):
            both.start_soon(self._requests, client, server, both.cancel_scope)
            both.start_soon(self._answers, server, client, both.cancel_scope)

    async def _requests(
        self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            async for piece in client:
                await server.send_all(piece)
        except trio.BrokenResourceError:
            pass
        scope.cancel()

    async def _answers(
        self, server: trio.SocketStream, client: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        sent = 0
        try:
            async for piece in server:
                if sent >= HANDSHAKE_BYTES and self.answers_to_lose:
                    self.answers_to_lose -= 1
                    self.lost += 1
                    break
                await client.send_all(piece)
                sent += len(piece)
        except trio.BrokenResourceError:
            pass
        scope.cancel()


@asynccontextmanager
async def cut_links(asker: Node, owner: Node) -> AsyncIterator[Cutter]:
    """Have the asker reach the owner through a `Cutter`. Somebody must let both brokers step on."""
    (address,) = [owner.internal.addresses([])[INTERNAL]]
    host, port = address.rsplit(":", 1)
    cutter = Cutter((host, int(port)))
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, cutter.forward, 0)
        shown = ("127.0.0.1", listeners[0].socket.getsockname()[1])
        told = {INTERNAL: f"{shown[0]}:{shown[1]}"}
        await trio.to_thread.run_sync(owner.shared.session.tell_addresses, told)
        others = asker.broker.placement.others
        await until(lambda: [one.addresses[INTERNAL] for one in others()] == [shown])
        await asker.broker.home.close()  # Connections that go past the cutter.
        yield cutter
        nursery.cancel_scope.cancel()
