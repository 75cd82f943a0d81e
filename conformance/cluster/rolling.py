"""Rolling restarts of three brokers under idempotent producers: each value is stored once.

`python -m conformance.cluster.rolling --restarts 30`; `--how kill` ends brokers by SIGKILL, and
`--how drain` moves their topics away and back. With `--how hang` a broker loses its topics while
its process is stopped. With `--how mute` no answer of a broker arrives, then its topics move, then
the broker is killed: the producers resend the last stored batches to the next owner, after later
batches.
"""

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.shared.obstore import ObstoreObjects
from braidlog.storage.shared.postgres import PostgresLedger
from braidlog.storage.shared.reader import StoreLook
from conformance.clients.raw.iggy import IggyWire
from conformance.cluster import servers
from conformance.cluster.brokers import ClusterBroker
from conformance.cluster.causes import drain, set_drain
from conformance.cluster.idempotent import PAUSE_MS, PRODUCERS, Numbered, judge
from conformance.cluster.network import OUTSIDE
from conformance.cluster.running import GOES_ON_S, LOOK_S, PREFIX, QUICK, Lost, RunningCluster

HANG_S: Final = 9.0  # The lease, and time for the next owners to store values.
MUTE_S: Final = 0.5  # Time for producers to fill their windows without an answer.
# Time for producers to learn of the new owners, and to send these many batches.
LATER_S: Final = 4.0
# A line of a broker's metrics.
REFUSED: Final = re.compile(r'braidlog_errors_total\{code="(-?\d+)",protocol="kafka"\} (.+)')
SILENT_S: Final = 45.0  # A producer without any answer for this time has stopped.


@dataclass(slots=True, frozen=True)
class StoredPlace:
    """The place of a stored value, and the producer fields of its batch."""

    topic: str
    offset: int
    producer: int
    epoch: int
    sequences: tuple[int, int]
    owner_epoch: int


def restart(cluster: RunningCluster, node: int, how: str) -> None:
    """End a broker, restart it, and wait until it owns its share again. Raises Lost."""
    broker = cluster.brokers[node - 1]
    if how == "drain":
        drain(cluster, broker, random.Random())
        return
    if how == "kill":
        broker.signal(signal.SIGKILL)
        broker.wait()
    elif how == "mute":
        _mute(cluster, broker)
    elif how == "hang":
        broker.signal(signal.SIGSTOP)
        time.sleep(HANG_S)
        broker.signal(signal.SIGCONT)
        broker.wait()  # The broker's session was ended.
    elif broker.stop():
        raise Lost(f"node {node} ended with an error: {broker.log_tail()}")
    cluster.await_all()
    deadline = time.monotonic() + GOES_ON_S
    while node not in cluster.owners().values():
        if time.monotonic() > deadline:
            raise Lost(f"node {node} gets no topics: {cluster.tails()}")
        time.sleep(LOOK_S)


def _mute(cluster: RunningCluster, broker: ClusterBroker) -> None:
    assert cluster.network is not None
    cluster.network.cut(f"node{broker.node}", OUTSIDE)
    time.sleep(MUTE_S)
    set_drain(cluster, broker, drains=True)
    time.sleep(LATER_S)
    broker.kill()
    time.sleep(MUTE_S)
    cluster.network.heal()


def refusals(cluster: RunningCluster) -> Counter[str]:
    """Return the error codes that the brokers have returned to Kafka clients since their starts."""
    counts: Counter[str] = Counter()
    for broker in cluster.brokers:
        with urllib.request.urlopen(f"{broker.url}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if match := REFUSED.match(line):
                    counts[match[1]] += int(float(match[2]))
    return counts


def stored(cluster: RunningCluster, topics: Sequence[str]) -> dict[str, list[StoredPlace]]:
    """Return every stored value with its places, read from the stores."""
    objects = ObstoreObjects(
        f"s3://{servers.BUCKET}/{PREFIX}", cluster.seaweed.endpoint, timeout_ms=10_000
    )
    look = StoreLook(PostgresLedger(cluster.postgres.database, read_only=True), objects)
    catalogue = look.catalogue()
    places: dict[str, list[StoredPlace]] = defaultdict(list)
    for topic in topics:
        meta = catalogue.topic(TopicName("public", "default", topic))
        assert meta is not None
        with look.open(meta.name.full, meta.partition_ids[0]) as log:
            for batch in log.batches(log.log_start_offset):
                for value, place in _places(topic, batch):
                    places[value].append(place)
    return places


def _places(topic: str, batch: Batch) -> Iterator[tuple[str, StoredPlace]]:
    header = batch.header
    decoded = codec_for(header.body_format).decode(
        bytes(batch.body), header.base_offset, header.append_us
    )
    for record in decoded.records:
        yield (
            bytes(record.value or b"").decode(),
            StoredPlace(
                topic,
                record.offset,
                header.producer_id,
                header.producer_epoch,
                (header.first_sequence, header.last_sequence),
                header.owner_epoch,
            ),
        )


def run(
    cluster: RunningCluster,
    kinds: Sequence[str],
    *,
    topics: int,
    restarts: int,
    how: str,
    pause_ms: int = PAUSE_MS,
) -> list[str]:
    """Restart brokers in turn while producers send; return broken promises. Raises Lost."""
    cluster.await_all()
    names = [f"{how}-{number}" for number in range(topics)]
    with IggyWire(cluster.brokers[0].address("iggy")) as wire:
        for name in names:
            wire.create_topic(name)
    addresses = ",".join(cluster.addresses("kafka"))
    producers = [PRODUCERS[kind](kind, addresses, names, pause_ms) for kind in kinds]
    for producer in producers:
        producer.start()
    faults: list[str] = []
    try:
        for number in range(restarts):
            node = number % len(cluster.brokers) + 1
            begun = time.monotonic()
            restart(cluster, node, how)
            _tell(cluster, producers, f"node {node}: {time.monotonic() - begun:.1f} s")
            faults += [
                f"{producer.kind}: no answer for {producer.silent_s:.0f} s"
                for producer in producers
                if producer.silent_s > SILENT_S
            ]
    finally:
        for producer in producers:
            producer.stop()
    places = stored(cluster, names)
    counted = Counter({value: len(copies) for value, copies in places.items()})
    for producer in producers:
        faults += judge(producer, counted)
        for error, count in Counter(producer.errors.values()).items():
            print(f"{producer.kind}: {count} times {error}")
    for value, copies in places.items():
        if len(copies) > 1:
            print(value, *copies, sep="\n  ", flush=True)
    return faults


def _tell(cluster: RunningCluster, producers: Sequence[Numbered], after: str) -> None:
    counts = ", ".join(f"{producer.kind} {len(producer.acked):,}" for producer in producers)
    codes = ", ".join(f"{code}: {n}" for code, n in sorted(refusals(cluster).items()))
    print(f"{after}; {counts}; error codes {codes}", flush=True)


def main() -> int:
    """Return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.cluster.rolling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--restarts", type=int, default=9)
    parser.add_argument("--topics", type=int, default=12)
    parser.add_argument("--pause-ms", type=int, default=PAUSE_MS, help="between two values")
    parser.add_argument("--how", choices=("stop", "kill", "drain", "hang", "mute"), default="stop")
    parser.add_argument("--only", default=",".join(PRODUCERS), help="producers, with commas")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="the brokers' logs")
    options = parser.parse_args()
    reason = servers.missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    os.environ.update(servers.KEYS)
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-rolling-") as scratch,
        RunningCluster(
            Path(scratch), QUICK, cuts=options.how == "mute", namespaces=False
        ) as cluster,
    ):
        cluster.keep_running()
        try:
            faults = run(
                cluster,
                options.only.split(","),
                topics=options.topics,
                restarts=options.restarts,
                how=options.how,
                pause_ms=options.pause_ms,
            )
        except Lost as lost:
            faults = [str(lost)]
        if options.keep:
            cluster.keep_logs(options.keep)
    for fault in faults:
        print(fault)
    print("every promise kept" if not faults else f"{len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
