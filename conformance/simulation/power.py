"""R2, power loss: each prefix of a workload's disk calls, with a random loss of uncertain data.

Each state is recovered, compared with the facts, used by a workload and recovered again.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import replace

from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.log.layout import SET_ASIDE_NAME
from braidlog.storage.log.log import Log
from conformance.simulation.calls import TracedDisk
from conformance.simulation.facts import (
    AppendedBatch,
    Facts,
    LogFacts,
    StateHistory,
    Timeline,
    catalogue_state,
    cursor_state,
)
from conformance.simulation.house import Shape, SimulatedBroker
from conformance.simulation.medium import PLAIN, Loss, Medium, MediumState, choose_loss
from conformance.simulation.scratch import empty, limited
from conformance.simulation.steps import RandomLives
from conformance.simulation.verify import READ_BYTES, verify, verify_outside

STEPS = 90
STEPS_AFTER = 4
# States per prefix of the calls.
CUTS_EACH = 2
# After so many states, a state has a second power cut, during its recovery and later steps.
AGAIN_EVERY = 12
CUTS_AGAIN = 3


class Scenario:
    """All states of a seed, in order."""

    def __init__(self, seed: int, folder: str, every: int = 1) -> None:
        """Cut the power after each prefix of the calls, or after every so many calls."""
        self.seed = seed
        self.every = every
        self.rng = random.Random(seed)
        self.folder = folder
        self.shape = Shape(
            syncs_all=self.rng.random() < 0.5,
            journal_factor=self.rng.choice((1, 100, 300, 1000)),
            segment_bytes=self.rng.choice((700, 1500, 6000)),
        )

    def run(self) -> Iterator[str | None]:
        """Yield the fault of each state, or None. Raises Broken for the workload."""
        path = empty(os.path.join(self.folder, "life"))
        disk, facts = TracedDisk(path), Facts()
        medium = Medium.of(path, disk.names.numbers)
        workload = RandomLives(
            SimulatedBroker(path, disk, self.shape), disk, facts, self.shape, self.rng
        )
        for _ in range(STEPS):
            workload.step()
        workload.house.kill()
        yield from self._all_cuts(medium, disk, facts)

    def _all_cuts(self, medium: Medium, disk: TracedDisk, facts: Facts) -> Iterator[str | None]:
        count = 0
        for stamp in range(len(disk.calls) + 1):
            if stamp:
                medium.take(disk.calls[stamp - 1])
            if (stamp - self.seed) % self.every:
                continue
            for number in range(CUTS_EACH):
                plain = PLAIN[stamp % len(PLAIN)] if number == 0 and stamp % 3 == 0 else None
                loss = plain or choose_loss(self.rng)
                state = medium.cut(self.rng, loss)
                count += 1
                if count % AGAIN_EVERY == 0:
                    yield from self._cut_again(state, facts, stamp, loss)
                else:
                    yield self._judged(state, facts, stamp, loss)

    def _judged(self, state: MediumState, facts: Facts, stamp: int, loss: Loss) -> str | None:
        try:
            with limited():
                self._recover(state, facts, stamp, "state").house.kill()
        except Exception as error:
            return f"call {stamp}, {loss}: {type(error).__name__}: {error}"
        return None

    def _recover(self, state: MediumState, facts: Facts, stamp: int, name: str) -> RandomLives:
        """Open the state, compare, run steps, restart, compare. Raises Broken."""
        path = empty(os.path.join(self.folder, name))
        state.write(path)
        verify_outside(path, facts, stamp)
        disk = TracedDisk(path)
        house = SimulatedBroker(path, disk, self.shape)
        try:
            verify(house, facts, stamp)
            workload = RandomLives(
                house, disk, found_facts(house, facts, len(disk.calls)), self.shape, self.rng
            )
            for partition in self.rng.sample(
                list(house.partitions.values()), min(len(house.partitions), 2)
            ):
                workload.do(lambda life, to=partition: life.append_to(to))
            for _ in range(STEPS_AFTER):
                workload.step()
            workload.restart(cleanly=self.rng.random() < 0.5)
        except BaseException:
            house.kill()
            raise
        return workload

    def _cut_again(
        self, state: MediumState, facts: Facts, stamp: int, loss: Loss
    ) -> Iterator[str | None]:
        """Yield the results of a state with a second power loss during its recovery and later
        steps.
        """
        try:
            workload = self._recover(state, facts, stamp, "first")
        except Exception as error:
            yield f"call {stamp}, {loss}: {type(error).__name__}: {error}"
            return
        workload.house.kill()
        yield None
        calls = workload.disk.calls
        stamps = sorted(self.rng.randint(0, len(calls)) for _ in range(CUTS_AGAIN))
        medium, done = self._medium_of(state), 0
        for second in stamps:
            for call in calls[done:second]:
                medium.take(call)
            done = second
            again = choose_loss(self.rng)
            fault = self._judged(medium.cut(self.rng, again), workload.facts, second, again)
            yield fault and f"call {stamp}, {loss}, then {fault}"

    def _medium_of(self, state: MediumState) -> Medium:
        path = empty(os.path.join(self.folder, "base"))
        state.write(path)
        return Medium.of(path, TracedDisk(path).names.numbers)


def found_facts(house: SimulatedBroker, before: Facts, now: int) -> Facts:
    """Return a recovered broker's state, as facts for later steps; `now`: its calls so far."""
    facts = Facts(
        StateHistory(catalogue_state(house.broker.catalogue.state)),
        StateHistory(cursor_state(house.cursors)),
    )
    for name in os.listdir(os.path.join(house.path, SET_ASIDE_NAME)):
        # Until this is durable, readers without the broker see the old watermark.
        known = before.log(int(name))
        batches = [replace(batch, stamp=0) for batch in known.batches]
        gaps = [replace(gap, stamp=0) for gap in known.gaps]
        facts.logs[int(name)] = LogFacts(batches=batches, gaps=gaps)
    for partition_id, partition in house.partitions.items():
        is_written = before.log(partition_id).written_mode.last
        facts.logs[partition_id] = found_log(partition.log, is_written, now)
    return facts


def found_log(log: Log, is_written: bool, now: int) -> LogFacts:
    """Return a recovered log's facts. A gap from the recovery counts from its end on."""
    durable = log.recovery.gap[0] if log.recovery.gap else log.log_end_offset
    facts = LogFacts(
        start=Timeline(log.log_start_offset),
        durable=Timeline(durable),
        shown=Timeline(durable),
        written_mode=Timeline(is_written),
    )
    facts.durable.put(now, log.log_end_offset)
    facts.shown.put(now, log.log_end_offset)
    offset = log.log_start_offset
    while batches := log.read(offset, READ_BYTES):
        for batch in batches:
            stored = AppendedBatch(0, batch.base_offset, batch.next_offset, bytes(batch.body))
            is_gap = batch.header.flags & BatchFlag.GAP
            (facts.gaps if is_gap else facts.batches).append(stored)
        offset = batches[-1].next_offset
    return facts
