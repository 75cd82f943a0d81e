"""Histories of mixed protocols on a partition, and the judge of histories over them.

Writers, readers and groups of all protocols use a broker that is killed, loses power or has no
room.
"""

import errno
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from msgspec.structs import replace

from braidlog.broker import errors
from braidlog.broker.delivery.entry_reads import read_entries
from braidlog.broker.positions.subscriptions import KafkaCommit, Subscription
from braidlog.broker.reading.records import read_records
from braidlog.broker.reading.transcode import read_as
from braidlog.broker.topics.partition import Partition
from braidlog.storage.formats.api import Prepared
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.iggy.classic import IGGY
from braidlog.storage.formats.iggy.typed import IGGY_TYPED
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record
from braidlog.storage.metadata.names import TopicName
from conformance.history.checker import check
from conformance.history.events import EventHistory, PositionMove, RequestOutcome, SentValue
from conformance.mapping import iggy_forms, kafka_forms, pulsar_forms
from conformance.mapping.views import Seen
from conformance.mapping.writers import WRITERS, Writer
from conformance.simulation.calls import WRITE, CallRefused, Plan, TracedDisk, never
from conformance.simulation.house import Shape, SimulatedBroker, done
from conformance.simulation.medium import Medium, choose_loss
from conformance.simulation.scratch import empty

LIVES, STEPS = 2, 16
TOPIC = TopicName("public", "default", "mixed")
GROUPS = (b"billing", b"audit")
WRITERS_MAX = 3
BATCH_MAX = 4
READ_BYTES = 1 << 20
PUBLISHED_US = 1_700_000_000_000_000
SAYS_OFFSETS = ("kafka", "pulsar", "rest")  # Iggy's answer to a SEND has no offset.

Values = list[tuple[int, bytes]]
Reader = Callable[[Partition, int], Awaitable[tuple[Values, int]]]


def _rest(records: Sequence[Record], base_offset: int, now_us: int) -> Prepared:
    body = PLAIN.encode([replace(record, offset=at) for at, record in enumerate(records)], 0)
    return Prepared(body, PLAIN.inspect(body), PLAIN.format)


def _transcoded(codec: Codec, parse: Callable[[bytes], list[Seen]], name: str) -> Reader:
    async def read(partition: Partition, offset: int) -> tuple[Values, int]:
        result = await read_as(partition, codec, offset, bytes_max=READ_BYTES)
        seen = [record for part in result.parts for record in parse(bytes(part))]
        return _values(seen, "offset", name, offset), result.next_offset

    return read


async def _as_entries(partition: Partition, offset: int) -> tuple[Values, int]:
    entries = await read_entries(partition, offset, READ_BYTES)
    seen: list[Seen] = []
    for entry in entries.entries:
        seen += pulsar_forms.read_messages(entry.offset, bytes(entry.body))
    return _values(seen, "entryId", "payload", offset), entries.next_offset


async def _as_records(partition: Partition, offset: int) -> tuple[Values, int]:
    batch = await read_records(partition, offset, bytes_max=READ_BYTES, records_max=1000)
    return [(fetched.record.offset, fetched.record.value or b"") for fetched in batch.records], (
        batch.next_offset
    )


def _values(seen: list[Seen], place: str, name: str, start: int) -> Values:
    values = []
    for message in seen:
        offset, value = message[place], message[name]
        assert isinstance(offset, int) and isinstance(value, bytes)
        if offset >= start:  # Packed sets and batches are returned whole.
            values.append((offset, value))
    return values


READERS: dict[str, Reader] = {
    "kafka-0": _transcoded(KAFKA, kafka_forms.read_0, "value"),
    "kafka-2": _transcoded(KAFKA_BATCHES, kafka_forms.read_2, "value"),
    "iggy": _transcoded(IGGY, iggy_forms.read_classic, "payload"),
    "iggy-typed": _transcoded(IGGY_TYPED, iggy_forms.read_typed, "payload"),
    "pulsar": _as_entries,
    "rest": _as_records,
}
FORMS: dict[str, Writer] = {**WRITERS, "rest": _rest}


async def _read_all(partition: Partition, start: int, readers: Sequence[str]) -> dict[str, Values]:
    """Return each reader's values from `start` to the high watermark."""
    values: dict[str, Values] = {}
    for reader in readers:
        offset, values[reader] = start, []
        while offset < partition.high_watermark:
            more, offset = await READERS[reader](partition, offset)
            values[reader] += more
    return values


class MixedHistory:
    """A seed: several writers of any protocols, over several lives of a broker."""

    def __init__(self, seed: int, folder: str) -> None:
        self.rng = random.Random(f"histories {seed}")
        self.history = EventHistory()
        self._folder = folder
        self._shape = Shape(journal_factor=self.rng.choice((1, 300)))
        self._writers = self.rng.sample(sorted(FORMS), self.rng.randint(1, WRITERS_MAX))
        self._counts = dict.fromkeys(self._writers, 0)
        self._unanswered: dict[str, deque[SentValue]] = {
            writer: deque() for writer in self._writers
        }
        self._to_send_again: dict[str, list[SentValue]] = {}
        self._owed: list[tuple[int, list[tuple[SentValue, int]] | PositionMove]] = []
        self._path = empty(os.path.join(folder, "life-0"))
        self.disk = TracedDisk(self._path)
        self.medium = Medium.of(self._path, self.disk.names.numbers)
        self.house = SimulatedBroker(self._path, self.disk, self._shape)
        done(self.house.broker.topics.create, TOPIC, 1)
        self._round(whole=True)

    @property
    def partition(self) -> Partition:
        """Return the only partition of the present broker."""
        return self.house.broker.topics.partition(TOPIC, 0)

    def run(self) -> list[str]:
        """Return the faults in the history of this seed."""
        for life in range(1, LIVES + 1):
            for _ in range(STEPS):
                self.rng.choices(ACTIONS, WEIGHTS)[0](self)
            if life < LIVES:
                self._end_life(life)
        self._round(whole=True)
        self._read(0, *READERS)
        for group in GROUPS:
            self._tell(group)
        self.house.kill()
        return check(self.history)

    # Writers.

    def _append(self, plan: Plan = never) -> None:
        form = self.rng.choice(self._writers)
        sents = self._next(form)
        partition, now_us = self.partition, self.house.broker.now_us()
        records = [Record(0, 0, PUBLISHED_US, value=sent.value) for sent in sents]
        prepared = FORMS[form](records, partition.next_offset, now_us)
        self.disk.plan = plan
        try:
            appended = partition.append(
                [prepared.body], prepared.info, body_format=prepared.body_format, append_us=now_us
            )
        except errors.StorageFull:
            for sent in sents:
                self.history.answer(sent, RequestOutcome.REFUSED)
                self._unanswered[form].remove(sent)
            return
        finally:
            self.disk.plan = never
        places = [(sent, appended.base_offset + at) for at, sent in enumerate(sents)]
        self._owed.append((appended.ticket, places))
        self._answer()

    def _append_without_room(self) -> None:
        self._append(lambda kind, path: CallRefused(errno.ENOSPC) if kind == WRITE else None)

    def _next(self, form: str) -> list[SentValue]:
        """Return a client's next values: first the values without an answer before the kill, then
        new values.
        """
        count = self.rng.randint(1, BATCH_MAX)
        again = self._to_send_again.get(form)
        if again:
            sents, self._to_send_again[form] = again[:count], again[count:]
            return sents
        sents = []
        for _ in range(count):
            value = b"%s:%08d" % (form.encode(), self._counts[form])
            self._counts[form] += 1
            sents.append(self.history.send(form, value))
        self._unanswered[form] += sents
        return sents

    def _answer(self) -> None:
        """Answer all durable changes."""
        durable = self.house.broker.committer.durable_ticket
        due = [event for ticket, event in self._owed if ticket <= durable]
        self._owed = [owed for owed in self._owed if owed[0] > durable]
        for event in due:
            if isinstance(event, PositionMove):
                self.history.moved(event)
                continue
            for sent, offset in event:
                says = sent.writer.startswith(SAYS_OFFSETS)
                self.history.answer(sent, RequestOutcome.DONE, offset if says else None)
                self._unanswered[sent.writer].remove(sent)

    def _round(self, *, whole: bool = False) -> None:
        self.house.step_round()
        while whole and self.house.in_round:
            self.house.step_round()
        self._answer()

    def _whole_round(self) -> None:
        self._round(whole=True)

    # Readers and groups.

    def _read_some(self) -> None:
        end = self.partition.high_watermark
        if end:
            self._read(self.rng.randrange(end), self.rng.choice(sorted(READERS)))

    def _read(self, start: int, *readers: str) -> None:
        partition = self.partition
        end = partition.high_watermark
        for reader, values in done(_read_all, partition, start, readers).items():
            self.history.read(reader, (start, end), values, whole=start == 0)

    def _subscription(self, group: bytes) -> Subscription:
        broker = self.house.broker
        return broker.subscriptions.open(broker.topics.get(TOPIC), group)

    def _move(self) -> None:
        """Move a group: a commit of Kafka or Iggy, a cumulative ack or a seek."""
        group, offset = self.rng.choice(GROUPS), self.rng.randrange(self.partition.next_offset + 1)
        subscription = self._subscription(group)
        how = self.rng.randrange(4)
        if how == 0:
            ticket = subscription.commit(0, offset, kafka=KafkaCommit(offset, b"", 1))
        elif how == 1:
            ticket = subscription.commit(0, offset)
        elif how == 2:
            offset = max(offset, subscription.position(0) or 0)
            subscription.start(0, 0)
            ticket = subscription.ack_to(0, offset, lazy=False)
        else:
            ticket = subscription.seek(0, offset)
        self._owed.append((ticket, self.history.move(group.decode(), offset)))

    def _tell(self, group: bytes) -> None:
        position = self._subscription(group).position(0)
        self.history.position_read(group.decode(), -1 if position is None else position, "all")

    # Lives.

    def _end_life(self, life: int) -> None:
        """Kill the process, or cut the power; clients resend unanswered values."""
        self.house.kill()
        path = self._path
        if self.rng.random() < 0.6:
            for call in self.disk.calls:
                self.medium.take(call)
            path = empty(os.path.join(self._folder, f"life-{life}"))
            self.medium.cut(self.rng, choose_loss(self.rng)).write(path)
        self._path, self._owed = path, []
        self.disk = TracedDisk(path)
        self.medium = Medium.of(path, self.disk.names.numbers)
        self.house = SimulatedBroker(path, self.disk, self._shape)
        self._to_send_again = {form: list(sents) for form, sents in self._unanswered.items()}
        for sents in self._to_send_again.values():
            for sent in sents:
                sent.again = True
        for group in GROUPS:
            self._tell(group)
        self._read(0, self.rng.choice(sorted(READERS)))


CHANCES: dict[Callable[[MixedHistory], None], int] = {
    MixedHistory._append: 10,
    MixedHistory._append_without_room: 1,
    MixedHistory._round: 8,
    MixedHistory._whole_round: 2,
    MixedHistory._read_some: 3,
    MixedHistory._move: 3,
}
ACTIONS, WEIGHTS = list(CHANCES), list(CHANCES.values())


def histories(seed: int, folder: str) -> Iterator[str | None]:
    """Yield the faults of a history, or None."""
    faults = MixedHistory(seed, folder).run()
    yield "; ".join(faults) or None
