"""Random steps of all four protocols on one cursor of a broker, each held against the model.

After a SIGKILL the cursor is where it was after some step between the last answered one and the
last of all: what was answered is never lost, what comes later may be.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from conformance.position import talk
from conformance.position.model import Cursor, Entry, Log
from conformance.position.talk import HttpPlace, PulsarPlace, http_id, pulsar_id
from conformance.raw.iggy import IggyWire
from conformance.raw.kafka import KafkaWire, message
from conformance.raw.pulsar import PulsarWire
from conformance.server import RunningBroker

GROUP = "billing"
BATCHES = 6  # Appends of each protocol at the start, in turn.
BATCH_MAX = 5


class Difference(AssertionError):
    """The broker is not where the model is."""


class Machine:
    """One topic of one partition, one group, one life of steps."""

    def __init__(self, broker: RunningBroker, topic: str, seed: int) -> None:
        self.broker = broker
        self.topic = topic
        self.random = random.Random(seed)
        self.log = Log()
        self.cursor = Cursor(self.log)
        self.maybe: list[Cursor] = [self._copy()]  # Since the last step that is on disk for sure.
        self.steps: list[str] = []
        self.ledger = -1
        self._fill()

    # The log.

    def _fill(self) -> None:
        with KafkaWire(self.broker.address("kafka")) as kafka:
            kafka.create(self.topic)
        for _ in range(BATCHES):
            for append in (self._append_kafka, self._append_pulsar, self._append_iggy):
                append(self.random.randint(1, BATCH_MAX))

    def _add(self, count: int, *, batched: bool) -> None:
        entries, start = self.log.entries, self.log.end
        if batched:
            entries.append(Entry(start, count, batched=True))
        else:
            entries += (Entry(start + number) for number in range(count))

    def _append_kafka(self, count: int) -> None:
        with KafkaWire(self.broker.address("kafka")) as wire:
            code, _ = wire.produce(self.topic, b"".join([message(None, b"k")] * count))
        assert code == 0
        self._add(count, batched=False)

    def _append_iggy(self, count: int) -> None:
        with IggyWire(self.broker.address("iggy")) as wire:
            wire.send_messages(self.topic, [(0, [], b"i")] * count)
        self._add(count, batched=False)

    def _append_pulsar(self, count: int) -> None:
        with PulsarWire(self.broker.address("pulsar")) as wire:
            wire.open_producer(self.topic)
            payload = talk.batch_payload([b"p"] * count)
            self.ledger, entry = wire.publish(0, [(3, 1_700_000_000_000), (11, count)], payload)
        assert entry == self.log.end
        self._add(count, batched=True)

    # Steps.

    def step(self) -> None:
        """One call of some protocol, and what everybody reads back. Raises Difference."""
        name, (act, _) = self.random.choices(list(STEPS.items()), [w for _, w in STEPS.values()])[0]
        self.steps.append(name)
        is_on_disk = act(self)
        self.maybe = [*([] if is_on_disk else self.maybe), self._copy()]
        self.compare()

    def compare(self) -> None:
        """Every protocol reads back what the model says. Raises Difference."""
        found, wanted = talk.told(self.broker, self.topic, GROUP), self.cursor.told()
        if found != wanted:
            raise Difference(f"{self._where()}: {found}, should be {wanted}")

    def restart(self) -> None:
        """A clean stop loses nothing."""
        self.steps.append("restart")
        assert self.broker.stop() == 0
        self.broker.start()
        self.maybe = [self._copy()]
        self.compare()

    def kill(self) -> None:
        """SIGKILL. What was answered is there, and no more than was asked for."""
        self.steps.append("SIGKILL")
        self.broker.kill()
        self.broker.start()
        found = talk.told(self.broker, self.topic, GROUP)
        for one in reversed(self.maybe):
            if one.told() == found:
                self.cursor = one
                self.maybe = [self._copy()]
                return
        raise Difference(f"{self._where()}: {found}, may be {[one.told() for one in self.maybe]}")

    def deliver(self) -> bool:
        """A Pulsar consumer is sent what is left, and of each entry what Pulsar acknowledged."""
        self._set_by_subscribe()
        wanted = self.cursor.deliveries()
        with self._pulsar() as place:
            found = place.deliveries(len(wanted))
            place.leave()
        expected = [
            (entry.offset, talk.ack_set(entry, acked) if acked else ()) for entry, acked in wanted
        ]
        if found != expected:
            raise Difference(f"{self._where()}: delivered {found}, should be {expected}")
        return True

    def _where(self) -> str:
        return f"{self.topic}, after {' > '.join(self.steps)}"

    def _copy(self) -> Cursor:
        return replace(self.cursor)

    def _offset(self) -> int:
        return self.random.randrange(self.log.end)

    def _entry(self) -> Entry:
        return self.random.choice(self.log.entries)

    # Kafka.

    def _kafka_commit(self) -> bool:
        return self._commit(KafkaWire.commit)

    def _kafka_member_commit(self) -> bool:
        return self._commit(KafkaWire.commit_as_member)

    def _commit(self, commit: Callable[[KafkaWire, str, str, int], int]) -> bool:
        repeated = self.cursor.committed is not None and self.random.random() < 0.3
        offset = self.cursor.committed if repeated else self.random.randrange(self.log.end + 4)
        assert offset is not None
        with KafkaWire(self.broker.address("kafka")) as wire:
            assert commit(wire, GROUP, self.topic, offset) == 0
        self.cursor.commit(offset, kafka=True)
        return True

    # Iggy.

    def _iggy_store(self) -> bool:
        offset = self._offset()
        with IggyWire(self.broker.address("iggy")) as wire:
            wire.store_offset(self.topic, GROUP, offset)
        self.cursor.commit(offset + 1, kafka=False)
        return True

    def _iggy_poll(self) -> bool:
        count = self.random.randint(1, 6)
        wanted = self.cursor.wanted()[:count]
        with IggyWire(self.broker.address("iggy")) as wire:
            found = wire.poll_next(self.topic, count, GROUP)
        if found != wanted:
            raise Difference(f"{self._where()}: polled {found}, should be {wanted}")
        self.cursor.given_by_poll(found)
        return False

    def _iggy_delete(self) -> bool:
        if self.cursor.below is None:
            return False
        with IggyWire(self.broker.address("iggy")) as wire:
            wire.delete_offset(self.topic, GROUP)
        self.cursor.end()
        return True

    # Pulsar.

    def _pulsar(self) -> PulsarPlace:
        return PulsarPlace(self.broker.address("pulsar"), self.topic, GROUP)

    def _set_by_subscribe(self) -> None:
        """A SUBSCRIBE sets a cursor that was never set, and is answered once that is on disk."""
        if self.cursor.below is None:
            self.cursor.start(0)
            self.maybe = [self._copy()]

    def _pulsar_ack(self) -> bool:
        entries = self.random.sample(self.log.entries, self.random.randint(1, 4))
        ids = [pulsar_id(self.ledger, one) for one in entries]
        return self._ack(talk.INDIVIDUAL, ids, [o for one in entries for o in _offsets(one)])

    def _pulsar_ack_index(self) -> bool:
        entry = self.random.choice([one for one in self.log.entries if one.batched])
        acked = self.random.sample(_offsets(entry), self.random.randint(1, entry.count))
        return self._ack(talk.INDIVIDUAL, [pulsar_id(self.ledger, entry, acked)], acked)

    def _pulsar_ack_to(self) -> bool:
        """To an entry's end; half of the times by an id that lies inside of one: whole entries."""
        entry = self._entry()
        named = replace(entry, offset=self.random.choice(_offsets(entry)))
        return self._ack(talk.CUMULATIVE, [pulsar_id(self.ledger, named)], list(range(entry.end)))

    def _pulsar_ack_to_index(self) -> bool:
        entry = self.random.choice([one for one in self.log.entries if one.batched])
        acked = _offsets(entry)[: self.random.randint(1, entry.count)]
        named = pulsar_id(self.ledger, entry, acked)
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
        """Into an entry leads to the next one."""
        offset = self._offset()
        following = [one.offset for one in self.log.entries if one.offset >= offset]
        with self._pulsar() as place:
            place.seek(pulsar_id(self.ledger, Entry(offset)))
        self.cursor.seek(following[0] if following else self.log.end)
        return True

    def _pulsar_unsubscribe(self) -> bool:
        with self._pulsar() as place:
            place.unsubscribe()
        self.cursor.end()
        return True

    # HTTP.

    def _http(self, kind: str, **fields: object) -> bool:
        """Whether it was done: only a subscription that is there can be changed."""
        place = HttpPlace(self.broker.address("http"), self.topic, GROUP)
        status = place.change(kind, **fields)
        is_there = self.cursor.below is not None
        if status != (200 if is_there else 404):
            raise Difference(f"{self._where()}: status {status}")
        return is_there

    def _http_ack(self) -> bool:
        entries = self.random.sample(self.log.entries, self.random.randint(1, 3))
        ids, offsets = [], []
        for one in entries:
            offset = self.random.choice(_offsets(one))
            is_part = one.batched and self.random.random() < 0.5
            ids.append(http_id(self.ledger, one.offset, offset - one.offset if is_part else -1))
            offsets += [offset] if is_part else _offsets(one)
        if done := self._http("Individual", messageIds=ids):
            self.cursor.ack(offsets)
        return done

    def _http_ack_to(self) -> bool:
        entry = self._entry()
        index = self.random.randrange(entry.count) if entry.batched else -1
        named = http_id(self.ledger, entry.offset, index)
        if done := self._http("Cumulative", messageIds=[named]):
            self.cursor.ack_to(entry.end if index < 0 else entry.offset + index + 1)
        return done

    def _http_seek(self) -> bool:
        place = self.random.choice(("earliest", "latest", None))
        entry = self._entry()
        how = {"position": place} if place else {"messageIds": [http_id(self.ledger, entry.offset)]}
        if done := self._http("Seek", **how):
            self.cursor.seek({"earliest": 0, "latest": self.log.end}.get(place or "", entry.offset))
        return done

    # More of the log.

    def _append(self) -> bool:
        appends = (self._append_kafka, self._append_pulsar, self._append_iggy)
        self.random.choice(appends)(self.random.randint(1, BATCH_MAX))
        return False


def _offsets(entry: Entry) -> list[int]:
    return list(range(entry.offset, entry.end))


STEPS: dict[str, tuple[Callable[[Machine], bool], int]] = {
    "Kafka commits": (Machine._kafka_commit, 5),
    "a member of a Kafka group commits": (Machine._kafka_member_commit, 3),
    "Iggy stores": (Machine._iggy_store, 4),
    "Iggy polls": (Machine._iggy_poll, 6),
    "Iggy deletes": (Machine._iggy_delete, 1),
    "Pulsar acks": (Machine._pulsar_ack, 8),
    "Pulsar acks in a batch": (Machine._pulsar_ack_index, 8),
    "Pulsar acks to an entry": (Machine._pulsar_ack_to, 4),
    "Pulsar acks into a batch": (Machine._pulsar_ack_to_index, 4),
    "Pulsar seeks": (Machine._pulsar_seek, 2),
    "Pulsar unsubscribes": (Machine._pulsar_unsubscribe, 1),
    "Pulsar receives": (Machine.deliver, 5),
    "HTTP acks": (Machine._http_ack, 5),
    "HTTP acks to a message": (Machine._http_ack_to, 3),
    "HTTP seeks": (Machine._http_seek, 2),
    "more records": (Machine._append, 2),
}
