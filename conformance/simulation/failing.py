"""R4, failing calls: a workload in which a disk call fails, or the disk is full for a while, at
every place in turn.

A full disk must leave everything usable, and no partial change. After a failure the broker must
send no more answers, and the directory must recover, also after a power loss then.
"""

import errno
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from braidlog.broker import errors as broker_errors
from braidlog.storage import errors as storage_errors
from braidlog.storage.log.gaps import append_gap
from braidlog.storage.log.local_log import LocalLog
from conformance.simulation.calls import (
    ALLOCATE,
    CREATE,
    MAKE_FOLDER,
    READ,
    RENAME,
    SYNCS,
    WRITE,
    CallRefused,
    TracedDisk,
)
from conformance.simulation.facts import Facts
from conformance.simulation.house import Shape, SimulatedBroker
from conformance.simulation.life import FAILED
from conformance.simulation.medium import Medium, choose_loss
from conformance.simulation.scratch import empty, limited
from conformance.simulation.steps import RandomLives
from conformance.simulation.verify import Broken, verify

STEPS = 70
# Steps after the fault: leftovers must become visible.
STEPS_AFTER = 15
# Steps after a restart that follows a failure.
STEPS_REVIVED = 6
# Power losses tried after a broker had to stop.
CUTS = 3
# Number of calls that find no space during a full disk.
FULL_CALLS = 6
# Number of functions, from the disk call up, that identify a place of the code.
SITE_DEPTH = 4

STOPS = (*FAILED, storage_errors.StorageFull, broker_errors.StorageFull, storage_errors.DamagedLog)


@dataclass(slots=True, frozen=True)
class DiskFailure:
    """A failure, and the number of consecutive changing calls that fail."""

    number: int
    calls: int = 1
    bytes_first: int = 0

    def __str__(self) -> str:
        name = errno.errorcode[self.number] if self.number else "a short write"
        first = f" after {self.bytes_first} bytes" if self.bytes_first else ""
        return f"{name}{first}, {self.calls} calls"


WRITE_FAULTS = (
    DiskFailure(errno.EIO),
    DiskFailure(errno.EIO, calls=2, bytes_first=70),
    DiskFailure(errno.ENOSPC),
    DiskFailure(errno.ENOSPC, calls=FULL_CALLS),
    DiskFailure(errno.ENOSPC, calls=2, bytes_first=70),
    DiskFailure(errno.EROFS, calls=FULL_CALLS),
    DiskFailure(0, bytes_first=70),
)
NAME_FAULTS = (
    DiskFailure(errno.EIO),
    DiskFailure(errno.ENOSPC),
    DiskFailure(errno.EROFS, calls=FULL_CALLS),
)
OTHER_FAULTS = (DiskFailure(errno.EIO), DiskFailure(errno.EROFS))
SYNC_FAULTS = (DiskFailure(errno.EIO), DiskFailure(errno.ENOSPC))
READ_FAULTS = (DiskFailure(errno.EIO),)


def faults_of(kind: str) -> tuple[DiskFailure, ...]:
    """Return the possible faults of a kind of call."""
    if kind in SYNCS:
        return SYNC_FAULTS
    known = {WRITE: WRITE_FAULTS, READ: READ_FAULTS}
    known |= dict.fromkeys((CREATE, MAKE_FOLDER, RENAME, ALLOCATE), NAME_FAULTS)
    return known.get(kind, OTHER_FAULTS)


class FailurePlan:
    """The plan of a disk: counts the calls, and lets those from number `at` on fail."""

    def __init__(self, at: int = -1, fault: DiskFailure | None = None) -> None:
        self.at = at
        self.fault = fault
        self.sites: list[tuple[str, tuple[str, ...]]] = []  # Kind of call, and its callers.
        self.fired = False
        self._left = fault.calls if fault is not None else 0

    def __call__(self, kind: str, path: str) -> CallRefused | None:
        number = len(self.sites)
        self.sites.append((kind, () if self.fault is not None else callers()))
        fault = self.fault
        if fault is None or number < self.at or self._left == 0:
            return None
        if number > self.at and (kind == READ or kind in SYNCS):
            return None  # A full disk can be read and synced.
        first = fault.bytes_first if number == self.at else 0
        self.fired = True
        self._left -= 1
        return CallRefused(fault.number, first)


def callers() -> tuple[str, ...]:
    """Return the product's functions above a disk call, innermost first."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and len(names) < 12:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("braidlog.storage.", "braidlog.broker.")):
            names.append(f"{module}.{frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(names)


def shape_of(rng: random.Random) -> Shape:
    """Return a random shape."""
    return Shape(rng.random() < 0.5, rng.choice((1, 300, 1000)), rng.choice((700, 1500)))


def sites_of(seed: int, folder: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the calls of an undisturbed workload: kind and callers."""
    script = FailurePlan()
    rng = random.Random(seed)
    path, shape = empty(os.path.join(folder, "sites")), shape_of(rng)
    disk = TracedDisk(path, script)
    life = RandomLives(SimulatedBroker(path, disk, shape), disk, Facts(), shape, rng)
    for _ in range(STEPS):
        life.step()
    life.house.kill()
    return script.sites


def disturbed(seed: int, folder: str, at: int, fault: DiskFailure) -> None:
    """Run the workload with a failing call. Raises Broken, and unexpected errors."""
    script, rng = FailurePlan(at, fault), random.Random(seed)
    path, shape = empty(os.path.join(folder, "disturbed")), shape_of(rng)
    disk, facts = TracedDisk(path, script), Facts()
    with limited():
        try:
            life = RandomLives(SimulatedBroker(path, disk, shape), disk, facts, shape, rng)
        except STOPS:
            check_stopped(path, disk, facts, shape, rng)
            return
        try:
            live_on(life, script)
        except STOPS:
            life.house.kill()
            check_stopped(path, disk, facts, shape, rng)
            script.fault = None
            check_revived(life)


def live_on(life: RandomLives, script: FailurePlan) -> None:
    """Step to the fault and a while beyond; then check that all is well after a restart.

    Raises Broken; an error of STOPS if the broker had to stop.
    """
    after = 0
    for _ in range(STEPS):
        life.step()
        after += script.fired
        if after > STEPS_AFTER:
            break
    script.fault = None
    if script.fired and script.sites[script.at][0] == READ:
        # Unreadable data counted as damaged. Now the disk reads again, so the log must be sound.
        life.restart(cleanly=False)
    refused = life.refusals
    life.settle()
    if life.refusals != refused:
        raise Broken("refused, though there is space again")
    if life.owed:
        raise Broken(f"never answered: {life.owed}")
    for partition in life.house.partitions.values():
        life.do(lambda life, to=partition: life.append_to(to))
    life.restart(cleanly=life.rng.random() < 0.5)
    life.house.kill()


def check_stopped(
    path: str, disk: TracedDisk, facts: Facts, shape: Shape, rng: random.Random
) -> None:
    """Check that the directory of a stopped broker recovers, both as left and after a power loss.

    Raises Broken, and unexpected errors.
    """
    stamp, medium = len(disk.calls), Medium()
    for call in disk.calls:
        medium.take(call)
    for _ in range(CUTS):
        lost = empty(path + "-lost")
        medium.cut(rng, choose_loss(rng)).write(lost)
        recover_and_go_on(lost, facts, stamp, shape)
    again = empty(path + "-again")
    medium.whole().write(again)
    recover_and_go_on(again, facts, stamp, shape)


def check_revived(life: RandomLives) -> None:
    """Check that a stopped broker can restart on the same machine, with a power loss later.

    Unsynced data still reads back after the restart, but is not on the disk. Raises Broken, and
    unexpected errors.
    """
    life.revive()
    revived = life.now
    for _ in range(STEPS_REVIVED):
        life.step()
    life.house.kill()
    calls, medium, done = life.disk.calls, Medium(), 0
    for stamp in sorted(life.rng.randint(revived, len(calls)) for _ in range(CUTS)):
        for call in calls[done:stamp]:
            medium.take(call)
        done = stamp
        lost = empty(life.house.path + "-lost")
        medium.cut(life.rng, choose_loss(life.rng)).write(lost)
        recover_and_go_on(lost, life.facts, stamp, life.shape)


def recover_and_go_on(path: str, facts: Facts, stamp: int, shape: Shape) -> None:
    """Check that a start over that directory finds the required state, twice."""
    house = SimulatedBroker(path, TracedDisk(path), shape)
    try:
        verify(house, facts, stamp)
        for partition in house.partitions.values():
            log = partition.log
            assert isinstance(log, LocalLog)
            append_gap(log, log.log_end_offset + 1, 1)
        house.broker.committer.commit()
    finally:
        house.kill()


def failures(seed: int, folder: str, *, each_site_once: bool = False) -> Iterator[str | None]:
    """Yield the result of each fault of each call of a workload, or of the first call from each
    place of the code.
    """
    sites = sites_of(seed, folder)
    numbers = list(range(len(sites)))
    if each_site_once:
        first = {site[1][:SITE_DEPTH]: number for number, site in reversed(list(enumerate(sites)))}
        numbers = sorted(first.values())
    for at in numbers:
        for fault in faults_of(sites[at][0]):
            yield attempt(seed, folder, at, fault, sites[at])


def attempt(
    seed: int, folder: str, at: int, fault: DiskFailure, site: tuple[str, tuple[str, ...]]
) -> str | None:
    """Return the fault that a failing call uncovers, or None."""
    try:
        disturbed(seed, folder, at, fault)
    except Exception as error:
        kind, made_by = site
        where = " < ".join(made_by[:6])
        return f"{fault} at call {at}, {kind} by {where}: {type(error).__name__}: {error}"
    return None
