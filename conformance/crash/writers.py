"""Writers that remember what was acknowledged and send again what was not, as real clients do.

Every value is unique: `<writer>:<number>`. A writer runs in a thread until the connection breaks.
"""

import random
import struct
import threading
import zlib
from collections import deque
from dataclasses import dataclass, field

from conformance.raw.iggy import IggyWire
from conformance.raw.kafka import PRODUCE, KafkaWire, frame, message, produce_body
from conformance.raw.pulsar import SEND, PulsarWire, batch, entry, field_of, parse

Address = tuple[str, int]


@dataclass(slots=True)
class Ledger:
    """What one writer knows: acknowledged offsets, values without an answer, values sent more than
    once.
    """

    name: str
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    stored_somewhere: set[bytes] = field(default_factory=set)
    unanswered: "deque[bytes]" = field(default_factory=deque)
    sent_again: set[bytes] = field(default_factory=set)
    number: int = 0

    def next_values(self, count: int) -> list[bytes]:
        """Fresh values, now without an answer."""
        values = [f"{self.name}:{self.number + i:08d}".encode() for i in range(count)]
        self.number += count
        self.unanswered.extend(values)
        return values

    def answered(self, count: int, base_offset: int | None) -> None:
        """The oldest `count` values were acknowledged; at which offset, where the protocol says."""
        for i in range(count):
            value = self.unanswered.popleft()
            self.stored_somewhere.add(value)
            if base_offset is not None:
                self.acknowledged[base_offset + i] = value

    def take_unanswered(self) -> list[bytes]:
        """The values to send again, in order; each may now be in the log twice."""
        self.sent_again.update(self.unanswered)
        return list(self.unanswered)


class Writer(threading.Thread):
    """One writer on one connection; `run` ends when the broker dies or `stopping` is set."""

    window = 1

    def __init__(self, address: Address, topic: str, ledger: Ledger, seed: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.topic = topic
        self.ledger = ledger
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Send again what has no answer, then go on, with up to `window` requests in flight."""
        try:
            self.work()
        except (ConnectionError, TimeoutError):
            return  # The kill: what has no answer stays in the ledger.
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
        """A connection, ready to produce."""
        raise NotImplementedError

    def send(self, wire: object, values: list[bytes]) -> None:
        """One request."""
        raise NotImplementedError

    def take_answer(self, wire: object, count: int) -> int | None:
        """The base offset of the oldest request in flight, None where the protocol does not say."""
        raise NotImplementedError


class KafkaWriter(Writer):
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


class PulsarWriter(Writer):
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


class IggyWriter(Writer):
    """One SEND at a time; its answer names no offset."""

    def open(self) -> IggyWire:
        return IggyWire(self.address)

    def send(self, wire: object, values: list[bytes]) -> None:
        assert isinstance(wire, IggyWire)
        wire.send_messages(self.topic, [(0, [], value) for value in values])

    def take_answer(self, wire: object, count: int) -> None:
        return None
