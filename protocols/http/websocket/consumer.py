"""A consumer over WebSocket: messages are pushed, or sent on request (pull mode).

The subscription, its dispatchers and positions are those of all protocols: the messages come
through the `Subscriber` of PIP-64, which attaches to every partition.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import trio
from starlette.requests import Request

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.delivery.dead_letters import dead_letter
from braidlog.broker.errors import SubscriptionNotFound
from braidlog.broker.reading import entries
from braidlog.broker.reading.ack_sets import ack_set_of
from braidlog.broker.reading.chunks import piece_offsets
from braidlog.broker.reading.entries import EntryId
from braidlog.broker.reading.result import record_bytes
from braidlog.broker.runtime.output_budget import just_wait
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.http.errors import GROUP_BUSY, RequestRefused
from braidlog.protocols.http.ids import BadMessageId, read_id
from braidlog.protocols.http.limits import INLINE_BODY_BYTES, READ_BYTES_DEFAULT
from braidlog.protocols.http.path_names import parsed_topic
from braidlog.protocols.http.pip64.names import subscription_name
from braidlog.protocols.http.pip64.produce import PROTOCOL
from braidlog.protocols.http.pip64.reading import room_for
from braidlog.protocols.http.pip64.showing import message_id
from braidlog.protocols.http.pip64.subscriber import ConsumerOptions, DeliveredMessage, Subscriber
from braidlog.protocols.http.routes import made_by_itself
from braidlog.protocols.http.websocket import frames
from braidlog.protocols.http.websocket.frames import BadFrame, Command
from braidlog.protocols.http.websocket.parameters import ConsumerParameters, DeadLetterLimit
from braidlog.protocols.http.websocket.socket import BAD_DATA, Socket, Sockets

if TYPE_CHECKING:
    from braidlog.broker.reading.records import PlacedRecord
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.pip64.attached import HttpConsumer
    from braidlog.protocols.http.pip64.produce import Producing

# Permits that a client may collect in pull mode; larger sums are lowered.
PERMITS_MAX: Final = 10_000
# Negative acknowledgements that wait for their delay.
NACKS_MAX: Final = 10_000
# Interval of the search for messages whose acknowledgement is overdue; the least timeout is 1 s.
OVERDUE_S: Final = 0.5


class ConsumerSocket(Socket):
    """A consumer.

    `_window` is the number of messages that may be sent now. Push mode: the size of the receiver
    queue, less one for each message, and one more for each acknowledgement, of whatever message,
    as in Apache. Pull mode: the permits that are left.
    """

    def __init__(self, sockets: Sockets, request: Request, producing: Producing) -> None:
        super().__init__(sockets, request)
        self._producing = producing
        self._subscriber: Subscriber | None = None
        self._window = 0
        self._widened = trio.Event()
        self._nacks: list[tuple[float, int, int]] = []  # Time, ledger and entry; a heap.
        self._is_unsubscribed = False

    # Opening.

    async def open(self) -> None:
        """Attach to the subscription on every partition."""
        wanted = self._wanted = ConsumerParameters.read(self.request.query_params)
        name = subscription_name(self.request)
        self._topic, partitions = await self.topic()
        self._check_policies(name, partitions)
        if wanted.dead_letters is not None:
            self._dead_letters = await self._dead_letter_topic(wanted.dead_letters, name)
        subscription = self.broker.subscriptions.open(self._topic, name)
        identity = uuid.uuid4().hex
        options = ConsumerOptions(
            wanted.kind, wanted.is_earliest, wanted.ack_timeout_s, None, None, wanted.priority
        )
        subscriber = Subscriber(
            self.broker, identity, wanted.name or identity[:5], subscription, options, self.is_alive
        )
        subscriber.end_when_idle(math.inf)  # The consumer lives as long as the connection.
        self._subscriber = subscriber
        await subscriber.join()
        if not wanted.is_pulling:
            self._window = wanted.queue

    def _check_policies(self, name: bytes, partitions: Sequence[Partition]) -> None:
        """Check that the topic's settings allow the consumer. Raises BrokerError."""
        wanted, policies = self._wanted, self.broker.client_policies
        client = self.request.client
        host = "" if client is None else client.host
        if wanted.name is not None:  # A consumer without a name is another consumer each time.
            for partition in partitions:
                policies.count_subscribe(
                    self._topic, (partition.partition_id, host, wanted.name, 0)
                )
        policies.check_consumer(self._topic, name, wanted.kind, is_durable=True)

    async def _dead_letter_topic(self, wanted: DeadLetterLimit, subscription: bytes) -> Topic:
        """Return the topic for messages that were delivered too often. The client needs the
        permissions of a producer there.
        """
        name = parsed_topic(wanted.topic or f"{self._topic.name.full}-{subscription.decode()}-DLQ")
        self.broker.access.check(
            self.exchange.principal, Action.PRODUCE, Resource.of_topic(name), self.exchange.at
        )
        return self.broker.topics.find(name) or await made_by_itself(
            self.broker, self.request, name
        )

    def leave(self) -> None:
        """Detach from every partition: unacknowledged messages return to the subscription."""
        if self._subscriber is not None:
            self._subscriber.leave()
            self._subscriber = None

    # Sending.

    async def run(self) -> None:
        """Send messages, and redeliver those whose time has come."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guarded, self._keep_time)
            await self._guarded(self._deliver)
            nursery.cancel_scope.cancel()

    async def _deliver(self) -> None:
        subscriber = self._subscriber
        assert subscriber is not None
        while not self._is_unsubscribed:
            if self._window <= 0:
                self._widened = trio.Event()
                await self._widened.wait()
                continue
            self._check_again()
            try:
                await self._send_next(subscriber)
            except SubscriptionNotFound as error:
                if not self._is_unsubscribed:
                    self.end(str(error))
                return

    async def _send_next(self, subscriber: Subscriber) -> None:
        """Wait for messages, and send as many as the window allows."""
        wanted = self._window
        fetch = await subscriber.begin(wanted, READ_BYTES_DEFAULT)
        try:
            await fetch.came.wait()
            if fetch.ended.is_set():
                return
            room = await room_for(self.broker.output, READ_BYTES_DEFAULT, just_wait)
            try:
                given_out = await subscriber.give_out(wanted, room.bytes, room.held)
                for message in given_out:
                    await self._send_message(message)
            finally:
                room.give_back()
            if not given_out:  # A seek, or pieces of an incomplete message.
                await subscriber.go_on(fetch, wanted, READ_BYTES_DEFAULT)
        finally:
            subscriber.finish(fetch)

    async def _send_message(self, message: DeliveredMessage) -> None:
        letters = self._wanted.dead_letters
        if letters is not None and message.redelivery_count > letters.redeliveries_max:
            await self._bury(message)
            return
        self._window -= 1
        await self.send(await written(message.partition, message.record, message.redelivery_count))
        partition = message.partition
        size = len(message.record.record.value or b"")
        self.broker.metrics.records_out(
            PROTOCOL, partition.metrics_name, 1, size, partition.traffic
        )

    async def _bury(self, message: DeliveredMessage) -> None:
        """Move a message to the dead letter topic, as Java's client does."""
        placed, partition = message.record, message.partition
        record = dead_letter(placed, partition, self._subscription_name, self.broker.now_us())
        await self._producing.store(self._dead_letters, [record], [None])
        await self._acknowledge(partition, placed.entry, placed.batch_index)

    @property
    def _subscription_name(self) -> bytes:
        assert self._subscriber is not None
        return self._subscriber.subscription.name

    async def _keep_time(self) -> None:
        """Redeliver overdue messages, and negatively acknowledged messages after their delay."""
        while True:
            now = trio.current_time()
            until = self._nacks[0][0] if self._nacks else math.inf
            with trio.move_on_at(min(until, now + OVERDUE_S)):
                await trio.sleep_forever()
            subscriber, now = self._subscriber, trio.current_time()
            if subscriber is None:
                return
            subscriber.put_back_overdue(now)
            while self._nacks and self._nacks[0][0] <= now:
                _, ledger, entry = heappop(self._nacks)
                part = subscriber.part(ledger)
                if part is not None:
                    part.put_back([entry, *await piece_offsets(part.partition, entry)])

    # Frames of the client.

    async def received(self, text: str) -> None:
        """Handle a frame."""
        try:
            command = frames.read_command(text)
            handle = COMMANDS.get(frames.text_of(command.type) or "", ConsumerSocket._ack)
            await handle(self, command)
        except (BadFrame, BadMessageId) as error:
            self.end(str(error), BAD_DATA)

    async def _ack(self, command: Command) -> None:
        part, entry, index = self._named(command)
        if part is not None:
            await self._acknowledge(part.partition, entry, index)
        self._acknowledged()

    async def _negative(self, command: Command) -> None:
        part, entry, _ = self._named(command)
        if part is not None:
            due = trio.current_time() + self._wanted.nack_delay_s
            if len(self._nacks) >= NACKS_MAX:
                heappop(self._nacks)
                part.put_back([entry])
            else:
                heappush(self._nacks, (due, part.partition.partition_id, entry))
        self._acknowledged()

    async def _permit(self, command: Command) -> None:
        if command.permitMessages is None:
            raise BadFrame(frames.BAD_JSON, "Missing required permitMessages field")
        if self._wanted.is_pulling:
            self._widen(command.permitMessages)

    async def _unsubscribe(self, _: Command) -> None:
        """Delete the subscription; the connection stays open, without messages."""
        subscriber = self._subscriber
        if subscriber is None or self._is_unsubscribed:
            return
        subscription = subscriber.subscription
        for part in subscriber.parts:
            dispatcher = part.dispatcher
            if dispatcher is not None and any(other is not part for other in dispatcher.consumers):
                text = "Unconnected or shared consumer attempting to unsubscribe"
                raise RequestRefused(GROUP_BUSY, text)
        self._is_unsubscribed = True
        subscriber.leave()
        await self.broker.durability.reached(subscription.delete())

    async def _end_of_topic(self, _: Command) -> None:
        is_end = self._topic.is_terminated
        if is_end and self._subscriber is not None:
            subscription = self._subscriber.subscription
            is_end = not any(
                subscription.backlog(partition.index) for partition in self._topic.partitions
            )
        await self.send(frames.END_OF_TOPIC[is_end])

    def _named(self, command: Command) -> tuple[HttpConsumer | None, int, int]:
        """Return the partition's consumer, entry and batch index of a message. Raises
        BadMessageId.
        """
        text = frames.text_of(command.messageId)
        if text is None:
            raise BadMessageId("messageId is missing")
        wanted = read_id(text)
        subscriber = self._subscriber
        part = None if subscriber is None else subscriber.part(wanted.ledger)
        return part, wanted.entry, wanted.batch_index

    async def _acknowledge(self, partition: Partition, entry: int, index: int) -> None:
        """Acknowledge a message; an id of no message is ignored, as in Pulsar."""
        ledger = partition.partition_id
        span = await entries.resolve_individual(partition, EntryId(ledger, entry))
        subscriber = self._subscriber
        part = None if subscriber is None else subscriber.part(ledger)
        if span is None or part is None or part.dispatcher is None or index >= span.record_count:
            return
        left: tuple[int, ...] = ()
        if index >= 0 and span.record_count > 1:
            left = ack_set_of(span, [(span.offset + index, span.offset + index + 1)])
        ids = [EntryId(ledger, span.offset, left)]
        ids += [EntryId(ledger, offset) for offset in await piece_offsets(partition, span.offset)]
        await part.dispatcher.acknowledge(part, ids, lazy=True)
        if not left:
            part.forget(span.offset)
        part.dispatcher.wake()

    def _acknowledged(self) -> None:
        if not self._wanted.is_pulling:
            self._widen(1)

    def _widen(self, messages: int) -> None:
        most = PERMITS_MAX if self._wanted.is_pulling else self._wanted.queue
        self._window = max(min(self._window + messages, most), -PERMITS_MAX)
        if self._window > 0:
            self._widened.set()


async def written(partition: Partition, placed: PlacedRecord, redelivery_count: int) -> str:
    """Return the frame of a record; of a large record, made in a thread."""
    place = message_id(partition, placed.entry, placed.batch_index)
    if record_bytes(placed.record) > INLINE_BODY_BYTES:
        return await run_in_thread(frames.delivered, placed.record, place, redelivery_count)
    return frames.delivered(placed.record, place, redelivery_count)


COMMANDS = {
    "permit": ConsumerSocket._permit,
    "unsubscribe": ConsumerSocket._unsubscribe,
    "negativeAcknowledge": ConsumerSocket._negative,
    "isEndOfTopic": ConsumerSocket._end_of_topic,
}
