"""Waiting requests: each waits for records until the client leaves, the broker stops, or the
timeout ends; or for output memory until the first two.

Knows no route. ASGI reports a disconnected client only by a message (`http.disconnect`), so a task
has to watch for that message.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio
from starlette.requests import ClientDisconnect, Request

from braidlog.broker.errors import BrokerError, ShuttingDown
from braidlog.protocols.http.errors import TOO_BUSY, RequestRefused
from braidlog.protocols.http.limits import WAITING_MAX

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import Waits
    from braidlog.protocols.http.requests import Exchange


class Waiting:
    """All waiting requests of a listener."""

    def __init__(self, stopping: trio.Event) -> None:
        self.stopping = stopping
        self.count = 0

    async def wait(
        self,
        request: Request,
        seconds: float,
        act: Callable[[], Awaitable[None]],
        *,
        is_stream: bool = False,
    ) -> bool:
        """Run `act`; return True once `act` returns, False if the timeout ends or the broker stops
        first.

        On False `act` is cancelled. A waiting request does not count as a running request.

        Raises RequestRefused if too many requests wait already, ClientDisconnect (except for a
        stream, which watches the client itself), and the BrokerError of `act`.
        """
        if self.count >= WAITING_MAX:
            raise RequestRefused(TOO_BUSY, f"{WAITING_MAX} requests are waiting already")
        exchange: Exchange = request.scope["exchange"]
        self.count += 1
        try:
            with exchange.waiting():
                return await self._race(None if is_stream else request, seconds, act)
        finally:
            self.count -= 1

    async def pause(self, request: Request, seconds: float) -> None:
        """Wait before an answer, until the timeout ends or the broker stops. The request does not
        count as running. Raises ClientDisconnect.
        """
        exchange: Exchange = request.scope["exchange"]
        with exchange.waiting():
            await self._race(request, seconds, trio.sleep_forever)

    def for_memory(self, request: Request, *, is_stream: bool = False) -> Waits:
        """Return a function that awaits a wait for output memory, however long.

        It raises ClientDisconnect when the client leaves (except for a stream), ShuttingDown when
        the broker stops, and RequestRefused if too many requests wait already.
        """

        async def wait(act: Callable[[], Awaitable[None]]) -> None:
            if not await self.wait(request, math.inf, act, is_stream=is_stream):
                raise ShuttingDown("the broker is stopping")

        return wait

    async def _race(
        self, request: Request | None, seconds: float, act: Callable[[], Awaitable[None]]
    ) -> bool:
        acted = left = False
        failure: BrokerError | None = None

        async def watch_client(request: Request) -> None:
            nonlocal left
            await disconnected(request)
            left = True
            nursery.cancel_scope.cancel()

        async def watch_stop() -> None:
            await self.stopping.wait()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + seconds
            if request is not None:
                nursery.start_soon(watch_client, request)
            nursery.start_soon(watch_stop)
            try:
                await act()
                acted = True
            except (
                BrokerError
            ) as error:  # Raised below: from here the error would arrive in a group.
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if left and not acted:
            raise ClientDisconnect
        return acted


async def disconnected(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
