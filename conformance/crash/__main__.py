"""`python -m conformance.crash [--kills N] [--seed N] [--first N] [--report FILE]`: kill, compare.

The seed decides everything except the machine's own timing: writers, steps and the moments of the
kills. The topic changes every few kills, so that reading back stays short.

While clients work, the broker's wall clock is set back and ahead, by minutes and years. Every other
topic has a retention of an hour, which must drop nothing: its lives begin with the right time,
because a start cannot know another. For the other topics a life may begin with any time.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from conformance.crash import clocked
from conformance.crash.check import faults, position_faults, read_back, read_back_by_iggy
from conformance.crash.clocked import RemoteClock
from conformance.crash.groups import GroupCommitter
from conformance.crash.writers import (
    CrashWriter,
    IggyProducerWriter,
    IggyWriter,
    KafkaWriter,
    PulsarWriter,
    WriterState,
)
from conformance.ending import end_on_signals
from conformance.server import RunningBroker

KILLS_PER_TOPIC = 5
RUN_S_MIN, RUN_S_MAX = 0.05, 0.8
CLOCK_STEPS_MAX = 3  # In the time before a kill.
MINUTE_US, YEAR_US = 60_000_000, 365 * 86_400_000_000
# Settings of the clock, ahead of the right time.
AHEAD_US = (0, 0, *(sign * far for sign in (-1, 1) for far in (5 * MINUTE_US, 10 * YEAR_US)))
RETENTION_MS, RETENTION_CHECK_MS = 3_600_000, 50
WRITERS: dict[str, type[CrashWriter]] = {
    "kafka-a": KafkaWriter,
    "kafka-b": KafkaWriter,
    "pulsar-a": PulsarWriter,
    "pulsar-b": PulsarWriter,
    "iggy-a": IggyWriter,
    "iggy-w": IggyProducerWriter,
}


class CrashRun:
    """A topic over several kills."""

    def __init__(
        self,
        broker: RunningBroker,
        clock: RemoteClock,
        topic: str,
        rng: random.Random,
        *,
        run_s_max: float,
        retention_ms: int | None = None,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.retention_ms = retention_ms
        self.run_s_max = run_s_max
        self.topic = topic
        self.random = rng
        self.ledgers = {name: WriterState(name) for name in WRITERS}
        self.positions = {"kafka": 0, "iggy": 0}
        # Commits after the last acknowledged commit: they may have happened.
        self.unanswered: dict[str, set[int]] = {listener: set() for listener in self.positions}
        self._set_clock_right()
        self._create_topic()

    def _create_topic(self) -> None:
        settings = {} if self.retention_ms is None else {"retention_ms": self.retention_ms}
        httpx.put(
            f"{self.broker.url}/api/v1/topics/public/default/{self.topic}",
            json={"partitions": 1, "settings": settings},
            trust_env=False,
        ).raise_for_status()

    def kill_once(self) -> list[str]:
        """Write and commit for a while, kill, restart; return the broken promises."""
        address = self.broker.address
        writers = [
            kind(address(name.split("-")[0]), self.topic, self.ledgers[name], self._seed())
            for name, kind in WRITERS.items()
        ]
        committers = [
            GroupCommitter(listener, address(listener), self.topic, position, self._seed())
            for listener, position in self.positions.items()
        ]
        threads: list[CrashWriter | GroupCommitter] = [*writers, *committers]
        for thread in threads:
            thread.start()
        self._let_clients_work()
        self.broker.kill()
        for thread in threads:
            thread.stopping.set()
            thread.join(30)
        self._set_clock_right()
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

    def _let_clients_work(self) -> None:
        """Wait for a while, and set the clock several times meanwhile."""
        seconds = self.random.uniform(RUN_S_MIN, self.run_s_max)
        steps = self.random.randint(0, CLOCK_STEPS_MAX)
        for _ in range(steps):
            time.sleep(seconds / (steps + 1))
            self.clock.set(self.random.choice(AHEAD_US))
        time.sleep(seconds / (steps + 1))

    def _set_clock_right(self) -> None:
        """Set the clock right if a start may drop records for their age."""
        if self.retention_ms is not None:
            self.clock.set(0)

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
    report: Callable[[int, int, list[str]], None] | None = None,
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
    settings = [f"log.retention_check_ms={RETENTION_CHECK_MS}"]
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-crash-") as folder,
        RunningBroker(
            Path(folder),
            settings=settings,
            environment=(clock := RemoteClock(Path(folder) / "clock")).environment,
            program=clocked.__name__,
        ) as broker,
    ):
        for start in range(first, first + kills, KILLS_PER_TOPIC):
            rng = random.Random(f"{seed} {start}")
            retains = start // KILLS_PER_TOPIC % 2 == 1
            current = CrashRun(
                *(broker, clock, f"crash-{seed}-{start}", rng),
                run_s_max=run_s_max,
                retention_ms=RETENTION_MS if retains else None,
            )
            end = min(start + KILLS_PER_TOPIC, first + kills)
            for number in range(start, end):
                faults = current.kill_once()
                print(
                    f"kill {number + 1}: {current.acknowledged} acknowledged, {len(faults)} faults",
                    flush=True,
                )
                broken += [f"kill {number + 1}: {text}" for text in faults]
            acknowledged += current.acknowledged
            if report is not None:
                report(end - first, acknowledged, broken)
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
