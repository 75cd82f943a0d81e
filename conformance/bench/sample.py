"""One measured round of a workload, and what measuring it needs."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.bench.process import cpu_seconds
from conformance.server import RunningBroker

MB = 1e6


@dataclass(slots=True)
class Sample:
    """One round: the value, and what its ratio is taken of (a limit's letter with a factor)."""

    value: float
    unit: str
    of: str = ""  # Empty: no limit of the machine says how large the value should be.
    factor: float = 1.0
    cpu_us: float | None = None  # The broker's, for each message.
    cpu_of: str = ""  # The limit that is the same of what it is compared with.
    broker_cores: float = 0.0  # Processor time over time: 1.0 is a core.
    client_cores: float = 0.0  # The same of this process: near 1.0 it is the load that is slow.


@dataclass(slots=True)
class Round:
    """What a workload is given."""

    broker: RunningBroker
    seconds: float
    limits: dict[str, float] = field(default_factory=dict)  # As they were measured in this round.
    counter: "itertools.count[int]" = field(default_factory=itertools.count)

    def topic(self) -> str:
        """A fresh name, always of one length."""
        return f"bench-{next(self.counter):06d}"

    def address(self, listener: str) -> tuple[str, int]:
        """Host and port of a listener."""
        return self.broker.address(listener)


@dataclass(frozen=True, slots=True)
class Workload:
    """A row of the table; `about` says connections, partitions and batch sizes."""

    name: str
    about: str
    run: Callable[[Round], Sample]
    goal: str = ""


def timed(round_: Round, sample: Sample, work: Callable[[], int], unit_size: float = 1) -> Sample:
    """Time `work`, which returns how many messages it moved; the value counts units a second."""
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


def again_and_again(round_: Round, work: Callable[[], int]) -> Callable[[], int]:
    """Repeat the work until the round's time is up: reading a log once takes too little time."""

    def repeated() -> int:
        done = 0
        deadline = time.perf_counter() + round_.seconds
        while time.perf_counter() < deadline:
            done += work()
        return done

    return repeated
