"""`python -m conformance.crash.delivery [--kills N] [--seed N] [--report FILE]`: kills and cuts
during delivery to Failover, Shared and Key_Shared subscriptions.

Consumers are killed, connections are cut within a frame, and brokers get SIGKILL. A single thread
drives everything, so that the order of events is known: an answered acknowledgement, a key that a
consumer holds, a repeated message. After each kill and cut the producer resends the messages
without a receipt, under the same name: deduplication must store them once. A partially sent frame
has no effect: such an acknowledgement does not count, and the message of such a SEND is sent whole
later, and stored then. In the end the subscription has no backlog.
"""

import argparse
import json
import random
import selectors
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from conformance.clients.raw.pulsar import (
    ACK,
    FLOW,
    MESSAGE,
    PRODUCER,
    RECEIPT,
    SEND,
    SUBSCRIBE,
    SUCCESS,
    Fields,
    PulsarWire,
    Value,
    encode,
    entry,
    field_of,
    frame,
    parse,
)
from conformance.server import RunningBroker

SHARED, FAILOVER, KEY_SHARED = 1, 2, 3
KINDS = {"shared": SHARED, "failover": FAILOVER, "key_shared": KEY_SHARED}
KILLS_PER_TOPIC = 5
RUN_S_MIN, RUN_S_MAX = 0.05, 0.4
CONSUMERS = 3
KEYS = 16
PERMITS = 200
IN_FLIGHT = 200  # SENDs without a receipt.
HANG_S = 60.0  # Limit for every expected event.
ANSWER_S = 30.0
KILL_SHARE, CUT_SHARE = 0.05, 0.02  # Rounds in which a consumer is killed, and the producer.
RECEIPT_OF_ACK = 38
SETTINGS = ("topics.deduplication=true",)


class CuttableWire(PulsarWire):
    """A connection whose frames are taken as they come."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self._data = bytearray()

    def frames(self) -> Iterator[tuple[int, Fields, bytes]]:
        """Yield (type, fields, rest) of every received command. Raises ConnectionError."""
        self.socket.setblocking(False)
        try:
            while True:
                piece = self.socket.recv(1 << 16)
                if not piece:
                    raise ConnectionError("closed")
                self._data += piece
        except BlockingIOError:
            pass
        finally:
            self.socket.setblocking(True)
        while len(self._data) >= 4:
            (size,) = struct.unpack_from(">I", self._data)
            if len(self._data) < 4 + size:
                return
            frame = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            (command_size,) = struct.unpack_from(">I", frame)
            (_, kind), *rest = parse(frame[4 : 4 + command_size])
            inner = rest[0][1] if rest else b""
            assert isinstance(kind, int) and isinstance(inner, bytes)
            yield kind, parse(inner), frame[4 + command_size :]

    def cut(self, whole: bytes, rng: random.Random) -> None:
        """Close the connection in the middle of this frame."""
        self.send(whole[: rng.randrange(1, len(whole))])
        self.close()


@dataclass(slots=True, eq=False)
class HeldMessage:
    """A delivered message without an acknowledgement."""

    value: int
    key: int
    ledger: int
    entry: int


@dataclass(slots=True, eq=False)
class DeliveryConsumer:
    """A consumer: its held messages, and its unanswered acknowledgements."""

    peer: CuttableWire
    held: dict[int, HeldMessage] = field(default_factory=dict)  # By value.
    unanswered: dict[int, list[int]] = field(default_factory=dict)  # Values by request.
    received: int = 0


@dataclass(slots=True)
class ReceivedAnswers:
    """Answers that the clients received."""

    sent: int = 0  # Values 0 to sent - 1 were sent to the broker.
    stored: set[int] = field(default_factory=set)  # With a receipt.
    acked: set[int] = field(default_factory=set)  # With an answer.
    maybe_acked: set[int] = field(default_factory=set)  # The answer was lost.
    seen: dict[int, int] = field(default_factory=dict)  # Entry id by value.
    gone: int = 0  # Consumers that closed their connection without a command.
    cut: int = 0  # Connections that ended in the middle of a frame.
    faults: list[str] = field(default_factory=list)


class DeliveryLoad:
    """A producer and several consumers on a subscription."""

    def __init__(self, broker: RunningBroker, topic: str, kind: int, rng: random.Random) -> None:
        self.broker = broker
        self.topic = f"persistent://public/default/{topic}".encode()
        self.kind = kind
        self.random = rng
        self.ledger = ReceivedAnswers()
        self.members: list[DeliveryConsumer] = []
        self.producer: CuttableWire | None = None
        self._unanswered: list[int] = []  # Values without a receipt, oldest first.
        self._requests = 100

    # Actions of clients.

    def connect(self) -> None:
        """Connect all consumers and a producer that resends the messages without a receipt."""
        self._open_producer()
        self.members = []
        for number in range(CONSUMERS):
            self.members.append(self._join(number))

    def _open_producer(self) -> None:
        self.producer = CuttableWire(self.broker.address("pulsar"))
        self.producer.command(
            PRODUCER, [(1, self.topic), (2, 0), (3, 1), (4, b"the-producer"), (9, 1)]
        )
        self.producer.expect(17)
        for value in self._unanswered:
            self._send(value)

    def _join(self, number: int) -> DeliveryConsumer:
        peer = CuttableWire(self.broker.address("pulsar"))
        name = b"c%d" % number
        peer.command(
            SUBSCRIBE,
            [(1, self.topic), (2, b"s"), (3, self.kind), (4, 0), (5, 2), (6, name), (13, 1)],
        )
        while (command := peer.take_command())[0] != SUCCESS:
            assert command[0] == 31, f"SUBSCRIBE: {command}"  # ACTIVE_CONSUMER_CHANGE
        peer.command(FLOW, [(1, 0), (2, PERMITS)])
        return DeliveryConsumer(peer)

    def _send(self, value: int) -> None:
        assert self.producer is not None
        self.producer.send(_send_frame(value))

    def publish(self, count: int) -> None:
        """Send several more values."""
        for _ in range(min(count, IN_FLIGHT - len(self._unanswered))):
            value = self.ledger.sent
            self.ledger.sent += 1
            self._unanswered.append(value)
            self._send(value)

    def acknowledge(self, member: DeliveryConsumer, count: int) -> None:
        """Acknowledge a random choice of a consumer's held messages."""
        chosen = self.random.sample(sorted(member.held), min(count, len(member.held)))
        if not chosen:
            return
        self._requests += 1
        held = [member.held.pop(value) for value in chosen]
        member.unanswered[self._requests] = chosen
        self.ledger.maybe_acked.update(chosen)
        member.peer.send(_ack_frame(held, self._requests))

    def kill_one(self) -> None:
        """Close a consumer's connection, perhaps within an acknowledgement of all its held
        messages, and reconnect.
        """
        number = self.random.randrange(CONSUMERS)
        member = self.members[number]
        self._take_all()
        if self.random.random() < 0.5:
            member.peer.cut(_ack_frame([*member.held.values()], 1), self.random)
            self.ledger.cut += 1
        else:
            member.peer.close()
            self.ledger.gone += 1
        self.members[number] = self._join(number)

    def cut_producer(self) -> None:
        """Close the producer's connection in the middle of the next message, and reconnect."""
        assert self.producer is not None
        self.producer.cut(_send_frame(self.ledger.sent), self.random)
        self.ledger.cut += 1
        self._open_producer()

    # Answers to clients.

    def _take_all(self) -> None:
        """Take all received frames; acknowledgements count from the moment of the answer."""
        assert self.producer is not None
        answered: list[int] = []
        for member in self.members:
            answered += self._take(member)
        for member in self.members:  # Frames that arrived while the first members were read.
            answered += self._take(member)
        self.ledger.acked.update(answered)
        self.ledger.maybe_acked.difference_update(answered)
        for kind, fields, _ in self.producer.frames():
            if kind == RECEIPT:
                value = field_of(fields, 2)
                assert isinstance(value, int)
                if not self._unanswered or self._unanswered[0] != value:
                    self.ledger.faults.append(f"receipt of {value} out of order")
                    continue
                self._unanswered.pop(0)
                self.ledger.stored.add(value)

    def _take(self, member: DeliveryConsumer) -> list[int]:
        """Take the frames of a consumer; return values whose acknowledgement was answered."""
        answered: list[int] = []
        for kind, fields, rest in member.peer.frames():
            if kind == MESSAGE:
                self._received(member, fields, rest)
            elif kind == RECEIPT_OF_ACK:
                request = field_of(fields, 6)
                assert isinstance(request, int)
                if field_of(fields, 4) is not None:
                    self.ledger.faults.append(f"an acknowledgement was refused: {fields}")
                answered += member.unanswered.pop(request)
        return answered

    def _received(self, member: DeliveryConsumer, fields: Fields, rest: bytes) -> None:
        ids, rest = field_of(fields, 2), rest[6:] if rest[:2] == b"\x0e\x01" else rest
        assert isinstance(ids, bytes)
        place = parse(ids)
        ledger, entry = field_of(place, 1), field_of(place, 2)
        (size,) = struct.unpack_from(">I", rest)
        value = int(rest[4 + size :])
        assert isinstance(ledger, int) and isinstance(entry, int)
        self._check(member, value, entry)
        member.held[value] = HeldMessage(value, value % KEYS, ledger, entry)
        member.received += 1
        if member.received == PERMITS // 2:
            member.received = 0
            member.peer.command(FLOW, [(1, 0), (2, PERMITS // 2)])

    def _check(self, member: DeliveryConsumer, value: int, entry: int) -> None:
        ledger = self.ledger
        if value in ledger.acked:
            ledger.faults.append(f"{value} came again after its acknowledgement was answered")
        if ledger.seen.setdefault(value, entry) != entry:
            ledger.faults.append(f"{value} is stored as {ledger.seen[value]} and as {entry}")
        if self.kind == KEY_SHARED:
            for other in self.members:
                if other is not member and any(
                    held.key == value % KEYS for held in other.held.values()
                ):
                    ledger.faults.append(f"key {value % KEYS} is at two consumers ({value})")

    # A life.

    def run(self, seconds: float) -> None:
        """Publish, consume, acknowledge and kill consumers for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.publish(self.random.randrange(30))
            self._take_all()
            for member in self.members:
                self.acknowledge(member, self.random.randrange(20))
            if self.random.random() < KILL_SHARE:
                self.kill_one()
            if self.random.random() < CUT_SHARE:
                self.cut_producer()
            self._wait(0.001)

    def _wait(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            for member in self.members:
                selector.register(member.peer.socket, selectors.EVENT_READ)
            selector.select(seconds)

    def killed(self) -> None:
        """Forget all held messages: the broker was killed."""
        for member in self.members:
            member.peer.close()
        if self.producer is not None:
            self.producer.close()
        self.members, self.producer = [], None

    def drain(self) -> None:
        """Acknowledge all remaining deliveries: every stored message must have been delivered.

        The same holds for every message that the broker counts as unacknowledged.
        """
        self.connect()
        until = time.monotonic() + HANG_S
        while self._is_waiting() or self._backlog():
            if time.monotonic() > until:
                missing = sorted(self._missing())
                text = f"{len(missing)} never came: {missing[:10]}; backlog {self._backlog()}"
                self.ledger.faults.append(text)
                break
            self._wait(0.05)
            self._take_all()
            for member in self.members:
                self.acknowledge(member, len(member.held))
        self.killed()

    def _is_waiting(self) -> bool:
        """Return True while the clients expect further frames."""
        is_unanswered = any(member.unanswered for member in self.members)
        return bool(self._unanswered or is_unanswered or self._missing())

    def _backlog(self) -> int:
        """Return the messages that the broker counts as unacknowledged."""
        path = f"/admin/v2/{self.topic.decode().replace('://', '/')}/stats"
        with urlopen(self.broker.url + path, timeout=ANSWER_S) as answer:
            backlog: int = json.load(answer)["subscriptions"]["s"]["msgBacklog"]
        return backlog

    def _missing(self) -> set[int]:
        """Return the values that are stored and certainly not acknowledged."""
        ledger = self.ledger
        return ledger.stored - ledger.acked - ledger.maybe_acked


def _send_frame(value: int) -> bytes:
    """Return a SEND of a single message, with its key."""
    key = b"k%d" % (value % KEYS)
    metadata = [(1, b"the-producer"), (2, value), (3, 1_700_000_000_000), (6, key)]
    return frame(SEND, [(1, 0), (2, value)], entry(metadata, b"%d" % value, checksum=False))


def _ack_frame(acked: list[HeldMessage], request: int) -> bytes:
    """Return an acknowledgement of these messages that requests an answer."""
    ids: list[tuple[int, Value]] = [
        (3, encode([(1, held.ledger), (2, held.entry)])) for held in acked
    ]
    return frame(ACK, [(1, 0), (2, 0), *ids, (8, request)])


@dataclass(slots=True)
class Seen:
    """Counts of a run, and the broken promises."""

    kills: int = 0  # Of the broker.
    gone: int = 0
    cut: int = 0
    acknowledged: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, name: str, ledger: ReceivedAnswers) -> None:
        """Add the counts of a topic."""
        self.gone += ledger.gone
        self.cut += ledger.cut
        self.acknowledged += len(ledger.acked)
        self.broken += [f"{name}: {fault}" for fault in ledger.faults]


def run(
    kills: int,
    seed: int,
    report: Callable[[Seen], None] = lambda _: None,
    *,
    run_s_max: float = RUN_S_MAX,
) -> Seen:
    """Run `kills` SIGKILLs, with each kind of subscription in turn.

    `told` receives the present counts after each topic.
    """
    seen = Seen()
    with RunningBroker(settings=SETTINGS) as broker:
        for start in range(0, kills, KILLS_PER_TOPIC):
            name, kind = [*KINDS.items()][start // KILLS_PER_TOPIC % len(KINDS)]
            rng = random.Random(f"{seed} {start}")
            load = DeliveryLoad(broker, f"delivery-{seed}-{start}", kind, rng)
            for _ in range(start, min(start + KILLS_PER_TOPIC, kills)):
                load.connect()
                load.run(rng.uniform(RUN_S_MIN, run_s_max))
                broker.kill()
                load.killed()
                broker.start()
                seen.kills += 1
            load.drain()
            if "Traceback" in broker.log():
                load.ledger.faults.append(f"a traceback in its log: {broker.log_tail()}")
            seen.add(f"{name}, seed {seed}, from kill {start}", load.ledger)
            report(seen)
    return seen


def main() -> int:
    """Return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m conformance.crash.delivery")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, metavar="FILE", help="kept up to date on the way")
    arguments = parser.parse_args()

    def report(seen: Seen) -> None:
        lines = [
            f"seed {arguments.seed}, {seen.kills} kills, {seen.gone} consumers gone, {seen.cut}"
            f" connections cut in mid-frame, {seen.acknowledged} messages acknowledged"
        ]
        lines += seen.broken or ["none lost, none again after its acknowledgement, no key at two"]
        print("\n".join(lines[:20]), flush=True)
        if arguments.report:
            arguments.report.write_text("\n".join(lines) + "\n")

    return int(bool(run(arguments.kills, arguments.seed, report).broken))


if __name__ == "__main__":
    sys.exit(main())
