"""The paths of Pulsar's WebSocket API. OpenAPI cannot describe them; Pulsar's page does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.errors import NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pip64.produce import Producing
from braidlog.protocols.http.routes import Endpoint, Routes
from braidlog.protocols.http.routing import PathRoute
from braidlog.protocols.http.values.resolving import SchemaRegistry
from braidlog.protocols.http.websocket.consumer import ConsumerSocket
from braidlog.protocols.http.websocket.producer import ProducerSocket
from braidlog.protocols.http.websocket.reading import ReaderSocket
from braidlog.protocols.http.websocket.socket import Sockets

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.options import RestOptions

TOPIC = "{tenant}/{namespace}/{name}"


def websocket_routes(
    broker: Broker,
    options: RestOptions,
    stopping: trio.Event,
    registry: SchemaRegistry,
    routes: Routes,
) -> list[PathRoute]:
    """Return the routes of the WebSocket API."""
    sockets = Sockets(broker, stopping, options.websockets_max, options.websocket_bytes_max)
    producing = Producing(broker, registry)

    async def produce(request: Request) -> Response:
        """Open a producer as a WebSocket."""
        return ProducerSocket(sockets, request, producing)

    async def consume(request: Request) -> Response:
        """Open a consumer of a subscription as a WebSocket."""
        return ConsumerSocket(sockets, request, producing)

    async def read(request: Request) -> Response:
        """Open a reader, which has no subscription, as a WebSocket."""
        return ReaderSocket(sockets, request)

    async def refuse(_: Request) -> Response:
        """Refuse a non-persistent topic."""
        text = "non-persistent topics are not served over WebSocket: use Pulsar's own protocol"
        raise RequestRefused(NOT_SUPPORTED, text)

    served = {
        f"producer/%s/{TOPIC}": (produce, Action.PRODUCE),
        f"consumer/%s/{TOPIC}/{{subscription}}": (consume, Action.CONSUME),
        f"reader/%s/{TOPIC}": (read, Action.CONSUME),
    }
    paths = []
    for path, (handler, action) in served.items():
        for domain, serve in (("persistent", handler), ("non-persistent", refuse)):
            endpoint = Endpoint(serve, action, frequent=True)
            paths.append(routes.undescribed(f"/ws/v2/{path % domain}", GET=endpoint))
    return paths
