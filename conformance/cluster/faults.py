"""Faults under load on three brokers of a cluster: brokers and stores are killed, hung, cut off or
stopped.

No acknowledged record is lost, doubled or moved, and each client recovers. `python -m
conformance.cluster.faults --faults 200 --topics 100` is a long run; `--only kill,hang` measures the
length of a fault for clients. Writers and readers of all protocols work throughout, and a topic
grows and shrinks while consumers hold it. The judge of histories reports the broken promises. After
each fault every client has `SETTLES_S` and its own time-outs to recover. Cuts use network
namespaces, or TCP proxies if this machine allows no namespaces (or with `--proxies`).
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from braidlog.storage.shared.layout import shard_of
from conformance.clients.raw.iggy import IggyWire
from conformance.cluster import servers
from conformance.cluster.book import Book
from conformance.cluster.brokers import command
from conformance.cluster.causes import CAUSES, GENTLE, SHORT
from conformance.cluster.clients import AGAIN_S, PAUSE_S, LoadState, ReconnectingClient, writers
from conformance.cluster.moving import movers
from conformance.cluster.readers import by_http, by_iggy, by_kafka, committed, readers
from conformance.cluster.running import GOES_ON_S, LOOK_S, QUICK, Lost, RunningCluster
from conformance.ending import end_on_signals

SHARDS: Final = 64  # As `cluster init` makes them.
MORE: Final = 3  # Steps of each client between two faults: values, polls, changes.
# Longest standstill of a client after a fault, without the client's own time-outs.
SETTLES_S: Final = 45.0
WITHIN_S: Final = 10.0  # Longest takeover, with a lease of 5 s.
LEAVES: Final = ("kill", "hang", "hang long")  # Causes after which other brokers must take over.


@dataclass
class Observations:
    """Observations of a run."""

    faults: list[str] = field(default_factory=list)
    records: int = 0
    acknowledged: int = 0
    delays: list[float] = field(default_factory=list)  # Seconds, of a topic whose owner left.
    settled: list[float] = field(default_factory=list)  # Seconds until every client recovered.


class FaultsRun:
    """A load over a series of faults."""

    def __init__(
        self, cluster: RunningCluster, topics: int, seed: int, *, pause_s: float = PAUSE_S
    ) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.book = Book([f"t{number}" for number in range(topics)])
        self.load = LoadState(self.book, cluster.addresses, seed, pause_s)
        load = self.load
        self.clients: list[ReconnectingClient] = [*writers(load), *readers(load), *movers(load)]
        self.done = Observations()
        self.settles_s = SETTLES_S

    def run(self, causes: Sequence[str]) -> Observations:
        """Run every cause in turn, then every check. Raises Lost if clients do not recover."""
        cluster = self.cluster
        cluster.keep_running()
        cluster.await_all()
        self._make_topics()
        for client in self.clients:
            client.start()
        try:
            self._await_more("the start")
            for name in causes:
                self._cause(name)
        finally:
            self.load.stopping.set()
            for client in self.clients:
                client.join(GOES_ON_S)
        cluster.await_all()
        self._judge()
        return self.done

    def _make_topics(self) -> None:
        with IggyWire(self.cluster.brokers[0].address("iggy")) as wire:
            for topic in self.book.topics:
                wire.create_topic(topic)

    def _cause(self, name: str) -> None:
        cluster = self.cluster
        owned = self._owned()
        node = self.random.choice(sorted(owned))  # A broker that has topics to lose.
        broker = cluster.brokers[node - 1]
        if name in LEAVES:
            self.book.await_topics(owned[node])
        begun, running = time.monotonic(), [broker.pid for broker in cluster.brokers]
        CAUSES[name](cluster, broker, self.random)
        passed = time.monotonic()
        last = self._await_more(f"{name} at node {broker.node}")
        if name in GENTLE and running != [broker.pid for broker in cluster.brokers]:
            raise Lost(f"a broker ended after {name}: {cluster.tails()}")
        seconds, delays = time.monotonic() - passed, self.book.take_delays()
        self.done.settled.append(seconds)
        self.done.delays += delays
        wait = f", a topic waited {max(delays):.1f} s at most" if delays else ""
        print(
            f"{name}, node {broker.node}, for {passed - begun:.1f} s: all go on after"
            f" {seconds:.1f} s, {', '.join(last)} last{wait}",
            flush=True,
        )

    def _owned(self) -> dict[int, list[str]]:
        """Return topics by the owning node. Raises Lost."""
        deadline = time.monotonic() + GOES_ON_S
        while True:
            owners = self.cluster.owners()
            owned: dict[int, list[str]] = {}
            for topic in self.book.topics:
                node = owners.get(shard_of(f"public/default/{topic}", SHARDS))
                if node is not None:
                    owned.setdefault(node, []).append(topic)
            if owned:
                return owned
            if time.monotonic() > deadline:
                raise Lost(f"nobody owns anything: {self.cluster.tails()}")
            time.sleep(LOOK_S)

    def _await_more(self, after: str) -> list[str]:
        """Wait until every client has recovered; return the slowest clients.

        Raises Lost if a client takes longer than `SETTLES_S` and its own time-outs.
        """
        cluster, before = self.cluster, self.book.watch()
        begun = time.monotonic()
        last: list[str] = []
        while waiting := self._waiting(before):
            last = list(waiting)
            cluster.keep_running()
            seconds = time.monotonic() - begun
            if late := [text for text, limit_s in waiting.items() if seconds > limit_s]:
                troubles = {client.kind: client.troubles for client in self.clients}
                raise Lost(f"after {after}: {late} get nowhere: {troubles} {cluster.tails()}")
            time.sleep(AGAIN_S)
        return last

    def _waiting(self, before: Mapping[str, int]) -> dict[str, float]:
        """Return clients without progress since `before` and topics without acknowledgements, with
        their limits in seconds.
        """
        waiting: dict[str, float] = {}
        for client in self.clients:
            limit_s = self.settles_s + client.patience_s
            if self.book.progress[client.kind] < before.get(client.kind, 0) + MORE:
                waiting[client.kind] = limit_s
            elif missing := self.book.missing(client.kind, client.whole_topics):
                waiting[f"{client.kind} in {missing[0]}"] = limit_s
        slowest_s = self.settles_s + max(client.patience_s for client in self.clients)
        return waiting | dict.fromkeys(self.book.awaited(), slowest_s)

    def _judge(self) -> None:
        cluster, topics, done = self.cluster, self.book.topics, self.done
        first, other, third = cluster.brokers
        logs = {
            "kafka": cluster.surely(lambda: by_kafka(first.addresses["kafka"], topics)),
            "iggy": cluster.surely(lambda: by_iggy(other.address("iggy"), topics)),
            "http": cluster.surely(lambda: by_http(third.addresses["http"], topics)),
        }
        groups = list(self.book.groups)
        positions = cluster.surely(lambda: committed(other.address("kafka"), groups))
        done.faults += self.book.judge(logs, positions)
        done.records = sum(map(len, logs["kafka"].values()))
        done.acknowledged = sum(self.book.acknowledged.values())


def chosen(count: int, only: Sequence[str], seed: int) -> list[str]:
    """Return `count` causes, drawn from all causes or from `only`."""
    names = list(only or CAUSES)
    rng = random.Random(seed)
    return [rng.choice(names) for _ in range(count)]


def after(cluster: RunningCluster) -> list[str]:
    """End the brokers; return the faults of the stores."""
    for broker in cluster.brokers:
        broker.stop()
    wrong = []
    for arguments in (["verify", "--deep"], ["sweep", "--yes"], ["verify", "--deep"]):
        code, output = command(cluster.settings, *arguments)
        print(f"cluster {' '.join(arguments)}: {output.strip()}", flush=True)
        if code:
            wrong.append(f"cluster {' '.join(arguments)}: {output}")
    if "0 objects without a row" not in output:
        wrong.append(f"objects are left over: {output}")
    return wrong


def main() -> int:
    """Return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.cluster.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--faults", type=int, default=0, help="drawn; 0: each of the short run")
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="causes, with commas between them")
    parser.add_argument("--proxies", action="store_true", help="cut without namespaces")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--report", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="evidence, where one is lost")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    reason = servers.missing() or _unknown(only)
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-faults-") as scratch,
        RunningCluster(
            Path(scratch), [*QUICK, *options.settings], namespaces=not options.proxies
        ) as cluster,
    ):
        names = list(SHORT)
        if options.faults:
            names = chosen(options.faults, only, options.seed)
        begun = time.monotonic()
        run = FaultsRun(cluster, options.topics, options.seed)
        try:
            run.run(names)
            wrong = run.done.faults + after(cluster)
        except Lost as lost:
            wrong = [str(lost)]
        if wrong and options.keep:
            keep(options.keep, run)
        page = report(names, options, run, wrong, time.monotonic() - begun)
    print(page)
    if options.report:
        options.report.write_text(page)
    return int(bool(wrong))


def keep(folder: Path, run: FaultsRun) -> None:
    """Save the evidence of a broken promise: histories and the brokers' logs."""
    folder.mkdir(parents=True, exist_ok=True)
    run.book.keep(folder)
    run.cluster.keep_logs(folder)


def _unknown(only: Sequence[str]) -> str:
    unknown = [name for name in only if name not in CAUSES]
    return f"{unknown}: there are {', '.join(CAUSES)}" if unknown else ""


def report(
    names: Sequence[str],
    options: argparse.Namespace,
    run: FaultsRun,
    wrong: Sequence[str],
    seconds: float,
) -> str:
    """Return the run as a page."""
    done = run.done
    counts = ", ".join(f"{name} {count}" for name, count in sorted(Counter(names).items()))
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in run.book.acknowledged.items())
    lines = [
        "# Faults under load on three brokers",
        "",
        "| | |",
        "| --- | --- |",
        f"| command | `python -m conformance.cluster.faults --faults {options.faults}"
        f" --topics {options.topics} --seed {options.seed}{_flags(options)}` |",
        f"| faults | {len(names)}: {counts} |",
        f"| acknowledged | {done.acknowledged:,} values: {kinds} |",
        f"| records read back by Kafka, Iggy and HTTP | {done.records:,} |",
        f"| a topic whose owner was killed or hung waited | {waits(done.delays)} |",
        f"| after a fault every client had gone on | {settled(done.settled)} |",
        f"| duration | {seconds / 60:.0f} minutes |",
        f"| result | {f'**{len(wrong)} faults**' if wrong else 'every promise kept'} |",
        "",
        *[f"* {fault}" for fault in wrong[:100]],
    ]
    return "\n".join(lines).rstrip() + "\n"


def _flags(options: argparse.Namespace) -> str:
    only = f" --only '{options.only}'" if options.only else ""
    return only + "".join(f" --set {setting}" for setting in options.settings)


def settled(seconds: Sequence[float]) -> str:
    """Return the clients' standstill times in words."""
    if not seconds:
        return "(no fault)"
    return f"after {statistics.median(seconds):.1f} s (p50), {max(seconds):.1f} s at most"


def waits(delays: Sequence[float]) -> str:
    """Return the topics' times without an owner in words."""
    if not delays:
        return "(none was)"
    within = sum(delay <= WITHIN_S for delay in delays)
    return (
        f"{within} of {len(delays)} within {WITHIN_S:.0f} s, p50 {statistics.median(delays):.1f} s,"
        f" at most {max(delays):.1f} s"
    )


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
