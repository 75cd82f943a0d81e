"""One Kafka 0.8 connection: requests to handlers, answers to the outbox. Knows no bytes.

Requests are handled one after another and answered strictly in that order: clients rely on it,
some send the same correlation id in every request. A handler that appends does not wait for the
disk: its answer joins the outbox's ordered queue and the next request is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker.server.adapters import EndConnection
from protocols.kafka import messages
from protocols.kafka.commits import commit_offsets, fetch_offsets
from protocols.kafka.context import PROTOCOL, Answer, Context
from protocols.kafka.fetch import fetch
from protocols.kafka.machine import KafkaMachine
from protocols.kafka.metadata import consumer_metadata, metadata
from protocols.kafka.names import NameSpace
from protocols.kafka.offsets import list_offsets
from protocols.kafka.options import KafkaOptions
from protocols.kafka.produce import produce

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.server.connection import Connection

Handler = Callable[[Context, Any], Awaitable[Answer | None]]

HANDLERS: Mapping[type, tuple[str, Handler]] = {
    messages.ProduceRequest: ("produce", produce),
    messages.FetchRequest: ("fetch", fetch),
    messages.OffsetsRequest: ("offsets", list_offsets),
    messages.MetadataRequest: ("metadata", metadata),
    messages.OffsetCommitRequest: ("offset_commit", commit_offsets),
    messages.OffsetFetchRequest: ("offset_fetch", fetch_offsets),
    messages.ConsumerMetadataRequest: ("consumer_metadata", consumer_metadata),
}


class KafkaSession:
    """The handlers of one connection; see `broker.adapters.Session`."""

    def __init__(self, broker: Broker, connection: Connection, options: KafkaOptions) -> None:
        """`options` are those of the listener that the connection came in by."""
        host, port = connection.advertised
        self._machine = KafkaMachine(options.frame_bytes_max)
        self._connection = connection
        self._outbox = connection.outbox
        self._idle_timeout_s = options.idle_timeout_s
        self._context = Context(
            broker=broker,
            outbox=connection.outbox,
            options=options,
            names=NameSpace(options.namespace),
            address=messages.BrokerAddress(broker.node_id, host.encode(), port),
        )
        number = broker.metrics.number
        self._counted = {
            kind: number("braidlog_requests", PROTOCOL, api) for kind, (api, _) in HANDLERS.items()
        }

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next request, None until it is known. Raises ProtocolError."""
        return self._machine.frame_size(view)

    async def handle(self, frame: memoryview) -> None:
        """Serve one request. Raises ProtocolError for what cannot be parsed: 0.8 closes then."""
        request = self._machine.decode(frame)
        kind = type(request.body)
        self._counted[kind].inc()
        _, handler = HANDLERS[kind]
        answer = await handler(self._context, request.body)
        if answer is not None:
            parts = self._machine.encode(request.correlation_id, answer.reply)
            self._outbox.answer(parts, answer.ticket)

    async def turn_ended(self) -> None:
        """Nothing is kept from one frame to the next."""

    def on_deadline(self, now: float) -> float:
        """End a connection that has sent nothing for so long, one with a longer long poll too."""
        due = self._connection.heard_at + self._idle_timeout_s
        if now >= due:
            raise EndConnection(f"idle for {self._idle_timeout_s:.0f} s")
        return due

    def goodbye(self) -> None:
        """Kafka 0.8 has no word for it. A fetch that waits is woken by the broker and answered."""

    async def closed(self) -> None:
        """Nothing outlives the connection."""
