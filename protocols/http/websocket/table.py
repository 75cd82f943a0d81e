"""The paths of Pulsar's WebSocket API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.errors import NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pip64.produce import Producing
from braidlog.protocols.http.routes import Endpoint, Query, Routes
from braidlog.protocols.http.values.resolving import SchemaRegistry
from braidlog.protocols.http.websocket.consumer import ConsumerSocket
from braidlog.protocols.http.websocket.producer import ProducerSocket
from braidlog.protocols.http.websocket.reader import ReaderSocket
from braidlog.protocols.http.websocket.socket import Sockets

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.options import RestOptions

TOPIC = "{tenant}/{namespace}/{name}"
TEXT, NUMBER, TRUTH = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TOKEN = Query("token", "A token, for clients that can send no header.", TEXT)
QUEUE = Query("receiverQueueSize", "Messages without acknowledgement, 1000 at most.", NUMBER)
PRODUCER = (
    TOKEN,
    Query("producerName", "A name; by default a new name.", TEXT),
    Query("initialSequenceId", "The first message gets the next number.", {"type": "integer"}),
    Query("hashingScheme", "Of keys.", {"enum": ["JavaStringHash", "Murmur3_32Hash"]}),
    Query("messageRoutingMode", "Of messages without a key.", TEXT),
    Query("maxPendingMessages", "Messages that wait to be stored.", NUMBER),
)
CONSUMER = (
    TOKEN,
    QUEUE,
    Query("subscriptionType", "Exclusive, Failover, Shared or Key_Shared.", TEXT),
    Query("subscriptionInitialPosition", "Latest or Earliest.", TEXT),
    Query("consumerName", "A name; by default a new name.", TEXT),
    Query("pullMode", "Send messages for permits only.", TRUTH),
    Query("ackTimeoutMillis", "Redeliver messages after this time.", NUMBER),
    Query("negativeAckRedeliveryDelay", "Milliseconds, 60000 by default.", NUMBER),
    Query("maxRedeliverCount", "Redeliveries before the dead letter topic.", NUMBER),
    Query("deadLetterTopic", "By default TOPIC-SUBSCRIPTION-DLQ.", TEXT),
)
READER = (
    TOKEN,
    QUEUE,
    Query("messageId", "earliest, latest, or the id of the message before.", TEXT),
)


def websocket_routes(
    broker: Broker,
    options: RestOptions,
    stopping: trio.Event,
    registry: SchemaRegistry,
    routes: Routes,
) -> list[Route]:
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

    upgraded = (101,)
    served = {
        f"producer/%s/{TOPIC}": (produce, Action.PRODUCE, PRODUCER),
        f"consumer/%s/{TOPIC}/{{subscription}}": (consume, Action.CONSUME, CONSUMER),
        f"reader/%s/{TOPIC}": (read, Action.CONSUME, READER),
    }
    found = []
    for path, (handler, action, query) in served.items():
        endpoint = Endpoint(handler, action, query=query, statuses=upgraded)
        found.append(routes.route(f"/ws/v2/{path % 'persistent'}", GET=endpoint))
        refused = Endpoint(refuse, action, statuses=(501,))
        found.append(routes.route(f"/ws/v2/{path % 'non-persistent'}", GET=refused))
    return found
