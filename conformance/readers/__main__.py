"""`python -m conformance.readers [--topics N] [--seed N]`: whatever wrote a topic, each protocol's
reader, with any limit, sees each record once, in rising order.

Each topic has bodies of all protocols: records from a byte to the limit of their
listener, bodies up to 20 MiB. Every reader reads the whole topic with several limits, over sockets.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.clients.raw.iggy import IggyWire
from conformance.ending import end_on_signals
from conformance.readers.reading import READERS
from conformance.readers.writing import WRITERS
from conformance.server import RunningBroker

LIMITS = (1, 1000, 100_000, 1 << 20, 3 << 20, 8 << 20)
LIMITS_EACH = 2  # That each reader tries with a topic.
BODIES = 5  # Of a topic.
RECORDS_MAX = 300  # Of a body.
# Records times bytes of a body, as a body may be decoded for each record that a limit lets through.
WORK_MAX = 500 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """A topic, and the values that it must have, in order."""

    topic: str
    values: Sequence[bytes]


def value_of(number: int, size: int) -> bytes:
    """A value that tells which one it is, as far as its size allows."""
    return str(number).encode().rjust(size, b"x")[-size:]


def body_of(rng: random.Random, first: int, record_max: int, body_max: int) -> list[bytes]:
    """The values of a body: few large ones or many small ones."""
    typical = int(record_max ** rng.random())  # Any order of magnitude is as likely.
    values: list[bytes] = []
    room = body_max - 1000
    for number in range(rng.randint(1, RECORDS_MAX)):
        size = min(rng.randint(1, 2 * typical), record_max)
        room -= size + 100  # For what a record has beside its value.
        if values and (room < 0 or number * (body_max - room) > WORK_MAX):
            break
        values.append(value_of(first + number, size))
    return values


def write(broker: RunningBroker, topic: str, rng: random.Random, body_max: int) -> Written:
    """A topic with bodies of random writers, each at most that large."""
    with IggyWire(broker.address("iggy")) as wire:
        wire.create_topic(topic)
    values: list[bytes] = []
    for _ in range(BODIES):
        name = rng.choice(list(WRITERS))
        writer, record_max, largest = WRITERS[name]
        record_max, largest = min(record_max, body_max), min(largest, body_max)
        new_values = body_of(rng, len(values), record_max, largest)
        try:
            writer(broker, topic, new_values)
        except Exception as error:
            raise AssertionError(
                f"{name} cannot write {len(new_values)} records of"
                f" {sum(map(len, new_values))} bytes"
            ) from error
        values += new_values
    return Written(topic, values)


def fault(broker: RunningBroker, written: Written, reader: str, limit: int) -> str | None:
    """Return the records that a reader with that limit does not see as written."""
    values, expected = written.values, 0
    where = f"{written.topic}, {reader}, limit {limit}"
    try:
        for offset, value in READERS[reader](broker, written.topic, len(values), limit):
            if offset != expected:
                return f"{where}: offset {offset} instead of {expected}"
            if value != values[offset]:
                sizes = f"{len(value)} bytes instead of {len(values[offset])}"
                return f"{where}: offset {offset} has another value, {sizes}"
            expected += 1
    except AssertionError as error:
        return f"{where}: {error}"
    return None if expected == len(values) else f"{where}: {expected} of {len(values)} records"


def read_all(broker: RunningBroker, written: Written, rng: random.Random) -> Iterator[str]:
    """Read a topic with every reader and several limits; yield the faults."""
    for reader in READERS:
        for limit in rng.sample(LIMITS, LIMITS_EACH):
            if problem := fault(broker, written, reader, limit):
                yield problem


def run(topics: int, seed: int, body_max: int = 20 << 20) -> tuple[int, list[str]]:
    """Return (records read, faults) of so many topics."""
    faults: list[str] = []
    records = 0
    with RunningBroker() as broker:
        for number in range(topics):
            rng = random.Random(f"{seed} {number}")
            written = write(broker, f"readers-{seed}-{number}", rng, body_max)
            problems = list(read_all(broker, written, rng))
            faults += problems
            count = len(written.values)
            records += count * len(READERS) * LIMITS_EACH
            print(
                f"{written.topic}: {count} records, {len(problems)} faults", *problems, flush=True
            )
    return records, faults


def main() -> int:
    """Return 1 when a reader saw something else."""
    parser = argparse.ArgumentParser(prog="python -m conformance.readers", description=__doc__)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    records, faults = run(options.topics, options.seed)
    print(
        f"seed {options.seed}: {records:,} records read, {len(faults)} faults", *faults, sep="\n* "
    )
    return int(bool(faults))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
