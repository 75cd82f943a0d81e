"""A Pulsar client for the command handlers: identity, open producers and consumers, answers.
Knows no command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import BrokerError, NotAuthorized
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import CommandRefused, refusal
from braidlog.protocols.pulsar.lanes import Lanes
from braidlog.protocols.pulsar.limits import METADATA_BYTES_MAX
from braidlog.protocols.pulsar.login import PulsarLogin
from braidlog.protocols.pulsar.machine import ConnectionState, PulsarMachine
from braidlog.protocols.pulsar.messages import NO_ENTRY
from braidlog.protocols.pulsar.watchers import Watchers
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError

if TYPE_CHECKING:
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.delivery.open_producers import Producer
    from braidlog.broker.metrics import Number
    from braidlog.broker.server.connection import Connection
    from braidlog.protocols.pulsar.consumer import PulsarConsumer
    from braidlog.protocols.pulsar.listener_state import SharedState
    from braidlog.protocols.pulsar.options import PulsarOptions
    from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import CommandProducer, CommandSubscribe


# SENDs in flight when the broker closes their producer are dropped for this long.
CLOSED_BY_BROKER_S: Final = 30.0
LEAVING_TOGETHER: Final = 100  # Producers or consumers dropped in a turn: 4 ms.
WOKEN_TOGETHER: Final = 100  # Dispatchers woken in a turn when the socket has room: 1 ms.

OpenedT = TypeVar("OpenedT", "Producer", "PulsarConsumer")
Failed = Callable[[int, ServerError, str], bytes]
"""Makes a command's own answer that refuses a request."""


class PulsarClient:
    """The client of a connection: producers, consumers, lanes, answers.

    Implements `ConsumerOwner`.
    """

    def __init__(self, shared: SharedState, connection: Connection, options: PulsarOptions) -> None:
        """Take `shared`, the common state of a broker's Pulsar connections."""
        self.shared = shared
        self.options = options
        self.broker = shared.broker
        self.connection = connection
        self.outbox = connection.outbox
        self.machine = PulsarMachine()
        self.login = PulsarLogin(connection, self.broker.authentication)
        self.lanes = Lanes(connection)
        self.version_text = ""  # Name of the client library, from CONNECT.
        self.protocol_version = 0
        self.takes_entry_metadata = False  # Entries are sent with broker entry metadata.
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, PulsarConsumer] = {}
        self.watchers = Watchers(connection, shared.topic_lists, shared.limits)
        self.commands_heard = 0  # Any command is a sign of life.
        # Producers that the broker closed, and the time until which each is remembered.
        self._closed: dict[int, float] = {}
        self._listening = trio.lowlevel.ParkingLot()
        self._wanting_room: dict[PulsarConsumer, None] = {}  # Longest waiting consumer first.
        self._room_wanted = trio.lowlevel.ParkingLot()
        self._watches_room = False

    # Answers.

    def speaks(
        self, version_text: str, protocol_version: int, *, takes_entry_metadata: bool
    ) -> None:
        """Note the library and the protocol version that CONNECT named."""
        self.version_text, self.protocol_version = version_text, protocol_version
        self.takes_entry_metadata = takes_entry_metadata

    def refuse(self, request_id: int, error: BrokerError | CommandRefused) -> None:
        """Answer a request with an error, after earlier answers."""
        refused = refusal(error)
        self.count_refused(refused.code)
        self.outbox.answer([messages.error(request_id, refused.code, refused.text)])

    @contextmanager
    def refusing(self, request_id: int, failed: Failed | None = None) -> Iterator[None]:
        """Answer a request with the error that ends the block, if any: with ERROR, or at once with
        the command's own answer.
        """
        try:
            yield
        except (BrokerError, CommandRefused) as error:
            if failed is None:
                self.refuse(request_id, error)
                return
            refused = refusal(error)
            self.outbox.put([failed(request_id, refused.code, refused.text)])

    def count_refused(self, code: ServerError, times: int = 1) -> None:
        """Count answers with that error."""
        name = ServerError.Name(code)
        self.broker.metrics.number("braidlog_errors", self.connection.protocol, name).inc(times)

    def answer_producer(self, producer: Producer, ticket: int) -> None:
        """Send PRODUCER_SUCCESS, once everything that it reports is on disk."""
        success = messages.producer_success(
            producer.request_id,
            producer.name,
            schema_version=producer.schema_version,
            last_sequence_id=NO_ENTRY if producer.last_sequence is None else producer.last_sequence,
            topic_epoch=producer.topic_epoch,
            ready=producer.is_ready,
        )
        self.outbox.answer([success], ticket)

    # Signs of life.

    def heard(self, commands: int) -> None:
        """Count received commands."""
        self.commands_heard += commands
        if self._listening:
            self._listening.unpark_all()

    @property
    def peer(self) -> str:
        return self.connection.peer

    async def is_alive(self) -> bool:
        heard = self.commands_heard
        self.outbox.put([messages.PING])
        with trio.move_on_after(self.options.liveness_check_s):
            while self.commands_heard == heard and self.machine.state is not ConnectionState.CLOSED:
                await self._listening.park()
        return self.commands_heard != heard and self.machine.state is not ConnectionState.CLOSED

    def end(self, reason: str) -> None:
        self.connection.end(reason)

    # Producers.

    def drop_producer(self, producer: Producer) -> None:
        """Forget a producer."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
            self.producers_on(producer.partition).dec()
            producer.partition.producer_left()
        if producer.holds_layout:
            producer.holds_layout = False
            producer.topic.release_layout()
        if producer.holds_number:
            producer.holds_number = False
            self.broker.producers.release(producer.name.encode(), producer.topic)
        self.shared.producers.remove(producer)

    def producers_on(self, partition: Channel) -> Number:
        """Return the number of producers of a partition's topic, as a metric that tasks can
        await.
        """
        protocol, topic = self.connection.protocol, partition.metrics_name
        return self.broker.metrics.number("braidlog_producers", protocol, topic)

    def close_producer(self, producer: Producer, *, is_forbidden: bool = False) -> None:
        """Close a producer whose topic is gone or read-only, or that the client may no longer use.
        The client then looks up the topic again.
        """
        if self.producers.get(producer.producer_id) is not producer:
            return  # The producer left meanwhile, and a new producer may have the same number.
        now, closed = trio.current_time(), self._closed
        closed.pop(producer.producer_id, None)
        while closed and closed[first := next(iter(closed))] <= now:
            del closed[first]
        closed[producer.producer_id] = now + CLOSED_BY_BROKER_S
        self.drop_producer(producer)
        if not producer.is_ready:  # Its PRODUCER is not answered yet.
            self.refuse(producer.request_id, _why_closed(producer, is_forbidden=is_forbidden))
            return
        if self.protocol_version < messages.CLOSING_VERSION:
            self.end(_why_closed(producer, is_forbidden=is_forbidden).text)
            return
        self.outbox.answer([messages.close_producer(producer.producer_id)])

    def close_forbidden(self) -> None:
        """Close producers and consumers whose rights were revoked, in the background; a client that
        retries receives the reason.
        """
        self.broker.closing.add(self._forbidden_closed())
        self.watchers.wake()

    def _forbidden_closed(self) -> Iterator[None]:
        """Check a producer or consumer in each step."""
        for number in list(self.producers):
            producer = self.producers.get(number)
            if producer is not None and not self._may(Action.PRODUCE, producer.topic.resource):
                self.close_producer(producer, is_forbidden=True)
            yield
        for number in list(self.consumers):
            consumer = self.consumers.get(number)
            # A waiting consumer is checked before attachment.
            if consumer is not None and (dispatcher := consumer.dispatcher) is not None:
                group = Resource.of_group(dispatcher.name, dispatcher.partition.topic.name)
                if not self._may(Action.CONSUME, group):
                    consumer.disconnect()
            yield

    def _may(self, action: Action, resource: Resource) -> bool:
        try:
            self.connection.check(action, resource)
        except NotAuthorized:
            return False
        return True

    def was_closed(self, producer_id: int) -> bool:
        """Return True if the broker closed a producer of that number a moment ago."""
        until = self._closed.get(producer_id)
        return until is not None and trio.current_time() < until

    def granted(self, producer: Producer) -> None:
        """Send a waiting producer the second answer: the producer is now exclusive."""
        self.answer_producer(producer, self.broker.producers.ticket)

    def refused(self, producer: Producer, error: BrokerError) -> None:
        """Refuse a waiting producer and forget the producer."""
        self.refuse(producer.request_id, error)
        self.drop_producer(producer)

    def fenced(self, producer: Producer) -> None:
        """Fence a producer that a newer producer replaced. A waiting producer gets an error; a
        ready producer loses the connection at the next SEND.
        """
        if not producer.is_ready:
            error = CommandRefused(ServerError.ProducerFenced, "Fenced out")
            self.refuse(producer.request_id, error)
        self.drop_producer(producer)

    # Consumers.

    def drop_consumer(self, consumer: PulsarConsumer) -> None:
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]
        self._wanting_room.pop(consumer, None)
        dispatcher, consumer.dispatcher = consumer.dispatcher, None  # Breaks a reference cycle.
        if dispatcher is not None:
            if consumer.holds_layout is not None:
                consumer.holds_layout.release_layout()
                consumer.holds_layout = None
            dispatcher.leave(consumer)

    def sent(self, channel: Channel, records: int, size_bytes: int) -> None:
        protocol, name = self.connection.protocol, channel.metrics_name
        self.broker.metrics.records_out(protocol, name, records, size_bytes, channel.traffic)

    def watch_room(self, consumer: PulsarConsumer) -> None:
        self._wanting_room[consumer] = None
        self._room_wanted.unpark_all()

    def serve_consumers(self) -> None:
        """Start the task that wakes dispatchers when the socket has room."""
        if not self._watches_room:
            self._watches_room = True
            self.connection.nursery.start_soon(self._wake_dispatchers)

    async def _wake_dispatchers(self) -> None:
        wanting = self._wanting_room
        while True:
            if not wanting:
                await self._room_wanted.park()
            await self.outbox.drained()
            for consumer in list(islice(wanting, WOKEN_TOGETHER)):
                del wanting[consumer]
                if consumer.dispatcher is not None:
                    consumer.dispatcher.wake()
            # The woken dispatchers fill the socket before others are woken.
            await trio.lowlevel.checkpoint()

    async def closed(self) -> None:
        """Release the connection's state in pieces: a connection may have 10,000 producers and
        consumers.
        """
        self.machine.close()
        self.watchers.close_all()
        self._listening.unpark_all()
        with trio.CancelScope(shield=True):  # Everything is released, however slow the machine is.
            await _in_pieces(self.consumers, self.drop_consumer)
            await _in_pieces(self.producers, self.drop_producer)


def metadata_of(command: CommandProducer | CommandSubscribe) -> dict[str, str]:
    """Return a client's metadata of a producer or consumer; empty if too long to keep."""
    metadata = {entry.key: entry.value for entry in command.metadata}
    size = sum(len(key) + len(value) for key, value in metadata.items())
    return metadata if size <= METADATA_BYTES_MAX else {}


async def _in_pieces(opened: dict[int, OpenedT], drop: Callable[[OpenedT], None]) -> None:
    """Drop the producers or consumers of a connection; `drop` removes each from `opened`. No list
    of all of them is kept: freeing such a list would free ten thousand consumers and dispatchers in
    a single turn.
    """
    while opened:
        for client in list(islice(opened.values(), LEAVING_TOGETHER)):
            drop(client)
        if opened:
            await trio.lowlevel.checkpoint()


def _why_closed(producer: Producer, *, is_forbidden: bool) -> CommandRefused:
    if is_forbidden:
        return CommandRefused(ServerError.AuthorizationError, "The client may not produce any more")
    terminated = producer.partition.is_terminated
    code = ServerError.TopicTerminatedError if terminated else ServerError.TopicNotFound
    return CommandRefused(code, "The topic is gone or terminated")
