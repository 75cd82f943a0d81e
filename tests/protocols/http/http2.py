"""The client's side of HTTP/2."""

import h2.connection
import h2.events

from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.listening import READ_BYTES

MESSAGES = "/topics/public/default/orders/partitions/0/messages"
LONG_POLL = f"{MESSAGES}?timeout=60000"


async def with_orders(broker):
    """The broker, with a topic to read from."""
    await broker.topics.create(TopicName("public", "default", "orders"), 1)
    return broker


async def http2(stream, path: str) -> h2.connection.H2Connection:
    """The client's side of a connection with one request on it."""
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    head = [(":method", "GET"), (":path", path), (":authority", "x"), (":scheme", "http")]
    connection.send_headers(1, head, end_stream=True)
    await stream.send_all(connection.data_to_send())
    return connection


async def events_until(stream, connection, kind: type) -> list[h2.events.Event]:
    """What the server has sent up to an event of that kind."""
    found: list[h2.events.Event] = []
    while not any(isinstance(event, kind) for event in found):
        received = await stream.receive_some(READ_BYTES)
        assert received, found
        found += connection.receive_data(received)
    return found


def body_of(events: list[h2.events.Event]) -> bytes:
    return b"".join(one.data for one in events if isinstance(one, h2.events.DataReceived))
