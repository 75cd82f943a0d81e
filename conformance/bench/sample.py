"""A measured round of a workload, and the tools for measuring."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.bench.process import cpu_seconds
from conformance.server import RunningBroker

MB = 1e6


@dataclass(slots=True)
class BenchSample:
    """A round: the value, and the base of its ratio (a limit's letter with a factor)."""

    value: float
    unit: str
    of: str = ""  # Empty: no limit of the machine determines the value.
    factor: float = 1.0
    cpu_us: float | None = None  # The broker's, per message.
    cpu_of: str = ""  # The limit with the processor time to compare with.
    broker_cores: float = 0.0  # Processor time over time: 1.0 is a core.
    client_cores: float = 0.0  # The load process's cores: near 1.0 the load is the bottleneck.


@dataclass(slots=True)
class BenchRound:
    """Input of a workload."""

    broker: RunningBroker
    seconds: float
    limits: dict[str, float] = field(default_factory=dict)  # Measured in this round.
    counter: "itertools.count[int]" = field(default_factory=itertools.count)

    def topic(self) -> str:
        """Return a fresh name, always of the same length."""
        return f"bench-{next(self.counter):06d}"

    def address(self, listener: str) -> tuple[str, int]:
        """Return host and port of a listener."""
        return self.broker.address(listener)


@dataclass(frozen=True, slots=True)
class Workload:
    """A row of the table; `about` gives connections, partitions and batch sizes."""

    name: str
    about: str
    run: Callable[[BenchRound], BenchSample]
    goal: str = ""


def timed(
    round_: BenchRound, sample: BenchSample, work: Callable[[], int], unit_size: float = 1
) -> BenchSample:
    """Time `work`, which returns the number of moved messages; the value counts
    units per second.
    """
    pid = round_.broker.pid
    cpu, own, started = cpu_seconds(pid), time.process_time(), time.perf_counter()
    messages = work()
    spent = time.perf_counter() - started
    cpu = cpu_seconds(pid) - cpu
    sample.value = messages * unit_size / spent
    sample.cpu_us = cpu * 1e6 / messages
    sample.broker_cores = cpu / spent
    sample.client_cores = (time.process_time() - own) / spent
    return sample


def again_and_again(round_: BenchRound, work: Callable[[], int]) -> Callable[[], int]:
    """Repeat the work until the round's time is up: a single read of the log is too short."""

    def repeated() -> int:
        done = 0
        deadline = time.perf_counter() + round_.seconds
        while time.perf_counter() < deadline:
            done += work()
        return done

    return repeated
