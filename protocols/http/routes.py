"""The layer between a route and its handlers: selects the method's handler and checks the client's
permission to call the handler.

Knows topics only by the names in the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.listing import seen
from braidlog.broker.access.rights import CLUSTER, Action, Principal, Resource
from braidlog.broker.errors import LimitExceeded, NotAuthenticated
from braidlog.protocols.http.login import identity_of, origin
from braidlog.protocols.http.path_names import group_name, path_bytes, text_of, topic_name
from braidlog.protocols.http.path_names import name_of as admin_name
from braidlog.protocols.http.request_forwarding import HttpForwarder
from braidlog.protocols.http.requests import Handler
from braidlog.protocols.http.routing import PathRoute
from braidlog.protocols.transport.clients import CLIENT

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from braidlog.broker.access.quotas import Allowance
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.names import TopicName

TopicT = TypeVar("TopicT", bound="Topic")


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter, for the description of the API."""

    name: str
    about: str
    schema: Mapping[str, object]  # JSON Schema.


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A handler of a path's method, the permission that its client needs, and its description in
    the API document.
    """

    handler: Handler
    action: Action | None  # None: any connected client may call the handler.
    _: KW_ONLY
    body: type | None = None
    answer: type | None = None
    query: Sequence[Query] = ()
    statuses: Sequence[int] = (200,)
    other_formats: Sequence[str] = ()
    needs_body: bool = True
    lists: bool = False  # Shows only visible resources: any logged-in client may ask.
    within: bool = False  # The same within a tenant or namespace, if the client may see some part.
    frequent: bool = False  # Like requests with messages: a success is not logged.


Described = tuple[str, Mapping[str, Endpoint]]


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """A handler as an application. Starlette would wrap a function in its own layers, which repeat
    the work of `routing.py`.
    """

    serve: Handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.serve(Request(scope, receive, send))
        await response(scope, receive, send)


class Routes:
    """Makes the routes of one broker's listener."""

    def __init__(self, broker: Broker) -> None:
        self.described: list[Described] = []  # The routes made so far.
        self._broker = broker
        self._forwarder = None if broker.peers.is_alone else HttpForwarder(broker)

    def route(self, path: str, **methods: Endpoint) -> PathRoute:
        """Return the route of a path with all its methods, so that the answer to an unknown method
        can list them.
        """
        self.described.append((path, methods))
        return self.undescribed(path, **methods)

    def undescribed(self, path: str, **methods: Endpoint) -> PathRoute:
        """Return the route of a path that the API document leaves out."""
        forwarder = self._forwarder
        handlers = {
            method: served.handler if forwarder is None else forwarder.around(served.handler)
            for method, served in methods.items()
        }

        async def serve(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            served = methods[method]
            request.scope["exchange"].is_frequent = served.frequent
            if served.action is not None:
                await self._admit(request, served)
            await self._broker.poller.give_way()
            return await handlers[method](request)

        return PathRoute(path, _Endpoint(serve), list(methods))

    async def _admit(self, request: Request, served: Endpoint) -> None:
        """Authenticate the client and check its permissions. Raises NotAuthenticated,
        NotAuthorized, LimitExceeded.
        """
        broker, exchange = self._broker, request.scope["exchange"]
        identity = await identity_of(broker.authentication, request)
        if identity is not None:
            exchange.principal = identity.principal
        client = request.scope.get(CLIENT)
        if client is not None:
            client.note(exchange.principal, request.scope)
        exchange.at = at = origin(request)
        exchange.allowance = _allowance(broker, exchange.principal, request)
        if served.lists and identity is not None:
            return
        resource, action = named_in(request), served.action
        assert action is not None

        def check() -> None:
            if served.within:
                broker.access.check_within(exchange.principal, resource, at)
            else:
                broker.access.check(exchange.principal, action, resource, at)

        def check_again() -> None:
            if identity is not None:
                if identity.has_expired(broker.now_us()):
                    raise NotAuthenticated("the token has expired")
                exchange.principal = broker.authentication.renewed(identity)
            check()

        check()
        if client is not None and action is Action.PRODUCE:
            client.written_topics.note(resource)
        exchange.check_again = check_again


def _allowance(broker: Broker, principal: Principal, request: Request) -> Allowance | None:
    """Return the principal's allowance, after counting this request. Raises LimitExceeded."""
    allowance = broker.quotas.of(principal)
    if allowance is None:
        return None
    wait_s = allowance.spend(0, 0)
    if wait_s > 0:
        raise LimitExceeded(f"{principal.name} is over its rate: again in {wait_s:.1f} s")
    size = request.headers.get("content-length", "")
    allowance.spend(1, int(size) if size.isdecimal() else 0)
    return allowance


def seen_by(broker: Broker, request: Request) -> Callable[[Resource], bool]:
    """Return a function that is true for each resource that a list may show to the client."""
    principal, allows = request.scope["exchange"].principal, broker.access.allows
    if allows(principal, Action.DESCRIBE, CLUSTER):
        return lambda _: True
    return partial(allows, principal, Action.DESCRIBE)


async def topics_seen(
    broker: Broker, request: Request, namespace: tuple[str, str], topics: Sequence[TopicT]
) -> Sequence[TopicT]:
    """Return the topics of a namespace that the client may see."""
    principal = request.scope["exchange"].principal
    return await seen(broker.access, principal, namespace, topics, lambda topic: topic.resource)


def groups_seen(broker: Broker, request: Request, topic: Topic) -> list[bytes]:
    """Return the names of a topic's groups that the client may see."""
    return list(filter(group_check(broker, request, topic), broker.subscriptions.names(topic)))


def group_check(broker: Broker, request: Request, topic: Topic) -> Callable[[bytes], bool]:
    """Return a function that is true for each group name of a topic that the client may see."""
    is_seen = seen_by(broker, request)
    return lambda name: is_seen(Resource.of_group(name, topic.name))


async def made_by_itself(broker: Broker, request: Request, name: TopicName) -> Topic:
    """Create a topic because a client uses the topic's name. Raises NotAuthorized, and every error
    of `Topics.auto_create`.
    """
    exchange = request.scope["exchange"]
    resource = Resource.of_topic(name)
    broker.access.check(exchange.principal, Action.CREATE, resource, exchange.at)
    return await broker.topics.auto_create(name)


def named_in(request: Request) -> Resource:
    """Return the resource that the path names: a group of a topic, a topic, a namespace, a tenant,
    or the cluster.

    Raises RequestRefused for an invalid name.
    """
    parts = request.path_params
    name = admin_name(request)[0] if "name" in parts else None
    if "group" in parts:
        return Resource.of_group(group_name(request), topic_name(request))
    if "subscription" in parts:
        group = path_bytes(request, "subscription")
        return Resource.of_group(group, name or topic_name(request))
    if name is not None:
        return Resource.of_topic(name)
    if "topic" in parts:
        return Resource.of_topic(topic_name(request))
    if "namespace" in parts:
        return Resource.of_namespace(text_of(request, "tenant"), text_of(request, "namespace"))
    if "tenant" in parts:
        return Resource.of_tenant(text_of(request, "tenant"))
    return CLUSTER
