"""`python -m conformance.cluster.bench [--only ROWS] [--quick] [--kills N] [--report FILE]`: the
figures of the shared store, each with a goal, on this machine.

The run takes about a quarter of an hour on an idle machine, and a minute more per ten kills.
`--long` also writes 16 MB a second for ten minutes, packs and segments included. `--minutes 60`
writes 10,000 partitions for an hour instead of two minutes. Rows are publish, latency, many, bulk,
stops, relay, drain, kill, partitions, and long, which needs 35 GB of disk.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from conformance.bench import kafka_load
from conformance.clients.raw.iggy import BY_OFFSET, POLL, IggyWire, poll_body
from conformance.clients.raw.kafka import KafkaWire
from conformance.cluster import draining, faults, figures, partitions, servers
from conformance.cluster.brokers import command
from conformance.cluster.figures import MB, FigureRow, stores
from conformance.cluster.running import QUICK, Lost, RunningCluster
from conformance.ending import end_on_signals

KILLS: Final = 5
LONG_S: Final = 600.0
LONG_MB: Final = 16.0  # Per second; three times as much is uploaded.
LONG_GB: Final = 35
LONG_VOLUMES: Final = 130
RELAYED_S: Final = 3.0
RELAYED_SETS: Final = 16  # Of 128 KiB, read repeatedly.
POLLED: Final = 1000
# The default values.
USUAL: Final = ("cluster.lease_ms=5000", "cluster.beat_ms=1000", "cluster.stall_ms=30000")
# These settings determine the size of PostgreSQL's tables and the reads of a takeover.
USUAL_STORE: Final = (
    "shared.round_ms=100",
    "shared.pack_ms=60000",
    "shared.delete_after_ms=3600000",
    "log.segment_bytes=128MiB",
)


class ClusterBench:
    """The rows by their names for `--only`."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._kills: int = options.kills
        self._seconds = 3.0 if options.quick else 10.0
        self._bulk_s = 5.0 if options.quick else 20.0
        self._partition_count = 1000 if options.quick else 10_000
        self._minutes: float = options.minutes
        self._long_s = 30.0 if options.quick else LONG_S
        self.rows: Mapping[str, Callable[[], Iterator[FigureRow]]] = {
            "publish": self._publish,
            "latency": self._latency,
            "many": self._many,
            "bulk": self._bulk,
            "stops": self._stops,
            "relay": self._relay,
            "drain": self._drain,
            "kill": self._kill,
            "partitions": self._partitions,
            "long": self._long,
        }

    def _publish(self) -> Iterator[FigureRow]:
        with stores(self._folder / "publish") as running:
            yield from figures.publishing(running)

    def _latency(self) -> Iterator[FigureRow]:
        with stores(self._folder / "latency") as running:
            yield from figures.latencies(running, self._seconds)

    def _many(self) -> Iterator[FigureRow]:
        with stores(self._folder / "many") as running:
            yield from figures.many(running, self._seconds)

    def _bulk(self) -> Iterator[FigureRow]:
        with stores(self._folder / "bulk") as running:
            yield from figures.bulk(running, self._bulk_s, 40)

    def _long(self) -> Iterator[FigureRow]:
        free_gb = shutil.disk_usage(self._folder).free / 1e9
        if free_gb < LONG_GB:
            yield FigureRow(
                "15 MB/s for ten minutes", f"{LONG_GB} GB free", f"{free_gb:.0f} GB", False
            )
            return
        with stores(self._folder / "long", LONG_VOLUMES) as running:
            yield from figures.bulk(running, self._long_s, 15, LONG_MB)

    def _stops(self) -> Iterator[FigureRow]:
        with stores(self._folder / "stops") as running:
            yield from figures.stops(running)

    def _cluster(self, name: str, *settings: str) -> RunningCluster:
        folder = self._folder / name
        folder.mkdir()
        return RunningCluster(folder, [*QUICK, *USUAL, *settings])

    def _relay(self) -> Iterator[FigureRow]:
        with self._cluster("relay") as cluster:
            cluster.await_all()
            yield from relayed(cluster)

    def _drain(self) -> Iterator[FigureRow]:
        with self._cluster("drain") as cluster:
            cluster.await_all()
            yield _left("drain of a broker", draining.drain(cluster, 2))
            code, output = command(cluster.settings, "drain", "2", "--undo")
            if code:
                raise Lost(output)
            yield _left("stop of a broker", draining.stop(cluster, 3))

    def _partitions(self) -> Iterator[FigureRow]:
        with self._cluster("partitions", *USUAL_STORE) as cluster:
            cluster.await_all()
            yield from partitions.held(cluster, self._partition_count, self._minutes)

    def _kill(self) -> Iterator[FigureRow]:
        with self._cluster("kill") as cluster:
            run = faults.FaultsRun(cluster, topics=12, seed=1)
            run.run([("kill", "hang long")[number % 2] for number in range(self._kills)])
            delays = sorted(run.done.delays)
            slow = sum(delay > faults.WITHIN_S for delay in delays)
            measured = f"{faults.waits(delays)}; {len(run.done.faults)} faults"
            holds = slow <= len(delays) / 100 and not run.done.faults
            name = (
                f"{self._kills} kills and pauses to first acknowledged append elsewhere, lease 5 s"
            )
            yield FigureRow(name, "99 of 100 within 10 s", measured, holds)


def _left(name: str, done: draining.Drained) -> FigureRow:
    longest = max(client.longest_s for client in done.clients.values())
    measured = f"{done.seconds:.1f} s, {len(done.errors)} errors, the longest call {longest:.1f} s"
    goal = "3 s, no error that reaches an application"
    return FigureRow(name, goal, measured, done.seconds <= 3 and not done.errors)


def relayed(cluster: RunningCluster) -> Iterator[FigureRow]:
    """Compare a broker's relay of another broker's topic with the owner's own answers."""
    topic = draining.owned_topics(cluster, 2)[0]
    body, count = kafka_load.set_of_128k(1000)
    owner, other = cluster.brokers[1], cluster.brokers[0]
    with KafkaWire(owner.address("kafka")) as wire:
        for _ in range(RELAYED_SETS):
            error, _ = wire.produce(topic, body)
            assert not error
    for name, take in (("Iggy polls, relayed", _by_iggy), ("HTTP reads, proxied", _by_http)):
        direct, bytes_direct = take(owner, topic, RELAYED_SETS * count)
        passed, bytes_passed = take(other, topic, RELAYED_SETS * count)
        same = bytes_direct == bytes_passed
        measured = (
            f"{passed / direct:.2f} of {direct:.1f} MB/s, {'same' if same else 'OTHER'} bytes"
        )
        holds = same and passed >= direct / 2
        yield FigureRow(name, "half of the direct speed, same bytes", measured, holds)


def _by_iggy(broker: figures.ClusterBroker, topic: str, end: int) -> tuple[float, bytes]:
    """Return MB/s over several seconds, and the first answer."""
    with IggyWire(broker.address("iggy")) as wire:

        def ask(offset: int) -> bytes:
            return wire.ok(POLL, poll_body(topic, POLLED, BY_OFFSET, offset, "bench"))

        return _again(ask, end)


def _by_http(broker: figures.ClusterBroker, topic: str, end: int) -> tuple[float, bytes]:
    """Like `_by_iggy`, over HTTP."""
    path = f"/topics/public/default/{topic}/partitions/0/messages"
    with httpx.Client(base_url=broker.url, timeout=60) as client:

        def ask(offset: int) -> bytes:
            query = {"position": offset, "max_messages": POLLED}
            return client.get(path, params=query).raise_for_status().content

        return _again(ask, end)


def _again(ask: Callable[[int], bytes], end: int) -> tuple[float, bytes]:
    first = ask(0)
    byte_count, offset, begun = 0, 0, time.monotonic()
    while time.monotonic() - begun < RELAYED_S:
        byte_count += len(ask(offset))
        offset = (offset + POLLED) % (end - POLLED)
    return byte_count / (time.monotonic() - begun) / MB, first


def main() -> int:
    """Return 1 if a row misses its goal."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.cluster.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="rows, with commas between them")
    parser.add_argument("--quick", action="store_true", help="3 s and 5 s instead of 10 s and 20 s")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--long", action="store_true", help="ten minutes at 16 MB/s besides")
    parser.add_argument("--minutes", type=float, default=2.0, help="of writing many partitions")
    parser.add_argument("--report", type=Path, metavar="FILE")
    options = parser.parse_args()
    if reason := servers.missing():
        print(reason, file=sys.stderr)
        return 1
    lines = [
        "# Figures of the shared store",
        "",
        "| | goal | measured | |",
        "| --- | --- | --- | --- |",
    ]
    missed = 0
    print("\n".join(lines[2:]), flush=True)
    with tempfile.TemporaryDirectory(prefix="braidlog-figures-") as scratch:
        Path(scratch).chmod(0o755)
        bench = ClusterBench(Path(scratch), options)
        chosen = [name for name in bench.rows if options.long or name != "long"]
        for name in options.only.split(",") if options.only else chosen:
            for row in _rows(name, bench.rows[name]):
                lines.append(f"| {row.name} | {row.goal} | {row.measured} | {_verdict(row)} |")
                missed += not row.holds
                print(lines[-1], flush=True)
    if options.report:
        options.report.write_text("\n".join(lines) + "\n")
    return int(missed > 0)


def _rows(name: str, make: Callable[[], Iterator[FigureRow]]) -> Iterator[FigureRow]:
    """Yield the rows; if clients were stuck, a row with the reason."""
    try:
        yield from make()
    except Lost as lost:
        yield FigureRow(name, "", str(lost)[:500], holds=False)


def _verdict(row: FigureRow) -> str:
    return "holds" if row.holds else "**missed**"


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
