"""One Pulsar connection: commands to their handlers, keepalive, and what ends with it.

What can wait runs in order per producer and per consumer, as tasks of the connection, so that PING
is always answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.access.rights import Action
from broker.errors import BrokerError
from broker.server.endings import EndConnection, ProtocolError
from protocols.pulsar import (
    acks,
    connecting,
    consumers,
    discovery,
    messages,
    positions,
    producers,
    refusals,
    schemas,
    subscribing,
)
from protocols.pulsar.errors import Refused, refusal
from protocols.pulsar.limits import LANE_MAX, LANES_MAX
from protocols.pulsar.login import Login
from protocols.pulsar.machine import PulsarMachine, State, Type
from protocols.pulsar.sending import Sending
from storage.codecs.pb.PulsarApi_pb2 import ServerError

if TYPE_CHECKING:
    from broker.server.connection import Connection
    from protocols.pulsar.clients import PulsarClients
    from protocols.pulsar.consumers import PulsarConsumer
    from protocols.pulsar.options import PulsarOptions
    from protocols.pulsar.registry import Producer

Handler = Callable[["PulsarSession", Any], Awaitable[None] | None]
Work = Callable[[], Awaitable[None]]

KEEPALIVE_S: Final = 30.0  # Each side's own timer, as in Apache.


@dataclass(frozen=True, slots=True)
class Served:
    """How one command is served, and what its client must be allowed to do."""

    handler: Handler
    action: Action | None = None  # None: whoever is connected may do it.


# The action is checked where the handler finds what the command names.
COMMANDS: Final[dict[int, Served]] = {
    Type.CONNECT: Served(connecting.connect),
    Type.PING: Served(connecting.ping),
    Type.PONG: Served(connecting.pong),
    Type.AUTH_RESPONSE: Served(connecting.auth_response),
    Type.PARTITIONED_METADATA: Served(discovery.partitioned_metadata, Action.DESCRIBE),
    Type.LOOKUP: Served(discovery.lookup, Action.DESCRIBE),
    Type.GET_TOPICS_OF_NAMESPACE: Served(discovery.topics_of_namespace, Action.DESCRIBE),
    Type.PRODUCER: Served(producers.producer, Action.PRODUCE),
    Type.CLOSE_PRODUCER: Served(producers.close_producer),
    Type.SUBSCRIBE: Served(subscribing.subscribe, Action.CONSUME),
    Type.CLOSE_CONSUMER: Served(consumers.close_consumer),
    Type.UNSUBSCRIBE: Served(consumers.unsubscribe, Action.CONSUME),
    Type.FLOW: Served(consumers.flow, Action.CONSUME),
    Type.ACK: Served(acks.ack, Action.CONSUME),
    Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: Served(acks.redeliver, Action.CONSUME),
    Type.SEEK: Served(positions.seek, Action.CONSUME),
    Type.GET_LAST_MESSAGE_ID: Served(positions.last_message_id, Action.CONSUME),
    Type.CONSUMER_STATS: Served(positions.consumer_stats, Action.CONSUME),
    Type.GET_SCHEMA: Served(schemas.get_schema, Action.DESCRIBE),
    Type.GET_OR_CREATE_SCHEMA: Served(schemas.get_or_create_schema, Action.PRODUCE),
    **{kind: Served(handler) for kind, handler in refusals.HANDLERS.items()},
}

# Checked when the producer or consumer that they are about was opened.
CHECKED_AT_OPENING: Final = frozenset(
    {Type.SEND, Type.FLOW, Type.ACK, Type.REDELIVER_UNACKNOWLEDGED_MESSAGES}
)

# Sends may be gathered over these: they change nothing that a send depends on.
NOT_FOR_PRODUCERS: Final = frozenset({Type.PING, Type.PONG, Type.FLOW, Type.ACK})


class PulsarSession:
    """Handlers and state of one connection."""

    def __init__(
        self, listener: PulsarClients, connection: Connection, options: PulsarOptions
    ) -> None:
        self.listener = listener
        self.options = options
        self.broker = listener.broker
        self.connection = connection
        self.outbox = connection.outbox
        self.machine = PulsarMachine()
        self.login = Login(connection, self.broker.authentication)
        self.client_version = ""
        self.protocol_version = 0
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, PulsarConsumer] = {}
        self.sending = Sending(self)
        number = self.broker.metrics.number
        self._counted = {
            kind: number("braidlog_requests", connection.protocol, Type.Name(kind))
            for kind in (*COMMANDS, Type.SEND)
        }
        self._sends = self._counted[Type.SEND]
        self._lanes: dict[tuple[str, int], deque[Work]] = {}
        self._lane_ended = trio.lowlevel.ParkingLot()
        self._heard = 0  # Commands so far: any is a sign of life.
        self._listening = trio.lowlevel.ParkingLot()
        self._room_wanted = trio.lowlevel.ParkingLot()
        self._watches_room = False
        self._next_tick: float | None = None
        self._heard_at_ping = -1  # Commands when the last PING left; -1: none is unanswered.

    # What the connection driver calls.

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next frame. Raises ProtocolError."""
        return self.machine.frame_size(view)

    def handle(self, frame: memoryview) -> Awaitable[None] | None:
        """Serve one command; what waits is returned. Raises ProtocolError."""
        command = self.machine.decode(frame)
        self._heard += 1
        if self._listening:
            self._listening.unpark_all()
        kind = command.type
        self._counted[kind].value += 1
        if command.payload is not None:
            self.sending.add(command.fields, command.payload)
            return None
        if kind not in NOT_FOR_PRODUCERS:
            self.sending.flush()
        if command.not_text:
            refusals.not_text(self, command)
            return None
        waiting = COMMANDS[kind].handler(self, command.fields)
        if waiting is None and len(self._lanes) < LANES_MAX:
            return None
        return self._finish(waiting)

    async def _finish(self, waiting: Awaitable[None] | None) -> None:
        if waiting is not None:
            await waiting
        while len(self._lanes) >= LANES_MAX:
            await self._lane_ended.park()

    def handle_run(self, received: memoryview, frames_max: int) -> tuple[int, int]:
        """Take the SENDs at the front of what was received: many come in one receive."""
        size, frames = self.sending.take(received, frames_max)
        if frames:
            self._heard += frames
            self._sends.value += frames
            if self._listening:
                self._listening.unpark_all()
        return size, frames

    def turn_ended(self) -> None:
        """Store the sends of this receive."""
        self.sending.flush()

    def on_deadline(self, now: float) -> float:
        """Ping every 30 s; end a connection that has been silent since the last ping."""
        if self._next_tick is None:
            self._next_tick = now + KEEPALIVE_S
        elif now >= self._next_tick:
            self._next_tick = now + KEEPALIVE_S
            self._tick()
        return self._next_tick

    def goodbye(self) -> None:
        """Send the client's producers and consumers elsewhere, behind what is still to be
        answered: a client would send again what it thinks was not stored.
        """
        self.sending.flush()
        if self.protocol_version >= messages.CLOSING_VERSION:
            closing = [messages.close_producer(number) for number in self.producers]
            closing += [messages.close_consumer(number) for number in self.consumers]
            if closing:
                self.outbox.answer(closing)

    async def closed(self) -> None:
        """Give back what the connection held."""
        self.machine.close()
        for consumer in list(self.consumers.values()):
            consumer.leave()
        for producer in list(self.producers.values()):
            self.drop_producer(producer)
        self._listening.unpark_all()

    # What handlers use.

    def in_order(self, lane: tuple[str, int], work: Work) -> None:
        """Do work that may wait, in a task, behind earlier work of the same producer or consumer.

        Raises ProtocolError if the client does not wait for its answers at all.
        """
        waiting = self._lanes.get(lane)
        if waiting is None:
            self._lanes[lane] = deque([work])
            self.connection.nursery.start_soon(self._work_off, lane)
        elif len(waiting) < LANE_MAX:
            waiting.append(work)
        else:
            raise ProtocolError(f"more than {LANE_MAX} commands wait for one {lane[0]}")

    def promptly(self, lane: tuple[str, int], work: Callable[[], None]) -> None:
        """Do work that does not wait: now, or behind what is under way in that lane."""
        if lane not in self._lanes:
            work()
            return

        async def later() -> None:
            work()

        self.in_order(lane, later)

    def refuse(self, request_id: int, error: BrokerError | Refused) -> None:
        """Answer a request with an error, behind earlier answers."""
        refused = refusal(error)
        self.count_refused(refused.code)
        self.outbox.answer([messages.error(request_id, refused.code, refused.text)])

    def count_refused(self, code: ServerError, times: int = 1) -> None:
        """Count answers with that error."""
        name = ServerError.Name(code)
        self.broker.metrics.number("braidlog_errors", self.connection.protocol, name).inc(times)

    def drop_producer(self, producer: Producer) -> None:
        """Forget a producer."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
        if producer.holds_layout:
            producer.holds_layout = False
            producer.partition.topic.layout_users -= 1
        self.listener.producers.remove(producer)

    def watch_room(self) -> None:
        """A consumer was not sent what it could have: let it be once the socket takes more."""
        self._room_wanted.unpark_all()

    def serve_consumers(self) -> None:
        """Begin to watch the socket for the connection's consumers."""
        if not self._watches_room:
            self._watches_room = True
            self.connection.nursery.start_soon(self._wake_dispatchers)

    async def _wake_dispatchers(self) -> None:
        while True:
            if not self.outbox.over_limit:
                await self._room_wanted.park()
            await self.outbox.drained()
            for consumer in self.consumers.values():
                if consumer.dispatcher is not None:
                    consumer.dispatcher.wake()

    # What the registry of producers and other connections call.

    async def is_alive(self) -> bool:
        """Whether the client sends anything within some seconds of a PING."""
        heard = self._heard
        self.outbox.put([messages.PING])
        with trio.move_on_after(self.options.liveness_check_s):
            while self._heard == heard and self.machine.state is not State.CLOSED:
                await self._listening.park()
        return self._heard != heard and self.machine.state is not State.CLOSED

    def end(self, reason: str) -> None:
        """End the connection."""
        self.connection.end(reason)

    def granted(self, producer: Producer) -> None:
        """A producer that waited is the exclusive one now: its PRODUCER is answered again."""
        producers.answer(self, producer, self.broker.producers.ticket)

    def fenced(self, producer: Producer) -> None:
        """A newer producer took over. One that waited is told; the next SEND of a ready one ends
        its connection.
        """
        if not producer.is_ready:
            error = Refused(ServerError.ProducerFenced, "Fenced out")
            self.refuse(producer.request_id, error)
        self.drop_producer(producer)

    async def _work_off(self, lane: tuple[str, int]) -> None:
        waiting = self._lanes[lane]
        while waiting:
            await waiting[0]()
            waiting.popleft()
        del self._lanes[lane]
        self._lane_ended.unpark_all()

    def _tick(self) -> None:
        if self.machine.state is State.CONNECTING:
            raise EndConnection(f"no CONNECT within {KEEPALIVE_S:.0f} s")
        if self._heard == self._heard_at_ping:
            raise EndConnection(f"nothing heard for {KEEPALIVE_S:.0f} s after a PING")
        self._heard_at_ping = self._heard
        challenge = self.login.check_expiry(
            self.broker.now_us() / 1e6, f"Braidlog {self.broker.version}", self.protocol_version
        )
        self.outbox.put([messages.PING, *challenge])
