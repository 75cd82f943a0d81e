"""A broker's lives over a directory, step by step, and the facts of each step."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from braidlog.broker import errors
from braidlog.broker.topics.partition import Partition
from braidlog.storage import errors as storage_errors
from conformance.simulation.calls import TracedDisk
from conformance.simulation.facts import (
    AppendedBatch,
    Facts,
    LogFacts,
    catalogue_state,
    cursor_state,
    partitions_in,
)
from conformance.simulation.house import Shape, SimulatedBroker
from conformance.simulation.verify import Broken, verify

DAMAGED = (errors.DamagedLog, storage_errors.DamagedLog)
FAILED = (errors.StorageFailed, storage_errors.StorageFailed)
FULL = (errors.StorageFull, storage_errors.StorageFull)


@dataclass(slots=True, frozen=True)
class Owed:
    """An answer that waits for a ticket.

    The answer promises these states of the journals, and the log up to an offset.
    """

    ticket: int
    catalogue: int
    cursors: int
    partition_id: int = 0
    next_offset: int = 0


class BrokerLives:
    """A series of brokers over a directory; `facts` grow with each step.

    A refused action of those named in `all_or_nothing` must have changed nothing.
    """

    all_or_nothing: frozenset[str] = frozenset()

    def __init__(
        self,
        house: SimulatedBroker,
        disk: TracedDisk,
        facts: Facts,
        shape: Shape,
        rng: random.Random,
    ) -> None:
        """Begin with `house`, just opened over `disk`, and the earlier `facts`."""
        self.house = house
        self.disk = disk
        self.facts = facts
        self.shape = shape
        self.rng = rng
        self.refusals = 0
        self.log: list[str] = []
        self.owed: list[Owed] = []
        self._in_round: tuple[int, int] | None = None
        self._count = rng.getrandbits(40)  # Names of an earlier life must not return.
        self._settle_in(0)

    @property
    def now(self) -> int:
        """Return the number of disk calls so far."""
        return len(self.disk.calls)

    # Lives

    def _settle_in(self, began: int) -> None:
        """Note a finished start that began at `began`: the found state is durable."""
        facts = self.facts
        self.owed, self._in_round = [], None
        self._note_states(began)
        for partition_id, partition in self.house.partitions.items():
            self._note_log(facts.log(partition_id), partition, began)
        self._promise(facts.catalogue.newest, facts.cursors.newest)

    def restart(self, *, cleanly: bool) -> None:
        """Stop or kill the broker, and restart over the same, whole files.

        Raises Broken, and the errors of a stop and a start.
        """
        refused = self.disk.refused
        if cleanly:
            self.settle()
            # A log that had no room for its gap leaves the gap to the next start.
            cleanly = all(
                partition.log.takes_appends for partition in self.house.partitions.values()
            )
            newest = self.facts.catalogue.newest, self.facts.cursors.newest
            self.house.stop()
            self._promise(*newest)
        else:
            self.house.kill()
        ended = self.now
        self.house = self._started()
        with self.disk.without_faults():
            verify(self.house, self.facts, ended, is_whole=True)
        reports = [partition.log.recovery for partition in self.house.partitions.values()]
        is_clean = refused != self.disk.refused or all(report.is_clean for report in reports)
        if cleanly and not is_clean:
            raise Broken(f"unclean after a clean stop: {reports}")
        self._settle_in(ended)

    def revive(self) -> None:
        """Restart over the whole files, after the broker had to stop. Raises Broken."""
        ended = self.now
        self.house = self._started()
        verify(self.house, self.facts, ended)
        self._settle_in(ended)

    def _started(self) -> SimulatedBroker:
        """Start a broker; retry after a full disk or a failing read."""
        while True:
            refused, reads = self.disk.refused, self.disk.refused_reads
            try:
                house = SimulatedBroker(self.house.path, self.disk, self.shape)
            except storage_errors.StorageFull:
                if self.disk.refused == refused:
                    raise
            except (storage_errors.DamagedLog, storage_errors.StorageFailed):
                if self.disk.refused_reads == reads:
                    raise
            else:
                if self.disk.refused_reads == reads:
                    return house
                house.kill()

    # Facts

    def _note_states(self, began: int) -> None:
        catalogue = catalogue_state(self.house.broker.catalogue.state)
        self.facts.catalogue.put(began, catalogue)
        # Includes deleted topics: if the catalogue still has such a topic, the cursors must exist.
        existing = partitions_in(catalogue)
        gone = {
            key: states
            for key, states in self.facts.cursors.states[-1].items()
            if key not in existing
        }
        self.facts.cursors.put(began, gone | cursor_state(self.house.cursors))

    def _note_log(self, facts: LogFacts, partition: Partition, began: int) -> None:
        log = partition.log
        if log.log_end_offset > (before := facts.appended_end(self.now)):
            facts.gaps.append(AppendedBatch(began, before, log.log_end_offset, b""))
        facts.start.put(began, log.log_start_offset)
        facts.durable.put(self.now, max(facts.durable.last, log.durable_offset))
        facts.shown.put(self.now, max(facts.shown.last, log.high_watermark))
        if log.settings.durability == "written":
            facts.written_mode.put(began, True)

    def _promise(self, catalogue: int, cursors: int) -> None:
        self.facts.catalogue.promise(self.now, catalogue)
        self.facts.cursors.promise(self.now, cursors)

    def _owe(self, ticket: int, partition_id: int = 0, next_offset: int = 0) -> None:
        # A ticket of an earlier round means that the asked journal, the cursors', had nothing new.
        is_new = ticket >= self.house.broker.committer.ticket
        catalogue = self.facts.catalogue.newest if is_new else 0
        # Lazy changes of cursors come with the rounds of their journal.
        cursors = self.facts.cursors.newest if ticket == self.house.cursors.ticket else 0
        owed = Owed(ticket, catalogue, cursors, partition_id, next_offset)
        self.owed.append(owed)

    def _answer(self) -> None:
        """Send the answers whose tickets are now durable."""
        durable_ticket = self.house.broker.committer.durable_ticket
        due = [owed for owed in self.owed if owed.ticket <= durable_ticket]
        self.owed = [owed for owed in self.owed if owed.ticket > durable_ticket]
        partitions = self.house.partitions
        for owed in due:
            self._promise(owed.catalogue, owed.cursors)
            partition = partitions.get(owed.partition_id)
            if partition is not None and partition.log.durable_offset < owed.next_offset:
                raise Broken(f"{owed} is answered, durable is {partition.log.durable_offset}")

    # Steps and rounds

    def do(self, action: Callable[[Self], int | None]) -> None:
        """Take a step, and note its facts.

        Raises Broken; StorageFailed of broker or storage, after which the broker answers nothing.
        """
        began = self.now
        self.log.append(f"{began}: {action.__name__}")
        before = self._memory()
        try:
            ticket = action(self)
        except FULL:
            self.refusals += 1
            self._in_round = None  # Lazy changes may have stayed in memory.
            self._check_refused(action, before)
            ticket = None
        except FAILED:
            self._note_states(began)  # Unanswered changes may exist all the same.
            raise
        except DAMAGED:
            if not self.disk.refused_reads:
                raise
            ticket = None
        except (errors.InvalidRequest, errors.TopicExists, errors.LimitExceeded):
            ticket = None
        self._note_states(began)
        for partition_id, partition in self.house.partitions.items():
            self._note_log(self.facts.log(partition_id), partition, began)
        if ticket is not None:
            self._owe(ticket)
        self._answer()

    def _memory(self) -> tuple[object, ...]:
        # A log that had no room for the gap after an unclean start adds the gap when there is room.
        ends = {
            number: partition.next_offset
            for number, partition in self.house.partitions.items()
            if not partition.log.recovery.gap
        }
        return (
            catalogue_state(self.house.broker.catalogue.state),
            cursor_state(self.house.cursors),
            ends,
        )

    def _check_refused(
        self, action: Callable[[Self], int | None], before: tuple[object, ...]
    ) -> None:
        if action.__name__ in self.all_or_nothing and self._memory() != before:
            raise Broken(f"{action.__name__} was refused, and changed something")

    # Rounds

    def step_round(self) -> None:
        """Take the next of the three steps of a round."""
        newest = self.facts.catalogue.newest, self.facts.cursors.newest
        refused_before = self.shape_refusals()
        step = self.house.step_round()
        if step == "begin":
            whole = self.shape_refusals() == refused_before
            catalogue, cursors = newest
            newest = catalogue, cursors if self.house.round_covers_cursors else 0
            self._in_round = newest if whole else None
        elif step == "finish" and self._in_round is not None:
            self._promise(*self._in_round)

    def shape_refusals(self) -> int:
        """Return the number of calls that the disk has refused so far."""
        return self.disk.refused

    def whole_round(self) -> None:
        """Finish the present round, or run a whole round."""
        self.step_round()
        while self.house.in_round:
            self.step_round()

    def promote(self) -> None:
        """Act as the flush interval does."""
        self.house.broker.committer.promote_lazy()

    def settle(self) -> None:
        """Make all changes durable, lazy changes included."""
        for _ in range(3):  # A round may mark lazy changes.
            self.do(BrokerLives.promote)
            self.do(BrokerLives.whole_round)
