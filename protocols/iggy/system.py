"""Pings, and queries about the broker and its connected clients."""

from __future__ import annotations

from braidlog.broker.server.opened import listener_of
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import (
    PROTOCOL,
    TRANSPORT_HTTP,
    TRANSPORT_TCP,
    TRANSPORT_WEBSOCKET,
    ConnectedClient,
    IggyAnswer,
    IggyContext,
)
from braidlog.protocols.iggy.errors import Absent, ErrorCode
from braidlog.protocols.iggy.system_stats import broker_stats

# Protocols of listeners by the transports of their clients.
LISTENERS = {
    TRANSPORT_TCP: PROTOCOL,
    TRANSPORT_HTTP: "iggy-http",
    TRANSPORT_WEBSOCKET: "iggy-websocket",
}
CLUSTER_NAME, NODE_NAME = "braidlog", "braidlog-1"


def ping(context: IggyContext, request: m.Ping) -> IggyAnswer:
    """An empty OK, before login too."""
    return IggyAnswer()


def get_me(context: IggyContext, request: m.GetMe) -> IggyAnswer:
    """The caller's connection with its groups."""
    return IggyAnswer(_client_records(context, context.client))


def get_client(context: IggyContext, request: m.GetClient) -> IggyAnswer:
    """Any connection with its groups. Raises Absent."""
    client = context.shared.clients.get(request.client_id)
    if client is None:
        raise Absent(ErrorCode.CLIENT_NOT_FOUND)
    return IggyAnswer(_client_records(context, client))


def get_clients(context: IggyContext, request: m.GetClients) -> IggyAnswer:
    """All connections, without their groups."""
    clients = context.shared.clients.values()
    return IggyAnswer([_client_records(context, client)[0] for client in clients])


async def get_stats(context: IggyContext, request: m.GetStats) -> IggyAnswer:
    """Statistics of this process and of all topics, whichever listener made them."""
    return IggyAnswer([await broker_stats(context.broker, len(context.shared.clients))])


def get_cluster_metadata(context: IggyContext, request: m.GetClusterMetadata) -> IggyAnswer:
    """Return a single node: this broker, at the address where this client reaches it."""
    host, _ = context.connection.advertised
    tcp, http, websocket = (_port(context, transport) for transport in LISTENERS)
    return IggyAnswer([r.Node(CLUSTER_NAME, 1, NODE_NAME, host, (tcp, http, websocket))])


def describe_options(context: IggyContext, request: m.DescribeOptions) -> IggyAnswer:
    """The options of a scope in the client's dialect."""
    options = context.dialect.described.get(request.scope, ())
    return IggyAnswer([r.Count(len(options)), *options])


def _port(context: IggyContext, transport: int) -> int:
    """Return the port for clients of a transport, encrypted as this client's; 0 if none is open."""
    connection = context.connection
    if transport == context.client.transport:
        return connection.advertised[1]
    protocol, listeners = LISTENERS[transport], context.broker.listeners.values()
    listener = listener_of(listeners, protocol, is_encrypted=connection.is_encrypted)
    return 0 if listener is None else listener.advertised_to(connection.local)[1]


def _client_records(
    context: IggyContext, client: ConnectedClient
) -> list[r.ClientInfo | r.JoinedGroup]:
    memberships = []
    for topic_id, name in context.shared.groups.joined(client.client_id):
        membership = _membership(context, topic_id, name)
        if membership is not None:
            memberships.append(membership)
    count = len(memberships)
    head = r.ClientInfo(client.client_id, client.user_id, client.transport, client.address, count)
    return [head, *memberships]


def _membership(context: IggyContext, topic_id: int, name: str) -> r.JoinedGroup | None:
    """A client's membership, by the group's numbers; None if another listener has deleted the
    topic since.
    """
    broker = context.broker
    topic = broker.topics.find_by_id(topic_id)
    if topic is None:
        return None
    stream = names.get_stream(broker, topic.name.namespace)
    group = names.get_group(broker, topic, name)
    return r.JoinedGroup(stream.stream_id, names.topic_number(broker, topic), group.group_id)
