"""Gates: relays in front of the listeners, which cut, delay and drop on demand.

A gate accepts the clients' connections and passes the bytes to the broker's listener and back. The
broker advertises the addresses of the gates. Knows no protocol.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

RECEIVE_BYTES = 1 << 16
# Pieces of answers that one connection may hold back: a delay bounds the memory of a connection to
# 4 MiB, and a client that does not receive holds up its own connection alone.
HELD_PIECES_MAX = 64
RESET = struct.pack("ii", 1, 0)  # SO_LINGER without a wait: the close is a reset (socket(7)).
ENDED = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


@dataclass(slots=True)
class AnswerFaults:
    """Faults of a gate's answers, for all connections of the gate."""

    delay_s: float = 0.0
    drops: int = 0  # Answers to drop; each drop resets the connection.
    drops_from: int = 0  # Number of the last request that came before the drops were ordered.


class Gate:
    """The address of a listener for clients, and the connections through this address."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Listen at an address; port 0 is any free port. Raises OSError."""
        self.faults = AnswerFaults()
        self.requests = 0  # Pieces received from all clients.
        self._relays: set[_Relay] = set()
        self._socket = socket.create_server(address)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for clients."""
        host, port = self._socket.getsockname()
        return host, port

    async def run(self, broker_address: tuple[str, int]) -> None:
        """Relay connections until cancelled, then close all of them."""
        self._socket.setblocking(False)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))

        async def serve(client: trio.SocketStream) -> None:
            await self._serve(client, broker_address)

        await trio.serve_listeners(serve, [listener])

    def cut(self) -> int:
        """Reset all connections. Return the number of connections."""
        relays = tuple(self._relays)
        for relay in relays:
            relay.reset()
        return len(relays)

    def drop_answers(self, count: int) -> None:
        """Drop the next `count` answers to requests that arrive from now on. In place of such an
        answer the client gets a reset: the broker did the work, and the client cannot know.
        """
        self.faults.drops = count
        self.faults.drops_from = self.requests

    def heal(self) -> None:
        """End all faults."""
        self.faults = AnswerFaults()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    async def _serve(self, client: trio.SocketStream, broker_address: tuple[str, int]) -> None:
        async with client:
            try:
                broker = await trio.open_tcp_stream(*broker_address)
            except OSError:
                return  # The broker is stopping.
            relay = _Relay(self, client, broker)
            self._relays.add(relay)
            try:
                async with broker:
                    await relay.run()
            finally:
                self._relays.discard(relay)


class _Relay:
    """A client's connection and the broker's, with the bytes between them."""

    def __init__(self, gate: Gate, client: trio.SocketStream, broker: trio.SocketStream) -> None:
        self._gate = gate
        self._client = client
        self._broker = broker
        self._scope = trio.CancelScope()
        self._last_request = -1  # By the gate's numbers.

    async def run(self) -> None:
        """Relay in both directions until both sides have ended, or `reset`."""
        held, answers = trio.open_memory_channel[tuple[float, bytes]](HELD_PIECES_MAX)
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guarded, self._pass_requests)
                nursery.start_soon(self._guarded, self._take_answers, held)
                nursery.start_soon(self._guarded, self._pass_answers, answers)

    def reset(self) -> None:
        """End both connections; the client sees a reset."""
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._scope.cancel()

    async def _guarded(self, act: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Run a direction; if either side breaks, end both."""
        try:
            await act(*arguments)
        except ENDED:
            self._scope.cancel()

    async def _pass_requests(self) -> None:
        while data := await self._client.receive_some(RECEIVE_BYTES):
            self._gate.requests += 1
            self._last_request = self._gate.requests
            await self._broker.send_all(data)
        await self._broker.send_eof()

    async def _take_answers(self, held: trio.MemorySendChannel[tuple[float, bytes]]) -> None:
        async with held:
            while data := await self._broker.receive_some(RECEIVE_BYTES):
                faults = self._gate.faults
                if faults.drops and self._last_request > faults.drops_from:
                    faults.drops -= 1
                    self.reset()
                    return
                delay_s = faults.delay_s
                due = trio.current_time() + delay_s if delay_s else -math.inf
                await held.send((due, data))

    async def _pass_answers(self, answers: trio.MemoryReceiveChannel[tuple[float, bytes]]) -> None:
        async for due, data in answers:
            if due > -math.inf:
                await trio.sleep_until(due)
            await self._client.send_all(data)
        await self._client.send_eof()
