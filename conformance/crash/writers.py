"""Writers that remember acknowledged values and resend unanswered values, as real clients do.

Every value is unique: `<writer>:<number>`. A writer runs in a thread until the connection breaks.
"""

import random
import struct
import threading
import zlib
from collections import deque
from dataclasses import dataclass, field

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.iggy_w import IggyWWire
from conformance.clients.raw.kafka import PRODUCE, KafkaWire, frame, message, produce_body
from conformance.clients.raw.pulsar import SEND, PulsarWire, batch, entry, field_of, parse

Address = tuple[str, int]


@dataclass(slots=True)
class WriterState:
    """A writer's state: acknowledged offsets, unanswered values, values sent more than once."""

    name: str
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    stored_somewhere: set[bytes] = field(default_factory=set)
    unanswered: "deque[bytes]" = field(default_factory=deque)
    sent_again: set[bytes] = field(default_factory=set)
    number: int = 0
    # Of an idempotent producer: unanswered batches, and the sequence of each.
    batches: "deque[tuple[int, list[bytes]]]" = field(default_factory=deque)

    def next_values(self, count: int) -> list[bytes]:
        """Return fresh values, which are unanswered from now on."""
        values = [f"{self.name}:{self.number + i:08d}".encode() for i in range(count)]
        self.number += count
        self.unanswered.extend(values)
        return values

    def answered(self, count: int, base_offset: int | None) -> None:
        """Record that the oldest `count` values were acknowledged, with the offset if the protocol
        has it.
        """
        for i in range(count):
            value = self.unanswered.popleft()
            self.stored_somewhere.add(value)
            if base_offset is not None:
                self.acknowledged[base_offset + i] = value

    def take_unanswered(self) -> list[bytes]:
        """Return the values to resend, in order; each may now be in the log twice."""
        self.sent_again.update(self.unanswered)
        return list(self.unanswered)


class CrashWriter(threading.Thread):
    """A writer on a connection; `run` ends when the broker is killed or `stopping` is set."""

    window = 1

    def __init__(self, address: Address, topic: str, ledger: WriterState, seed: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.topic = topic
        self.ledger = ledger
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Resend the unanswered values, then continue, with up to `window` requests in flight."""
        try:
            self.work()
        except (ConnectionError, TimeoutError):
            return  # The kill: unanswered values stay in the ledger.
        except BaseException as fault:
            self.fault = fault

    def work(self) -> None:
        """Keep the window full."""
        with self.open() as wire:
            flights: deque[int] = deque()
            again = self.ledger.take_unanswered()
            while not self.stopping.is_set() or flights:
                while not self.stopping.is_set() and len(flights) < self.window:
                    count = min(self.random.choice((1, 1, 3, 20)), len(again) or 1 << 30)
                    values = again[:count] if again else self.ledger.next_values(count)
                    again = again[count:]
                    self.send(wire, values)
                    flights.append(len(values))
                count = flights.popleft()
                self.ledger.answered(count, self.take_answer(wire, count))

    def open(self) -> "KafkaWire | PulsarWire | IggyWire":
        """Return a connection, ready to produce."""
        raise NotImplementedError

    def send(self, wire: object, values: list[bytes]) -> None:
        """Send a request."""
        raise NotImplementedError

    def take_answer(self, wire: object, count: int) -> int | None:
        """Return the base offset of the oldest request in flight, or None if the protocol has no
        offset.
        """
        raise NotImplementedError


class KafkaWriter(CrashWriter):
    """Pipelined Produce requests, acks 1."""

    window = 5

    def open(self) -> KafkaWire:
        wire = KafkaWire(self.address)
        wire.create(self.topic)
        return wire

    def send(self, wire: object, values: list[bytes]) -> None:
        assert isinstance(wire, KafkaWire)
        body = b"".join(message(b"%d" % zlib.crc32(value), value) for value in values)
        wire.send(frame(PRODUCE, 0, produce_body(self.topic, body)))

    def take_answer(self, wire: object, count: int) -> int:
        assert isinstance(wire, KafkaWire)
        error, base_offset = struct.unpack(">hq", wire.take_frame()[-10:])
        assert error == 0, f"produce error {error}"
        return int(base_offset)


class PulsarWriter(CrashWriter):
    """SENDs in flight, a batch entry for each."""

    window = 50

    def open(self) -> PulsarWire:
        wire = PulsarWire(self.address)
        wire.open_producer(self.topic)
        return wire

    def send(self, wire: object, values: list[bytes]) -> None:
        assert isinstance(wire, PulsarWire)
        metadata = [(1, b"crash"), (2, 1), (3, 1_700_000_000_000), (11, len(values))]
        payload = entry(metadata, batch(values), checksum=False)
        wire.command(SEND, [(1, 0), (2, 1), (3, len(values))], payload)

    def take_answer(self, wire: object, count: int) -> int:
        assert isinstance(wire, PulsarWire)
        message_id = field_of(wire.expect(7), 3)
        assert isinstance(message_id, bytes)
        entry = field_of(parse(message_id), 2)
        assert isinstance(entry, int)
        return entry


class IggyWriter(CrashWriter):
    """A single SEND in flight; its answer has no offset."""

    def open(self) -> IggyWire:
        return IggyWire(self.address)

    def send(self, wire: object, values: list[bytes]) -> None:
        assert isinstance(wire, IggyWire)
        wire.send_messages(self.topic, [(0, [], value) for value in values])

    def take_answer(self, wire: object, count: int) -> None:
        return None


class IggyProducerWriter(CrashWriter):
    """Batches of an idempotent producer (dialect W) in flight, as a client's queue sends them:
    unanswered batches are sent again unchanged, and none may be stored twice.
    """

    window = 5
    producer_id = 7 << 20  # As of a session of its own, over all restarts.

    def work(self) -> None:
        """Send the unanswered batches again, then continue."""
        ledger = self.ledger
        with IggyWWire(self.address) as wire:
            incarnation = wire.incarnation(self.topic)
            again, flights = deque(ledger.batches), 0
            while not self.stopping.is_set() or flights:
                while not self.stopping.is_set() and flights < self.window:
                    if not again:
                        sequence = ledger.number
                        values = ledger.next_values(self.random.choice((1, 1, 3, 20)))
                        ledger.batches.append((sequence, values))
                        again.append(ledger.batches[-1])
                    sequence, values = again.popleft()
                    producer = (self.producer_id, 0, sequence)
                    wire.begin_send(self.topic, values, producer, incarnation)
                    flights += 1
                base_offset = wire.take_sent()
                _, values = ledger.batches.popleft()
                ledger.answered(len(values), base_offset)
                flights -= 1
