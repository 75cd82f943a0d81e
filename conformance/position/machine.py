"""Random steps of all four protocols on a subscription of a broker, each compared with the model.

After a SIGKILL the cursor has the state after some step between the last answered step and the last
step: an answered step is never lost, a later step may be.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from conformance.clients.raw.iggy import IggyWire, to_partition
from conformance.clients.raw.iggy_w import IggyWWire
from conformance.clients.raw.kafka import KafkaWire, message
from conformance.clients.raw.pulsar import PulsarWire, batch
from conformance.position import modern, talk
from conformance.position.model import (
    CursorViews,
    EntryLog,
    ModelCursor,
    ModelEntry,
    ModelPartition,
)
from conformance.position.talk import HttpPlace, PulsarPlace, http_id, pulsar_id
from conformance.server import RunningBroker

GROUP = "billing"
BATCHES = 6  # Appends of each protocol at the start, in turn.
BATCH_MAX = 5


class PositionsDiffer(AssertionError):
    """Broker and model differ."""


class PositionMachine:
    """A topic with a group and a series of steps."""

    def __init__(
        self, broker: RunningBroker, topic: str, seed: int, *, partitions: int = 1
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.random = random.Random(seed)
        self.places = [ModelPartition(index) for index in range(partitions)]
        self.at = self.places[0]  # The place of this step.
        self.is_there = False  # True if the subscription exists.
        self.steps: list[str] = []
        with IggyWire(broker.address("iggy")) as iggy:
            iggy.create_topic(topic, partitions=partitions)
        self.is_partitioned = partitions > 1
        for place in self.places:
            self.fill(place)

    # The log.

    def fill(self, place: ModelPartition) -> None:
        """Append to a new partition."""
        self.at = place
        for _ in range(BATCHES):
            for append in (self._append_kafka, self._append_pulsar, self._append_iggy):
                append(self.random.randint(1, BATCH_MAX))

    @property
    def log(self) -> EntryLog:
        """Return the log of the step's partition."""
        return self.at.log

    @property
    def cursor(self) -> ModelCursor:
        """Return the cursor of the step's partition."""
        return self.at.cursor

    def _add(self, count: int, *, batched: bool) -> None:
        entries, start = self.log.entries, self.log.end
        if batched:
            entries.append(ModelEntry(start, count, batched=True))
        else:
            entries += (ModelEntry(start + number) for number in range(count))

    def _append_kafka(self, count: int) -> None:
        with KafkaWire(self.broker.address("kafka")) as wire:
            messages = b"".join([message(None, b"k")] * count)
            code, _ = wire.produce(self.topic, messages, partition=self.at.index)
        assert code == 0
        self._add(count, batched=False)

    def _append_iggy(self, count: int) -> None:
        with self._iggy() as wire:
            if isinstance(wire, IggyWWire):
                wire.send_messages(self.topic, [b"i"] * count, partition=self.at.index + 1)
            else:
                to = to_partition(self.at.index + 1)
                wire.send_messages(self.topic, [(0, [], b"i")] * count, to)
        self._add(count, batched=False)

    def _append_pulsar(self, count: int) -> None:
        with PulsarWire(self.broker.address("pulsar")) as wire:
            wire.open_producer(self._pulsar_topic)
            payload = batch([b"p"] * count)
            self.at.ledger, entry = wire.publish(0, [(3, 1_700_000_000_000), (11, count)], payload)
        assert entry == self.log.end
        self._add(count, batched=True)

    # Steps.

    def step(self) -> None:
        """Make a call of a random protocol, and compare all protocols' answers.
        Raises PositionsDiffer.
        """
        possible = self.possible()
        weights = [weight for _, weight in possible.values()]
        name, (act, _) = self.random.choices(list(possible.items()), weights)[0]
        self.at = self.random.choice(self.places)
        where = f" in partition {self.at.index}" if self.is_partitioned else ""
        self.steps.append(name + where)
        is_on_disk = act(self)
        self.at.stepped(is_on_disk=is_on_disk)
        self.is_there = self.is_there or self.is_set
        self.compare()

    def possible(self) -> "Steps":
        """Return the possible steps and their weights."""
        return STEPS

    @property
    def is_set(self) -> bool:
        """Return True if the cursor of any partition is set."""
        return any(place.cursor.below is not None for place in self.places)

    def compare(self) -> None:
        """Compare every protocol's answer with the model. Raises PositionsDiffer."""
        cursors = self._read_positions()
        wanted = [place.cursor.read_positions(is_there=self.is_there) for place in self.places]
        if cursors != wanted:
            raise PositionsDiffer(f"{self.where()}: {cursors}, should be {wanted}")

    def _read_positions(self) -> list[CursorViews]:
        return talk.read_positions(self.broker, self.topic, GROUP, len(self.places))

    def restart(self) -> None:
        """Stop cleanly: nothing is lost."""
        self.steps.append("restart")
        assert self.broker.stop() == 0
        self.broker.start()
        for place in self.places:
            place.stepped(is_on_disk=True)
        self.compare()

    def kill(self) -> None:
        """Kill the broker: answered steps are kept, and no unrequested change appears."""
        self.steps.append("SIGKILL")
        self.broker.kill()
        self.broker.start()
        cursors = self._read_positions()
        is_there = cursors[0].acked is not None
        may_be_there = self.is_there or any(
            cursor.below is not None for place in self.places for cursor in place.maybe
        )
        if is_there and not may_be_there:
            raise PositionsDiffer(f"{self.where()}: the subscription is there again")
        self.is_there = is_there
        for place, seen in zip(self.places, cursors, strict=True):
            may_be = {cursor.read_positions(is_there=is_there): cursor for cursor in place.maybe}
            if seen not in may_be:
                raise PositionsDiffer(
                    f"{self.where()}, {place.index}: {seen}, may be {list(may_be)}"
                )
            place.cursor = may_be[seen]
            place.cursor.deliveries_of = None
            place.stepped(is_on_disk=True)

    def leave(self) -> None:
        """Release connections: nothing is held between two steps."""

    def deliver(self) -> bool:
        """Deliver to a Pulsar consumer: the unacknowledged entries, with the ack sets of Pulsar's
        acks.
        """
        self._set_by_subscribe()
        wanted = self.cursor.deliveries()
        with self._pulsar() as place:
            deliveries = place.deliveries(len(wanted))
            place.leave()
        expected = [
            (entry.offset, talk.ack_set(entry, acked) if acked else ()) for entry, acked in wanted
        ]
        if deliveries != expected:
            raise PositionsDiffer(f"{self.where()}: delivered {deliveries}, should be {expected}")
        return True

    def check(self, is_right: bool, seen: str) -> None:
        """Raise PositionsDiffer unless a client saw the model's answer."""
        if not is_right:
            raise PositionsDiffer(f"{self.where()}: {seen}, wanted are {self.cursor.wanted()}")

    def where(self) -> str:
        """Return the topic and the steps so far."""
        return f"{self.topic}, after {' > '.join(self.steps)}"

    def _offset(self) -> int:
        return self.random.randrange(self.log.end)

    def _entry(self) -> ModelEntry:
        return self.random.choice(self.log.entries)

    # Kafka.

    def _kafka_commit(self) -> bool:
        return self.commit_by(KafkaWire.commit)

    def _kafka_member_commit(self) -> bool:
        return self.commit_by(KafkaWire.commit_as_member)

    def commit_by(self, commit: "CommitCall", wire_type: type[KafkaWire] = KafkaWire) -> bool:
        """Commit a number in the step's partition."""
        offset = self._number(self.at)
        with wire_type(self.broker.address("kafka")) as wire:
            assert commit(wire, GROUP, self.topic, offset, partition=self.at.index) == 0
        self.cursor.commit(offset, kafka=True)
        return True

    def _kafka_commit_several(self) -> bool:
        """Commit several partitions in a request: all on disk before the answer."""
        places = self.random.sample(self.places, self.random.randint(1, len(self.places)))
        offsets = {place.index: self._number(place) for place in places}
        with KafkaWire(self.broker.address("kafka")) as wire:
            assert set(wire.commit_all(GROUP, self.topic, offsets)) == {0}
        for place in places:
            place.cursor.commit(offsets[place.index], kafka=True)
            place.stepped(is_on_disk=True)
        return self.at in places

    def _number(self, place: ModelPartition) -> int:
        committed = place.cursor.committed
        if committed is not None and self.random.random() < 0.3:
            return committed
        return self.random.randrange(place.log.end + 4)

    # Iggy.

    def _iggy(self) -> IggyWire | IggyWWire:
        """Return a client of the dialect D2 or W."""
        is_newest = self.random.random() < 0.5
        return (IggyWWire if is_newest else IggyWire)(self.broker.address("iggy"))

    def _iggy_store(self) -> bool:
        offset = self._offset()
        with self._iggy() as wire:
            wire.store_offset(self.topic, GROUP, offset, partition=self.at.index + 1)
        self.cursor.commit(offset + 1, kafka=False)
        self.iggy_committed()
        return True

    def iggy_committed(self) -> None:
        """A client of Iggy committed in the step's partition: a group may take notice."""

    def _iggy_poll(self) -> bool:
        count = self.random.randint(1, 6)
        wanted = self.cursor.wanted()[:count]
        with self._iggy() as wire:
            offsets = wire.poll_next(self.topic, count, GROUP, partition=self.at.index + 1)
        if offsets != wanted:
            raise PositionsDiffer(f"{self.where()}: polled {offsets}, should be {wanted}")
        self.cursor.given_by_poll(offsets)
        self.iggy_committed()
        return False

    def _iggy_delete(self) -> bool:
        if self.cursor.below is None:
            return False
        with self._iggy() as wire:
            wire.delete_offset(self.topic, GROUP, partition=self.at.index + 1)
        return self._end()

    def _end(self) -> bool:
        """End the subscription with its last cursor."""
        self.cursor.end()
        self.is_there = self.is_set
        return True

    # Pulsar.

    def _pulsar(self) -> PulsarPlace:
        return PulsarPlace(self.broker.address("pulsar"), self._pulsar_topic, GROUP)

    @property
    def _pulsar_topic(self) -> str:
        return f"{self.topic}-partition-{self.at.index}" if self.is_partitioned else self.topic

    def _set_by_subscribe(self) -> None:
        """Set a cursor that was never set by a SUBSCRIBE, which is answered once the cursor is on
        disk.
        """
        if self.cursor.below is None:
            self.cursor.start(0)
            self.is_there = True
            self.at.stepped(is_on_disk=True)

    def _pulsar_ack(self) -> bool:
        entries = self.random.sample(self.log.entries, self.random.randint(1, 4))
        ids = [pulsar_id(self.at.ledger, entry) for entry in entries]
        return self._ack(talk.INDIVIDUAL, ids, [o for entry in entries for o in _offsets(entry)])

    def _pulsar_ack_index(self) -> bool:
        entry = self.random.choice(
            [candidate for candidate in self.log.entries if candidate.batched]
        )
        acked = self.random.sample(_offsets(entry), self.random.randint(1, entry.count))
        return self._ack(talk.INDIVIDUAL, [pulsar_id(self.at.ledger, entry, acked)], acked)

    def _pulsar_ack_to(self) -> bool:
        """Acknowledge to an entry's end; half of the times by an id inside an
        entry: whole entries.
        """
        entry = self._entry()
        named = replace(entry, offset=self.random.choice(_offsets(entry)))
        return self._ack(
            talk.CUMULATIVE, [pulsar_id(self.at.ledger, named)], list(range(entry.end))
        )

    def _pulsar_ack_to_index(self) -> bool:
        entry = self.random.choice(
            [candidate for candidate in self.log.entries if candidate.batched]
        )
        acked = _offsets(entry)[: self.random.randint(1, entry.count)]
        named = pulsar_id(self.at.ledger, entry, acked)
        return self._ack(talk.CUMULATIVE, [named], [*range(entry.offset), *acked])

    def _ack(self, kind: int, ids: list[bytes], offsets: list[int]) -> bool:
        answered = self.random.random() < 0.5
        with self._pulsar() as place:
            self._set_by_subscribe()
            place.ack(kind, ids, answered=answered)
            place.leave()
        self.cursor.ack(offsets)
        return answered

    def _pulsar_seek(self) -> bool:
        """Seek; an offset within an entry leads to the next entry."""
        offset = self._offset()
        following = [entry.offset for entry in self.log.entries if entry.offset >= offset]
        with self._pulsar() as place:
            place.seek(pulsar_id(self.at.ledger, ModelEntry(offset)))
        self.cursor.seek(following[0] if following else self.log.end)
        return True

    def _pulsar_unsubscribe(self) -> bool:
        with self._pulsar() as place:
            place.unsubscribe()
        return self._end()

    # HTTP.

    def _http(self, kind: str, **fields: object) -> bool:
        """Return True if the change was made: only an existing subscription can be changed."""
        place = HttpPlace(self.broker.address("http"), self.topic, GROUP)
        status = place.change(kind, **fields)
        if status != (200 if self.is_there else 404):
            raise PositionsDiffer(f"{self.where()}: status {status}")
        return self.is_there

    def _http_id(self, offset: int, index: int = -1) -> str:
        return http_id(self.at.ledger, offset, index, partition=self.at.index)

    def _http_ack(self) -> bool:
        entries = self.random.sample(self.log.entries, self.random.randint(1, 3))
        ids, offsets = [], []
        for entry in entries:
            offset = self.random.choice(_offsets(entry))
            is_part = entry.batched and self.random.random() < 0.5
            ids.append(self._http_id(entry.offset, offset - entry.offset if is_part else -1))
            offsets += [offset] if is_part else _offsets(entry)
        if done := self._http("Individual", messageIds=ids):
            self.cursor.start(0)  # If only cursors of other partitions were set.
            self.cursor.ack(offsets)
        return done

    def _http_ack_to(self) -> bool:
        entry = self._entry()
        index = self.random.randrange(entry.count) if entry.batched else -1
        named = self._http_id(entry.offset, index)
        if done := self._http("Cumulative", messageIds=[named]):
            self.cursor.start(0)
            self.cursor.ack_to(entry.end if index < 0 else entry.offset + index + 1)
        return done

    def _http_seek(self) -> bool:
        place = self.random.choice(("earliest", "latest", None))
        entry = self._entry()
        how = {"position": place} if place else {"messageIds": [self._http_id(entry.offset)]}
        if not self._http("Seek", **how):
            return False
        if place is None:
            self.cursor.seek(entry.offset)
        for each in self.places if place else ():
            each.cursor.seek(0 if place == "earliest" else each.log.end)
            each.stepped(is_on_disk=True)
        return True

    # Growth of the log.

    def _append(self) -> bool:
        appends = (self._append_kafka, self._append_pulsar, self._append_iggy)
        self.random.choice(appends)(self.random.randint(1, BATCH_MAX))
        return False


def _offsets(entry: ModelEntry) -> list[int]:
    return list(range(entry.offset, entry.end))


class CommitCall(Protocol):
    """A way to commit."""

    def __call__(self, wire: Any, group: str, topic: str, offset: int, *, partition: int) -> int:
        """Return the error code."""


Steps = dict[str, tuple[Callable[[Any], bool], int]]  # Returns True if on disk; weight.
STEPS: Steps = {
    "Kafka commits": (PositionMachine._kafka_commit, 5),
    "a member of a Kafka group commits": (PositionMachine._kafka_member_commit, 3),
    "Kafka commits several": (PositionMachine._kafka_commit_several, 2),
    "Iggy stores": (PositionMachine._iggy_store, 4),
    "Iggy polls": (PositionMachine._iggy_poll, 6),
    "Iggy deletes": (PositionMachine._iggy_delete, 1),
    "Pulsar acks": (PositionMachine._pulsar_ack, 8),
    "Pulsar acks in a batch": (PositionMachine._pulsar_ack_index, 8),
    "Pulsar acks to an entry": (PositionMachine._pulsar_ack_to, 4),
    "Pulsar acks into a batch": (PositionMachine._pulsar_ack_to_index, 4),
    "Pulsar seeks": (PositionMachine._pulsar_seek, 2),
    "Pulsar unsubscribes": (PositionMachine._pulsar_unsubscribe, 1),
    "Pulsar receives": (PositionMachine.deliver, 5),
    "HTTP acks": (PositionMachine._http_ack, 5),
    "HTTP acks to a message": (PositionMachine._http_ack_to, 3),
    "HTTP seeks": (PositionMachine._http_seek, 2),
    "more records": (PositionMachine._append, 2),
    **modern.STEPS,
}
