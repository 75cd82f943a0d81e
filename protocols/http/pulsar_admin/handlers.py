"""The common part of the handlers of Pulsar's admin API. Knows no route and no policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.protocols.http.pulsar_admin.answers import done, read_any

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.bodies import BodyReader


class AdminHandlers:
    """Handlers of a broker's objects, which read bodies and answer once changes are durable."""

    def __init__(self, broker: Broker, bodies: BodyReader) -> None:
        self._broker = broker
        self._bodies = bodies

    async def _body(self, request: Request) -> object:
        """Return the JSON value of a body; None for an empty body. Raises RequestRefused."""
        return await read_any(self._bodies, request)

    async def _done_at(self, ticket: int) -> Response:
        """Return the empty answer for success, once the ticket is durable."""
        await self._broker.durability.reached(ticket)
        return done()
