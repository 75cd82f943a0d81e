"""The common judgement after each attack: the broker works as before, and has lost nothing."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from conformance.clients.raw.iggy import BY_OFFSET, IggyWire
from conformance.clients.raw.kafka import KafkaWire, parse_set
from conformance.clients.raw.pulsar import PulsarWire
from conformance.hostile.healthy import CLIENTS, Healthy, topic_of
from conformance.server import RunningBroker

QUIET_S = 30.0  # For an attack's connections to end, after the last connection was accepted.
LOOK_S = 0.5
GROWTH_BYTES_MAX = 60 << 20  # Caches fill and allocators keep memory: endless growth is more.
# The broker returns free memory every 15 s.
GIVEN_BACK_S = 40.0
RECORD_CLIENTS = ("kafka", "iggy", "pulsar")


class LoopHeld(AssertionError):
    """A turn of the broker's loop took too much processor time."""


@dataclass(slots=True)
class AttackEffect:
    """The effect of an attack on the broker."""

    longest_s: dict[str, float] = field(default_factory=dict)
    memory_before: int = 0
    memory_most: int = 0
    memory_after: int = 0
    growth_max: int = GROWTH_BYTES_MAX
    files_before: int = 0
    files_after: int = 0


@contextmanager
def judged(broker: RunningBroker) -> Iterator[AttackEffect]:
    """Judge the attack inside the block. Raises AssertionError if the broker is not as before."""
    verdict, logged = AttackEffect(), log_size(broker)
    with Healthy(broker) as healthy:
        verdict.files_before = open_files(broker)
        verdict.memory_before = broker.resident_bytes()
        yield verdict
        verdict.files_after = _settled(broker, verdict.files_before)
        verdict.memory_after = memory_given_back(broker, verdict.memory_before + verdict.growth_max)
        verdict.memory_most = peak_bytes(broker)
        verdict.longest_s = healthy.longest_s
        healthy.check()
    assert verdict.files_after <= verdict.files_before, verdict
    assert verdict.memory_after - verdict.memory_before <= verdict.growth_max, verdict
    check_log(broker, logged)


def memory_given_back(broker: RunningBroker, expected: int) -> int:
    """Return the memory as soon as it is `expected` bytes or less, or after GIVEN_BACK_S: the
    broker returns unneeded memory meanwhile.
    """
    until = time.monotonic() + GIVEN_BACK_S
    while True:
        resident = broker.resident_bytes()
        if resident <= expected or time.monotonic() >= until:
            return resident
        time.sleep(LOOK_S)


def log_size(broker: RunningBroker) -> int:
    """Return the length of the log."""
    return len(broker.log())


def open_files(broker: RunningBroker) -> int:
    """Return the number of the broker's open sockets. Log files stay open, up to a limit."""
    links = Path(f"/proc/{broker.pid}/fd").iterdir()
    return sum(_is_socket(link) for link in links)


def peak_bytes(broker: RunningBroker) -> int:
    """Return the highest memory of the process."""
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def check_log(broker: RunningBroker, since: int = 0) -> None:
    """Check that the log has no bug and no long turn since position `since`.

    Raises AssertionError, of which LoopHeld is a subclass.
    """
    for line in broker.log()[since:].splitlines():
        assert line.startswith("{"), f"not a line of the log: {line}"
        event = json.loads(line)
        assert "exception" not in event, event.get("exception")
        if event["event"] == "loop_held":
            raise LoopHeld(line)


def restarts_with_the_same(broker: RunningBroker) -> None:
    """Restart the broker and compare the healthy clients' records through every protocol.

    Raises AssertionError, BrokerFailed.
    """
    before, logged = records(broker), log_size(broker)
    assert broker.stop() == 0, broker.log_tail()
    broker.verify()
    broker.start()
    assert records(broker) == before
    check_log(broker, logged)


def records(broker: RunningBroker) -> dict[str, str]:
    """Return a digest of each healthy client's records, as each protocol returns them."""
    digests: dict[str, str] = {}
    for writer in RECORD_CLIENTS:
        topic = topic_of(writer)
        for reader, read in READERS.items():
            digest = hashlib.sha256()
            for offset, value in read(broker, topic):
                digest.update(b"%d %s\n" % (offset, value))
            digests[f"{writer} read by {reader}"] = digest.hexdigest()
    return digests


def _read_by_kafka(broker: RunningBroker, topic: str) -> Iterator[tuple[int, bytes]]:
    with KafkaWire(broker.address("kafka")) as wire:
        offset = 0
        while True:
            error, watermark, fetched = wire.fetch(topic, offset, wait_ms=0)
            assert error == 0, error
            for offset, _, value in parse_set(fetched):
                yield offset, value or b""
            if offset + 1 >= watermark or not fetched:
                return
            offset += 1


def _read_by_iggy(broker: RunningBroker, topic: str) -> Iterator[tuple[int, bytes]]:
    with IggyWire(broker.address("iggy")) as wire:
        offset = 0
        while polled := wire.poll(topic, 1000, BY_OFFSET, offset):
            for message in polled:
                yield message.offset, message.payload
            offset = polled[-1].offset + 1


def _read_by_pulsar(broker: RunningBroker, topic: str) -> Iterator[tuple[int, bytes]]:
    with KafkaWire(broker.address("kafka")) as kafka:
        _, watermark, _ = kafka.fetch(topic, 0, wait_ms=0)
    with PulsarWire(broker.address("pulsar")) as wire:
        wire.subscribe(topic, f"look-{time.monotonic_ns()}", permits=watermark + 1)
        entry = -1
        while entry + 1 < watermark:
            delivered = wire.next_message()
            entry = delivered.entry
            yield entry, delivered.payload


READERS = {"kafka": _read_by_kafka, "iggy": _read_by_iggy, "pulsar": _read_by_pulsar}
assert set(RECORD_CLIENTS) < set(CLIENTS)


def _settled(broker: RunningBroker, files: int) -> int:
    """Return the number of sockets once it is not above `files`, or no longer changes.

    Thousands of ended connections may still wait to be accepted.
    """
    received, deadline = -1.0, 0.0
    while (now := open_files(broker)) > files:
        if (count := _taken_in(broker)) != received:
            received, deadline = count, time.monotonic() + QUIET_S
        elif time.monotonic() >= deadline:
            break
        time.sleep(LOOK_S)
    return now


def _taken_in(broker: RunningBroker) -> float:
    """Return the connections so far, without HTTP: the healthy HTTP client opens
    many connections.
    """
    starts = tuple(
        f'braidlog_connections_total{{protocol="{protocol}"' for protocol in RECORD_CLIENTS
    )
    lines = broker.metrics_lines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(starts))


def _is_socket(link: Path) -> bool:
    try:
        return str(link.readlink()).startswith("socket:")
    except FileNotFoundError:
        return False
