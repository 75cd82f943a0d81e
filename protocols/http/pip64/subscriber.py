"""A consumer as clients over HTTP know it: an id that outlives connections, a single fetch at a
time.

The consumer reads every partition of its topic (`attached.py`), and takes entries only while a
fetch is open. Entries that a fetch took and could not return wait for the next fetch. Knows no
HTTP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

import trio

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.errors import (
    LimitExceeded,
    OffsetOutOfRange,
    SubscriptionNotFound,
    UnreadableRecord,
)
from braidlog.broker.reading.records import PlacedRecord, read_records
from braidlog.broker.reading.result import record_bytes
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.protocols.http.limits import limits_of
from braidlog.protocols.http.pip64.attached import HttpConsumer, ReceivedEntry, attach, detach

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.http.values.values import RecordCodec

# After the first entry, a fetch that knows of more records waits this long for each further entry
# before the answer. Delivery reads ahead in less time; cold records may wait for the next fetch.
LINGER_S = 0.005
RUN_ENTRIES_MAX = 1000  # Entries read together.


@dataclass(slots=True)
class ConsumerOptions:
    """The options of a consumer: start position, acknowledgement timeout, schema and priority."""

    kind: SubscriptionKind
    is_earliest: bool
    ack_timeout_s: float  # 0: no timeout.
    reader: RecordCodec | None
    schema_version: int | None
    priority: int = 0


@dataclass(slots=True)
class DeliveredMessage:
    """A message that a fetch returns."""

    partition: Partition
    record: PlacedRecord
    redelivery_count: int


@dataclass(slots=True, eq=False)
class HeldEntry:
    """An entry, or the rest of an entry, that was taken and is not returned yet."""

    consumer: HttpConsumer
    entry: ReceivedEntry
    since: float

    @property
    def is_wanted(self) -> bool:
        """True while the entry is not acknowledged."""
        return self.consumer.still_wants(self.entry.offset)

    def follows(self, other: HeldEntry) -> bool:
        """Return True if this entry comes directly after the other entry."""
        return self.consumer is other.consumer and self.entry.offset == other.entry.end


@dataclass(slots=True, eq=False)
class Fetch:
    """A request for messages, while it takes entries."""

    messages_left: int
    bytes_left: int
    came: trio.Event = field(default_factory=trio.Event)  # Set when an entry arrives.
    ended: trio.Event = field(default_factory=trio.Event)  # By a newer fetch, or by a deletion.

    @property
    def has_room(self) -> bool:
        """True while the fetch takes more entries."""
        return self.messages_left > 0 and self.bytes_left > 0 and not self.ended.is_set()


class Subscriber:
    """A consumer of a subscription. Implements `ConsumerOfPartitions`."""

    def __init__(
        self,
        broker: Broker,
        identity: str,
        name: str,
        subscription: Subscription,
        wanted: ConsumerOptions,
        probe: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Take `probe`, which asks the client of a consumer that ends with its connection."""
        self._probe = probe
        self.id = identity
        self.name = name
        self.subscription = subscription
        self.wanted = wanted
        self.last_used = trio.current_time()
        self.idle_s = 0.0
        self.fetch: Fetch | None = None
        self._is_open = False  # Was attached to every partition once.
        self._broker = broker
        self._parts: dict[int, HttpConsumer] = {}
        self._held: deque[HeldEntry] = deque()
        self._giving = trio.Lock()
        self._joining = trio.Lock()
        self._has_left = False

    # The interface for `attached.py`.

    def end_when_idle(self, idle_s: float) -> None:
        """Count the consumer as gone after that time without a request."""
        self.idle_s = idle_s

    @property
    def wants_more(self) -> bool:
        return self.fetch is not None and self.fetch.has_room

    def take(self, consumer: HttpConsumer, entry: ReceivedEntry, wanted: int) -> None:
        self._held.append(HeldEntry(consumer, entry, trio.current_time()))
        fetch = self.fetch
        if fetch is not None:
            fetch.messages_left -= wanted
            fetch.bytes_left -= entry.size
            fetch.came.set()

    @property
    def is_over(self) -> bool:
        """True after the topic was deleted or has moved to another broker."""
        return self.subscription.topic.deleted or self.subscription.has_moved

    def touch(self) -> None:
        self.last_used = trio.current_time()

    def is_live(self) -> bool:
        """Return True if the consumer was in use recently."""
        return self.fetch is not None or trio.current_time() - self.last_used < self.idle_s

    async def is_alive(self) -> bool:
        """Return True if the client answers; without a connection, if it was in use recently."""
        return self.is_live() if self._probe is None else await self._probe()

    def dropped(self, consumer: HttpConsumer) -> None:
        self._held = deque(held for held in self._held if held.consumer is not consumer)
        if self.fetch is not None:
            self.fetch.came.set()  # The fetch attaches again.

    @property
    def parts(self) -> list[HttpConsumer]:
        """The consumers of the partitions."""
        return list(self._parts.values())

    def part(self, partition_id: int) -> HttpConsumer | None:
        """Return the consumer of the partition with that id; None if there is none."""
        for part in self._parts.values():
            if part.partition.partition_id == partition_id:
                return part
        return None

    # Joining and leaving.

    async def join(self) -> None:
        """Attach to every partition that is not attached yet.

        Raises SubscriptionBusy, SubscriptionNotFound after another client has deleted the
        subscription, LimitExceeded, BrokerError of the log.
        """
        topic = self.subscription.topic
        most = limits_of(self._broker).consumer_partitions
        if len(topic.partitions) > most:
            raise LimitExceeded(f"a consumer over HTTP reads at most {most} partitions")
        async with self._joining:
            for partition in tuple(topic.partitions):
                part = self._parts.get(partition.index)
                if part is None:
                    part = HttpConsumer(
                        self.name, self.wanted.priority, owner=self, partition=partition
                    )
                    self._parts[partition.index] = part
                if not part.is_attached:
                    await self._attach(part)
        self._is_open = True

    async def _attach(self, part: HttpConsumer) -> None:
        subscription = self.subscription
        existing = self._broker.subscriptions.find(subscription.topic, subscription.name)
        if self._has_left or (self._is_open and existing is None):
            raise SubscriptionNotFound(f"consumer {self.id} or its subscription was ended")
        await attach(self._broker, part, subscription, self.wanted.kind, self._initial)
        if self._has_left:  # Deleted meanwhile.
            detach(self._broker, part)
            self._parts.clear()
            raise SubscriptionNotFound(f"consumer {self.id} was ended")

    def _initial(self, partition: Partition) -> int:
        if self.wanted.is_earliest:
            return partition.log_start_offset
        return partition.high_watermark

    def leave(self) -> None:
        """Detach from every partition: all entries held return to the subscription."""
        self._has_left = True
        self.end_fetch()
        self._held.clear()
        for part in self._parts.values():
            detach(self._broker, part)
        self._parts.clear()  # Breaks a reference cycle.

    # Fetching.

    def end_fetch(self) -> None:
        """End an open fetch, so that its request is answered at once."""
        if self.fetch is not None:
            self.fetch.ended.set()
            self.fetch.came.set()
            self.fetch = None
            for part in self._parts.values():
                part.close()

    async def begin(self, messages: int, size: int) -> Fetch:
        """Open a fetch and end an older fetch. Raises LimitExceeded, and as `join`."""
        self.touch()
        self.end_fetch()
        room = self._room()
        if room <= 0:
            most = limits_of(self._broker).consumer_unacked
            text = f"{most - room} messages of this consumer are not acknowledged"
            raise LimitExceeded(f"{text}, at most {most} may be")
        fetch = self.fetch = Fetch(min(messages, room), size)
        try:
            await self.join()
        except BaseException:  # Also Cancelled: no fetch may stay open.
            self.finish(fetch)
            raise
        if self._held:
            fetch.came.set()
        elif not fetch.ended.is_set():
            self.open_parts(fetch)
        return fetch

    @property
    def unacked(self) -> int:
        """The number of messages that the consumer holds unacknowledged."""
        return sum(part.unacked for part in self._parts.values())

    def _room(self) -> int:
        return limits_of(self._broker).consumer_unacked - self.unacked

    async def go_on(self, fetch: Fetch, messages: int, size: int) -> None:
        """Take entries again after entries that could not be returned. Raises as `join`."""
        fetch.came = trio.Event()
        await self.join()
        if not self._held:
            fetch.messages_left = max(min(messages, self._room()), 0)
            fetch.bytes_left = size
        self.open_parts(fetch)

    def open_parts(self, fetch: Fetch) -> None:
        """Request entries for a fetch from every partition."""
        for part in self._parts.values():
            part.open(fetch.messages_left)

    def finish(self, fetch: Fetch) -> None:
        """End a fetch: it takes no more entries."""
        self.touch()
        if self.fetch is fetch:
            self.end_fetch()

    async def wait_until_full(self, fetch: Fetch) -> None:
        """After the first entry, wait until the fetch is full, until the fetch has all records
        stored by now, or until no more entries arrive at once.
        """
        ends = {index: part.partition.next_offset for index, part in self._parts.items()}
        while fetch.has_room and self.more_is_there(ends):
            fetch.came = trio.Event()
            with trio.move_on_after(LINGER_S) as waited:
                await fetch.came.wait()
            if waited.cancelled_caught:
                return

    def more_is_there(self, ends: Mapping[int, int] | None = None) -> bool:
        """Return True if a partition has records that no consumer holds. Records after `ends`, by
        partition, do not count.
        """
        for index, part in self._parts.items():
            if part.dispatcher is not None and part.is_attached:
                held = sum(
                    max(consumer.unacked, len(consumer.pending))
                    for consumer in part.dispatcher.consumers
                )
                newer = 0
                if ends is not None:
                    newer = part.partition.next_offset - ends.get(index, 0)
                if self.subscription.backlog(index) - newer > held:
                    return True
        return False

    async def give_out(
        self, messages: int, size: int, memory: OutputReservation
    ) -> list[DeliveredMessage]:
        """Return messages of the entries taken: at most `messages` and about `size` bytes, but at
        least a single message if possible.

        `memory` is reserved for the messages. Raises UnreadableRecord for an unreadable first
        record, which remains the next record until acknowledged. Raises DamagedLog, TopicNotFound.
        """
        given_out: list[DeliveredMessage] = []
        async with self._giving:  # A newer fetch waits for the answer of the older fetch.
            while len(given_out) < messages and size > 0 and (run := self._next_run()):
                try:
                    run_messages = await self._read_run(
                        run, messages - len(given_out), size, memory
                    )
                except UnreadableRecord as error:
                    if given_out:
                        break
                    place = run[0].entry.offset
                    ledger = run[0].consumer.partition.partition_id
                    text = f"{error}; acknowledge ledger {ledger}, entry {place} to pass it"
                    raise UnreadableRecord(text) from None
                given_out += run_messages
                size -= sum(record_bytes(message.record.record) for message in run_messages)
        return given_out

    def _next_run(self) -> list[HeldEntry]:
        """Return the first entries held that follow each other in a partition."""
        while self._held and not self._held[0].is_wanted:
            self._held.popleft()
        run: list[HeldEntry] = []
        for held in self._held:
            if len(run) >= RUN_ENTRIES_MAX or (run and not held.follows(run[-1])):
                break
            run.append(held)
        return run

    async def _read_run(
        self, run: Sequence[HeldEntry], messages: int, size: int, memory: OutputReservation
    ) -> list[DeliveredMessage]:
        """Return the messages of a run, and drop its entries as far as they are returned."""
        consumer, first = run[0].consumer, run[0].entry
        reached = run[-1].entry.end
        placed: list[PlacedRecord] = []
        try:
            read = await read_records(
                consumer.partition,
                first.offset + first.skip,
                bytes_max=size,
                records_max=min(messages, reached - first.offset - first.skip),
                memory=memory,
            )
        except OffsetOutOfRange:
            pass  # Retention removed the records: no messages are left.
        else:
            placed = read.records
            # A read continues after skipped records, and may reach entries that other consumers
            # hold.
            passed = [start for start, _ in read.skipped if any(h.entry.has(start) for h in run)]
            if passed:
                await consumer.pass_over(passed)
            if read.next_offset > first.offset + first.skip:
                reached = min(read.next_offset, reached)
        if not self._held or self._held[0] is not run[0]:
            return []  # A seek or a deletion during the read.
        wanted = [record for record in placed if record.record.offset < reached]
        delivered: list[DeliveredMessage] = []
        for held in run:
            inside = [record for record in wanted if held.entry.has(record.record.offset)]
            delivered += (
                DeliveredMessage(consumer.partition, record, held.entry.redelivery_count)
                for record in inside
                if held.entry.wants(record.record.offset)
            )
            if not self._go_on(held, reached):
                break
        return delivered

    def _go_on(self, held: HeldEntry, reached: int) -> bool:
        """Record how far an entry was returned; return True after the whole entry."""
        entry = held.entry
        if reached <= entry.offset:
            return False
        if self.wanted.ack_timeout_s:
            deadline = trio.current_time() + self.wanted.ack_timeout_s
            held.consumer.sent.pop(entry.offset, None)  # Keeps `sent` in the order of deadlines.
            held.consumer.sent[entry.offset] = deadline
        if reached < entry.end:
            entry.skip = reached - entry.offset
            return False
        self._held.popleft()
        return True

    # Keeping time.

    def put_back_overdue(self, now: float) -> None:
        """Redeliver messages that were returned, or held here, too long ago."""
        timeout = self.wanted.ack_timeout_s
        if not timeout:
            return
        for part in self._parts.values():
            overdue = list(takewhile(lambda entry: part.sent[entry] <= now, part.sent))  # noqa: B023
            if overdue:
                part.put_back(overdue)
        if self.fetch is None:
            old = [held for held in self._held if held.since + timeout <= now]
            for held in old:
                self._held.remove(held)
                held.consumer.put_back([held.entry.offset])
