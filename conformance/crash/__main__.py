"""`python -m conformance.crash [--kills N] [--seed N] [--first N] [--report FILE]`: kill, compare.

The seed decides everything except the machine's own timing: writers, steps and the moments of the
kills. The topic changes every few kills, so that reading back stays short.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conformance.crash.check import faults, position_faults, read_back, read_back_by_iggy
from conformance.crash.groups import Committer
from conformance.crash.writers import IggyWriter, KafkaWriter, Ledger, PulsarWriter, Writer
from conformance.ending import end_on_signals
from conformance.raw.iggy import IggyWire
from conformance.server import RunningBroker

KILLS_PER_TOPIC = 5
RUN_S_MIN, RUN_S_MAX = 0.05, 0.8
WRITERS: dict[str, type[Writer]] = {
    "kafka-a": KafkaWriter,
    "kafka-b": KafkaWriter,
    "pulsar-a": PulsarWriter,
    "pulsar-b": PulsarWriter,
    "iggy-a": IggyWriter,
}


class Run:
    """A topic over several kills."""

    def __init__(
        self, broker: RunningBroker, topic: str, rng: random.Random, run_s_max: float
    ) -> None:
        self.broker = broker
        self.run_s_max = run_s_max
        self.topic = topic
        self.random = rng
        self.ledgers = {name: Ledger(name) for name in WRITERS}
        self.positions = {"kafka": 0, "iggy": 0}
        # Commits after the last acknowledged commit: they may have happened.
        self.unanswered: dict[str, set[int]] = {listener: set() for listener in self.positions}
        with IggyWire(broker.address("iggy")) as wire:
            wire.create_topic(topic)

    def kill_once(self) -> list[str]:
        """Write and commit for a while, kill, restart; return the broken promises."""
        address = self.broker.address
        writers = [
            kind(address(name.split("-")[0]), self.topic, self.ledgers[name], self._seed())
            for name, kind in WRITERS.items()
        ]
        committers = [
            Committer(listener, address(listener), self.topic, position, self._seed())
            for listener, position in self.positions.items()
        ]
        threads: list[Writer | Committer] = [*writers, *committers]
        for thread in threads:
            thread.start()
        time.sleep(self.random.uniform(RUN_S_MIN, self.run_s_max))
        self.broker.kill()
        for thread in threads:
            thread.stopping.set()
            thread.join(30)
        self.broker.start()
        broken = [f"{thread!r}: {thread.fault!r}" for thread in threads if thread.fault]
        log = read_back(address("kafka"), self.topic, 0)
        others = {"iggy": read_back_by_iggy(address("iggy"), self.topic)}
        broken += faults(log, list(self.ledgers.values()), others)
        for member in committers:
            may_be = self.unanswered[member.listener]
            if member.has_answer:
                may_be.clear()  # A commit after them was acknowledged.
            if member.unanswered is not None:
                may_be.add(member.unanswered)
        broken += position_faults(address("kafka"), self.topic, committers, self.unanswered)
        self.positions = {member.listener: member.position for member in committers}
        return broken

    @property
    def acknowledged(self) -> int:
        """Return the number of values acknowledged so far."""
        return sum(len(ledger.stored_somewhere) for ledger in self.ledgers.values())

    def _seed(self) -> int:
        return self.random.randrange(1 << 32)


def run(
    kills: int,
    seed: int,
    first: int = 0,
    told: Callable[[int, int, list[str]], None] | None = None,
    *,
    run_s_max: float = RUN_S_MAX,
) -> tuple[int, list[str]]:
    """Run kills `first` to `first + kills`; return (acknowledged values checked, broken promises).

    A topic's writers and kills depend only on the seed and the topic's first kill, so that a run
    can continue later. After each topic, `told` receives the kills done, the checked values and the
    broken promises. A longer write time before a kill means more values to read back.
    """
    acknowledged = 0
    broken: list[str] = []
    with RunningBroker() as broker:
        for start in range(first, first + kills, KILLS_PER_TOPIC):
            rng = random.Random(f"{seed} {start}")
            current = Run(broker, f"crash-{seed}-{start}", rng, run_s_max)
            end = min(start + KILLS_PER_TOPIC, first + kills)
            for number in range(start, end):
                found = current.kill_once()
                print(
                    f"kill {number + 1}: {current.acknowledged} acknowledged, {len(found)} faults",
                    flush=True,
                )
                broken += [f"kill {number + 1}: {text}" for text in found]
            acknowledged += current.acknowledged
            if told is not None:
                told(end - first, acknowledged, broken)
    return acknowledged, broken


def main() -> int:
    """Return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m conformance.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="go on behind that many kills")
    parser.add_argument("--report", type=Path, metavar="FILE", help="kept up to date on the way")
    arguments = parser.parse_args()

    def report(kills: int, acknowledged: int, broken: list[str]) -> None:
        lines = [
            f"seed {arguments.seed}, kills {arguments.first + 1} to {arguments.first + kills}:"
        ]
        lines += [f"{acknowledged} acknowledged values read back"]
        lines += broken or ["no acknowledged value lost, changed, repeated or reordered"]
        if arguments.report:
            arguments.report.write_text("\n".join(lines) + "\n")
        if kills == arguments.kills:
            print("\n".join(lines))

    _, broken = run(arguments.kills, arguments.seed, arguments.first, report)
    return int(bool(broken))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
