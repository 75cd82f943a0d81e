"""A Pulsar connection: command dispatch, keepalive, cleanup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import trio

from braidlog.broker.access.rights import Action
from braidlog.broker.runtime.endings import EndConnection
from braidlog.protocols.pulsar import (
    acks,
    connecting,
    consumers,
    discovery,
    messages,
    positions,
    producer_commands,
    refusals,
    schemas,
    subscribing,
    watch_commands,
)
from braidlog.protocols.pulsar.client import PulsarClient
from braidlog.protocols.pulsar.machine import ConnectionState, Type
from braidlog.protocols.pulsar.sending import Sending

Handler = Callable[[PulsarClient, Any], Awaitable[None] | None]

KEEPALIVE_S: Final = 30.0  # Each side's own timer, as in Apache.
# A tick later than this is no evidence of a dead client: the broker was held up, and the client's
# commands may still be unread.
LATE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PulsarHandler:
    """A command's handler and the action that the client needs permission for."""

    handler: Handler
    action: Action | None = None  # None: any connected client may send the command.


# The handler checks the action when it resolves the named resource.
COMMANDS: Final[dict[int, PulsarHandler]] = {
    Type.CONNECT: PulsarHandler(connecting.connect),
    Type.PING: PulsarHandler(connecting.ping),
    Type.PONG: PulsarHandler(connecting.pong),
    Type.AUTH_RESPONSE: PulsarHandler(connecting.auth_response),
    Type.PARTITIONED_METADATA: PulsarHandler(discovery.partitioned_metadata, Action.DESCRIBE),
    Type.LOOKUP: PulsarHandler(discovery.lookup, Action.DESCRIBE),
    Type.GET_TOPICS_OF_NAMESPACE: PulsarHandler(discovery.topics_of_namespace, Action.DESCRIBE),
    Type.PRODUCER: PulsarHandler(producer_commands.producer, Action.PRODUCE),
    Type.CLOSE_PRODUCER: PulsarHandler(producer_commands.close_producer),
    Type.SUBSCRIBE: PulsarHandler(subscribing.subscribe, Action.CONSUME),
    Type.CLOSE_CONSUMER: PulsarHandler(consumers.close_consumer),
    Type.UNSUBSCRIBE: PulsarHandler(consumers.unsubscribe, Action.CONSUME),
    Type.FLOW: PulsarHandler(consumers.flow, Action.CONSUME),
    Type.ACK: PulsarHandler(acks.ack, Action.CONSUME),
    Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: PulsarHandler(acks.redeliver, Action.CONSUME),
    Type.SEEK: PulsarHandler(positions.seek, Action.CONSUME),
    Type.GET_LAST_MESSAGE_ID: PulsarHandler(positions.last_message_id, Action.CONSUME),
    Type.CONSUMER_STATS: PulsarHandler(positions.consumer_stats, Action.CONSUME),
    Type.GET_SCHEMA: PulsarHandler(schemas.get_schema, Action.DESCRIBE),
    Type.GET_OR_CREATE_SCHEMA: PulsarHandler(schemas.get_or_create_schema, Action.PRODUCE),
    Type.WATCH_TOPIC_LIST: PulsarHandler(watch_commands.watch_topic_list, Action.DESCRIBE),
    Type.WATCH_TOPIC_LIST_CLOSE: PulsarHandler(watch_commands.watch_topic_list_close),
    **{kind: PulsarHandler(handler) for kind, handler in refusals.HANDLERS.items()},
}

# Sends are gathered across these commands, which change nothing that a send depends on.
NOT_FOR_PRODUCERS: Final = frozenset({Type.PING, Type.PONG, Type.FLOW, Type.ACK})
COMMAND_NAMES: Final = {kind: Type.Name(kind) for kind in (*COMMANDS, Type.SEND)}


class PulsarSession:
    """Serves the commands of a client."""

    def __init__(self, client: PulsarClient) -> None:
        self.client = client
        self._sending = Sending(client)
        self._counted = client.broker.metrics.by_kind(
            "braidlog_requests", client.connection.protocol, COMMAND_NAMES
        )
        self._sends = self._counted[Type.SEND]
        self._next_tick: float | None = None
        self._heard_at_ping = -1  # `commands_heard` at the last PING; -1: no PING awaits an answer.

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole size of the next frame. Raises ProtocolError."""
        return self.client.machine.frame_size(view)

    def handle(self, frame: memoryview) -> Awaitable[None] | None:
        """Serve a command; return an awaitable if it has to wait. Raises ProtocolError."""
        client = self.client
        command = client.machine.decode(frame)
        client.heard(1)
        kind = command.type
        self._counted[kind].value += 1
        if command.payload is not None:
            self._sending.add(command.fields, command.payload)
            return None
        if kind not in NOT_FOR_PRODUCERS:
            self._sending.flush()
        if command.not_text:
            refusals.not_text(client, command)
            return None
        waiting = COMMANDS[kind].handler(client, command.fields)
        if waiting is None and not client.lanes.is_full:
            return None
        return self._finish(waiting)

    async def _finish(self, waiting: Awaitable[None] | None) -> None:
        if waiting is not None:
            await waiting
        await self.client.lanes.room()

    def handle_run(self, received: memoryview, frames_max: int) -> tuple[int, int]:
        """Take the SENDs at the front of the received bytes: a receive often holds many."""
        size, frames = self._sending.take(received, frames_max)
        if frames:
            self._sends.value += frames
            self.client.heard(frames)
        return size, frames

    def turn_ended(self) -> Coroutine[Any, Any, None] | None:
        """Store the sends of this receive; wait if a topic's publish rate demands it."""
        self._sending.flush()
        if self._sending.pause_s > 0:
            return trio.sleep(self._sending.take_pause())
        return None

    def on_deadline(self, now: float) -> float:
        """Ping every 30 s; end a connection that has been silent since the last ping, unless the
        broker itself was held up.
        """
        if self._next_tick is None:
            self._next_tick = now + KEEPALIVE_S
        elif now >= self._next_tick:
            if now - self._next_tick > LATE_S:
                self._heard_at_ping = -1
            self._next_tick = now + KEEPALIVE_S
            self._tick()
        return self._next_tick

    def access_changed(self) -> None:
        """Close the producers and consumers that the client may no longer use."""
        self._sending.flush()
        self.client.close_forbidden()

    def goodbye(self) -> None:
        """Close the client's producers and consumers, after all pending answers: a client resends
        messages without a receipt.
        """
        self._sending.flush()
        client = self.client
        if client.protocol_version >= messages.CLOSING_VERSION:
            closing = [messages.close_producer(number) for number in client.producers]
            closing += [messages.close_consumer(number) for number in client.consumers]
            if closing:
                client.outbox.answer(closing)

    async def closed(self) -> None:
        """Release the connection's state."""
        await self.client.closed()

    def _tick(self) -> None:
        client = self.client
        if client.machine.state is ConnectionState.CONNECTING:
            raise EndConnection(f"no CONNECT within {KEEPALIVE_S:.0f} s")
        if client.commands_heard == self._heard_at_ping and client.outbox.has_answers_room:
            raise EndConnection(f"nothing heard for {KEEPALIVE_S:.0f} s after a PING")
        self._heard_at_ping = client.commands_heard
        broker = client.broker
        challenge = client.login.check_expiry(
            broker.now_us() / 1e6, f"Braidlog {broker.version}", client.protocol_version
        )
        client.outbox.put([messages.PING, *challenge])
