"""A consumer as clients over HTTP know it: an id that outlives connections, one fetch at a time.

It is a consumer of every partition of its topic (`attached.py`), and takes entries only while a
fetch is open. Entries that a fetch took and could not give out wait for the next. Knows no HTTP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
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
from braidlog.broker.reading.records import PlacedRecord, read_records, record_bytes
from braidlog.broker.runtime.output_budget import Reservation
from braidlog.protocols.http.limits import CONSUMER_PARTITIONS_MAX, CONSUMER_UNACKED_MAX
from braidlog.protocols.http.pip64.attached import HttpConsumer, Taken, attach, detach

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.http.values.values import RecordCodec

# After the first entry a fetch that knows of more records waits this long for each next one before
# it is answered. Delivery reads ahead in less time; cold records may wait for the next fetch.
LINGER_S = 0.005
RUN_ENTRIES_MAX = 1000  # Entries read together.


@dataclass(slots=True)
class Wanted:
    """The options of a consumer: where it starts, and how it is served."""

    kind: SubscriptionKind
    is_earliest: bool
    ack_timeout_s: float  # 0: never
    reader: RecordCodec | None
    schema_version: int | None


@dataclass(slots=True)
class Given:
    """A message that a fetch gives out."""

    partition: Partition
    record: PlacedRecord
    redelivery_count: int


@dataclass(slots=True, eq=False)
class Held:
    """An entry, or the rest of one, that was taken and is not given out yet."""

    consumer: HttpConsumer
    taken: Taken
    since: float

    @property
    def is_wanted(self) -> bool:
        """Whether it is still not acknowledged."""
        return self.consumer.still_wants(self.taken.offset)

    def follows(self, other: Held) -> bool:
        """Whether it comes right after the other one."""
        return self.consumer is other.consumer and self.taken.offset == other.taken.end


@dataclass(slots=True, eq=False)
class Fetch:
    """One request for messages, while it takes entries."""

    messages_left: int
    bytes_left: int
    came: trio.Event = field(default_factory=trio.Event)  # Something came since the last look.
    ended: trio.Event = field(default_factory=trio.Event)  # By a newer one, or by a deletion.

    @property
    def has_room(self) -> bool:
        """Whether it takes more."""
        return self.messages_left > 0 and self.bytes_left > 0 and not self.ended.is_set()


class Subscriber:
    """One consumer of a subscription."""

    def __init__(
        self, broker: Broker, identity: str, name: str, subscription: Subscription, wanted: Wanted
    ) -> None:
        self.id = identity
        self.name = name
        self.subscription = subscription
        self.wanted = wanted
        self.last_used = trio.current_time()
        self.idle_s = 0.0
        self.fetch: Fetch | None = None
        self._is_open = False  # It has been attached to every partition once.
        self._broker = broker
        self._parts: dict[int, HttpConsumer] = {}
        self._held: deque[Held] = deque()
        self._giving = trio.Lock()
        self._joining = trio.Lock()
        self._has_left = False

    # What `attached.py` needs.

    @property
    def wants_more(self) -> bool:
        """Whether a fetch is open that has room."""
        return self.fetch is not None and self.fetch.has_room

    def take(self, consumer: HttpConsumer, taken: Taken, wanted: int) -> None:
        """Take an entry that came, with `wanted` unacknowledged messages."""
        self._held.append(Held(consumer, taken, trio.current_time()))
        fetch = self.fetch
        if fetch is not None:
            fetch.messages_left -= wanted
            fetch.bytes_left -= taken.size
            fetch.came.set()

    @property
    def is_over(self) -> bool:
        """Whether its topic was deleted, or has moved to another broker."""
        return self.subscription.topic.deleted or self.subscription.has_moved

    def touch(self) -> None:
        """Note that it is in use."""
        self.last_used = trio.current_time()

    def is_live(self) -> bool:
        """Whether it was in use lately."""
        return self.fetch is not None or trio.current_time() - self.last_used < self.idle_s

    def dropped(self, consumer: HttpConsumer) -> None:
        """Drop what a consumer held: a seek or a deletion has detached it from its partition."""
        self._held = deque(one for one in self._held if one.consumer is not consumer)
        if self.fetch is not None:
            self.fetch.came.set()  # The fetch attaches again.

    # Joining and leaving.

    async def join(self) -> None:
        """Attach to every partition that it is not attached to.

        Raises SubscriptionBusy, SubscriptionNotFound once another client has ended it,
        LimitExceeded, BrokerError of the log.
        """
        topic = self.subscription.topic
        if len(topic.partitions) > CONSUMER_PARTITIONS_MAX:
            text = f"a consumer over HTTP reads at most {CONSUMER_PARTITIONS_MAX} partitions"
            raise LimitExceeded(text)
        async with self._joining:
            for partition in tuple(topic.partitions):
                part = self._parts.get(partition.index)
                if part is None:
                    part = HttpConsumer(self.name, owner=self, partition=partition)
                    self._parts[partition.index] = part
                if not part.is_attached:
                    await self._attach(part)
        self._is_open = True

    async def _attach(self, part: HttpConsumer) -> None:
        subscription = self.subscription
        there = self._broker.subscriptions.find(subscription.topic, subscription.name)
        if self._has_left or (self._is_open and there is None):
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
        """Detach from everything: all that it holds goes back to the subscription."""
        self._has_left = True
        self.end_fetch()
        self._held.clear()
        for part in self._parts.values():
            detach(self._broker, part)
        self._parts.clear()  # Breaks a reference cycle.

    # Fetching.

    def end_fetch(self) -> None:
        """Make an open fetch be answered at once."""
        if self.fetch is not None:
            self.fetch.ended.set()
            self.fetch.came.set()
            self.fetch = None
            for part in self._parts.values():
                part.close()

    async def begin(self, messages: int, size: int) -> Fetch:
        """Open a fetch; an open one is answered at once. Raises LimitExceeded, and as `join`."""
        self.touch()
        self.end_fetch()
        room = self._room()
        if room <= 0:
            text = f"{CONSUMER_UNACKED_MAX - room} messages of this consumer are not acknowledged"
            raise LimitExceeded(f"{text}, at most {CONSUMER_UNACKED_MAX} may be")
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

    def _room(self) -> int:
        return CONSUMER_UNACKED_MAX - sum(part.unacked for part in self._parts.values())

    async def go_on(self, fetch: Fetch, messages: int, size: int) -> None:
        """Take entries again, as what came could not be given out. Raises what `join` raises."""
        fetch.came = trio.Event()
        await self.join()
        if not self._held:
            fetch.messages_left = max(min(messages, self._room()), 0)
            fetch.bytes_left = size
        self.open_parts(fetch)

    def open_parts(self, fetch: Fetch) -> None:
        """Ask every partition for entries for a fetch."""
        for part in self._parts.values():
            part.open(fetch.messages_left)

    def finish(self, fetch: Fetch) -> None:
        """End a fetch: nothing more is taken for it."""
        self.touch()
        if self.fetch is fetch:
            self.end_fetch()

    async def settle(self, fetch: Fetch) -> None:
        """After the first entry: wait until the fetch is full, until it has the records that are
        stored by now, or until nothing more comes at once.
        """
        ends = {index: part.partition.next_offset for index, part in self._parts.items()}
        while fetch.has_room and self.more_is_there(ends):
            fetch.came = trio.Event()
            with trio.move_on_after(LINGER_S) as waited:
                await fetch.came.wait()
            if waited.cancelled_caught:
                return

    def more_is_there(self, ends: Mapping[int, int] | None = None) -> bool:
        """Whether a partition has records that no consumer holds; `ends`, by partition: without
        those that came after that.
        """
        for index, part in self._parts.items():
            if part.dispatcher is not None and part.is_attached:
                held = sum(max(one.unacked, len(one.pending)) for one in part.dispatcher.consumers)
                newer = 0
                if ends is not None:
                    newer = part.partition.next_offset - ends.get(index, 0)
                if self.subscription.backlog(index) - newer > held:
                    return True
        return False

    async def give_out(self, messages: int, size: int, memory: Reservation) -> list[Given]:
        """Give out messages of the entries taken: at most `messages` and about `size` bytes, but at
        least one if there is any. `memory` is reserved for them.

        Raises UnreadableRecord if the first one cannot be read: it stays the next one until it is
        acknowledged. Raises DamagedLog, TopicNotFound.
        """
        given: list[Given] = []
        async with self._giving:  # A newer fetch waits until the older one has its answer.
            while len(given) < messages and size > 0 and (run := self._next_run()):
                try:
                    found = await self._read_run(run, messages - len(given), size, memory)
                except UnreadableRecord as error:
                    if given:
                        break
                    place = run[0].taken.offset
                    ledger = run[0].consumer.partition.partition_id
                    text = f"{error}; acknowledge ledger {ledger}, entry {place} to pass it"
                    raise UnreadableRecord(text) from None
                given += found
                size -= sum(record_bytes(one.record.record) for one in found)
        return given

    def _next_run(self) -> list[Held]:
        """The first entries held that follow one another in one partition."""
        while self._held and not self._held[0].is_wanted:
            self._held.popleft()
        run: list[Held] = []
        for held in self._held:
            if len(run) >= RUN_ENTRIES_MAX or (run and not held.follows(run[-1])):
                break
            run.append(held)
        return run

    async def _read_run(
        self, run: Sequence[Held], messages: int, size: int, memory: Reservation
    ) -> list[Given]:
        """The messages of a run; its entries are dropped as far as they are given out."""
        consumer, first = run[0].consumer, run[0].taken
        reached = run[-1].taken.end
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
            pass  # Retention removed it: nothing is left to give out.
        else:
            placed = read.records
            # A read goes on past what it skips, and may come to entries that others hold.
            passed = [start for start, _ in read.skipped if any(h.taken.has(start) for h in run)]
            if passed:
                await consumer.pass_over(passed)
            if read.next_offset > first.offset + first.skip:
                reached = min(read.next_offset, reached)
        if not self._held or self._held[0] is not run[0]:
            return []  # A seek, or a deletion, while it was read.
        wanted = [one for one in placed if one.record.offset < reached]
        given: list[Given] = []
        for held in run:
            inside = [one for one in wanted if held.taken.has(one.record.offset)]
            given += (
                Given(consumer.partition, one, held.taken.redelivery_count)
                for one in inside
                if held.taken.wants(one.record.offset)
            )
            if not self._go_on(held, reached):
                break
        return given

    def _go_on(self, held: Held, reached: int) -> bool:
        """Note how far an entry was given out; returns whether that was all of it."""
        taken = held.taken
        if reached <= taken.offset:
            return False
        if self.wanted.ack_timeout_s:
            deadline = trio.current_time() + self.wanted.ack_timeout_s
            held.consumer.sent.pop(taken.offset, None)  # Keeps `sent` in the order of deadlines.
            held.consumer.sent[taken.offset] = deadline
        if reached < taken.end:
            taken.skip = reached - taken.offset
            return False
        self._held.popleft()
        return True

    # Keeping time.

    def put_back_overdue(self, now: float) -> None:
        """Redeliver messages that were given out, or held here, too long ago."""
        timeout = self.wanted.ack_timeout_s
        if not timeout:
            return
        for part in self._parts.values():
            overdue = list(takewhile(lambda entry: part.sent[entry] <= now, part.sent))  # noqa: B023
            if overdue:
                part.put_back(overdue)
        if self.fetch is None:
            old = [one for one in self._held if one.since + timeout <= now]
            for one in old:
                self._held.remove(one)
                one.consumer.put_back([one.taken.offset])
