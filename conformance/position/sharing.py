"""Random steps of all protocols on a topic of several partitions, which grows, shrinks and is
renamed, while members of an Iggy group join and leave, in dialects D2 and W.

`assignment.py` has the rules of the group. A member of W has a session: the member stays when its
connection is lost, and continues over another connection.
"""

import random
import time
from dataclasses import dataclass, field

from conformance.clients.raw.iggy import (
    BY_TURN,
    CREATE_PARTITIONS,
    DELETE_GROUP,
    DELETE_PARTITIONS,
    JOIN_GROUP,
    LEAVE_GROUP,
    POLL,
    IggyWire,
)
from conformance.clients.raw.iggy import GROUP as OF_A_GROUP
from conformance.clients.raw.iggy_w import FETCH, POLL_DEFERRED, IggyWWire, NotAssigned
from conformance.position.assignment import REVOKE_S, ModelAssignment, ModelMember
from conformance.position.machine import GROUP, STEPS, PositionMachine, PositionsDiffer, Steps
from conformance.position.model import ModelPartition
from conformance.server import RunningBroker

PARTITIONS_MAX = 5
MEMBERS_MAX = 6  # Enough that some have no partition.
GONE_S = 60.0  # Time for a busy broker to see the end of a connection.
LOOK_S = 0.005
# An older move of a partition is waited for: no step may see whether REVOKE_S have passed.
MOVE_S = REVOKE_S / 2
POLLS = (POLL, POLL, POLL_DEFERRED, FETCH)


@dataclass(slots=True, eq=False)
class SharingMember:
    """A member with its connection."""

    wire: IggyWire | IggyWWire
    model: ModelMember = field(default_factory=ModelMember)


class SharingMachine(PositionMachine):
    """A topic with the same name in all protocols, and an Iggy group that shares its partitions."""

    def __init__(self, broker: RunningBroker, topic: str, seed: int) -> None:
        count = random.Random(seed).randint(2, PARTITIONS_MAX - 1)
        super().__init__(broker, topic, seed, partitions=count)
        self.members: list[SharingMember] = []
        self.group = ModelAssignment(count)
        # Generation and owners of partitions, as a member of W last saw them; the least and the
        # largest generation that an owner may have.
        self._seen: tuple[int, dict[int, SharingMember]] = (0, {})
        self._owner_generations: dict[int, tuple[int, int]] = {}
        self._first_name, self._names = topic, 0
        with self._classic() as wire:
            wire.create_group(topic, GROUP)

    def possible(self) -> Steps:
        return {**STEPS, **GROUP_STEPS}

    def step(self) -> None:
        """See `PositionMachine`; first wait for old moves of partitions."""
        while any(time.monotonic() - move.begun_s > MOVE_S for move in self.group.moves.values()):
            self._finish_a_move()
        super().step()

    def compare(self) -> None:
        """See `PositionMachine`; also compare the assigned partitions with the model."""
        super().compare()
        self.group.settle(self._group_positions())
        dealt = self._dealt()
        wanted = [_numbers(member.model.partitions) for member in self.members]
        if dealt != wanted:
            raise PositionsDiffer(f"{self.where()}: members have {dealt}, should have {wanted}")
        generations = set()
        for member in self.members:
            if isinstance(member.wire, IggyWWire):
                generation, assigned = member.wire.assigned(self.topic, GROUP)
                generations.add(generation)
                if assigned != (polled := _numbers(member.model.polled)):
                    raise PositionsDiffer(
                        f"{self.where()}: a member may poll {assigned}, should be {polled}"
                    )
        owners = {at: member for member in self.members for at in member.model.partitions}
        before, earlier = self._seen
        if generations:
            (generation,) = generations
            if generation < before + (owners != earlier):
                raise PositionsDiffer(
                    f"{self.where()}: generation {generation} after {before}, members have {dealt}"
                )
            least = {
                at: self._owner_generations[at][0] if earlier.get(at) is owner else before + 1
                for at, owner in owners.items()
            }
            self._owner_generations = {at: (low, generation) for at, low in least.items()}
            self._seen = (generation, owners)

    def restart(self) -> None:
        """Stop cleanly: memberships end, nothing else changes."""
        self._nobody()
        super().restart()

    def kill(self) -> None:
        """Kill the broker: memberships end; the group remains."""
        self._nobody()
        super().kill()
        self.compare()

    def leave(self) -> None:
        """Close all connections."""
        self._nobody()

    def iggy_committed(self) -> None:
        """A commit completes the move of the partition."""
        self.group.committed(self.at.index, self.cursor.position)

    def _nobody(self) -> None:
        for member in self.members:
            member.wire.close()
        self.members.clear()
        self.group = ModelAssignment(len(self.places))
        self._seen, self._owner_generations = (0, {}), {}

    def _group_positions(self) -> list[int | None]:
        return [place.cursor.position for place in self.places]

    def _classic(self) -> IggyWire:
        return IggyWire(self.broker.address("iggy"))

    def _dealt(self) -> list[list[int]]:
        with self._classic() as wire:
            return wire.members_of(self.topic, GROUP)

    def _finish_a_move(self) -> None:
        """Wait until a partition has moved without a commit of its owner."""
        partition, move = min(self.group.moves.items(), key=lambda item: item[1].begun_s)
        number = next(at for at, member in enumerate(self.members) if member.model is move.to)
        deadline = time.monotonic() + GONE_S
        while partition + 1 not in self._dealt()[number]:
            if time.monotonic() > deadline:
                raise PositionsDiffer(f"{self.where()}: partition {partition} does not move")
            time.sleep(LOOK_S)
        if time.monotonic() - move.begun_s < REVOKE_S:
            raise PositionsDiffer(f"{self.where()}: partition {partition} has moved early")
        self.group.finish(partition)

    # Members. None of these steps changes a cursor.

    def join(self) -> bool:
        """Add a member, up to the limit."""
        if len(self.members) == MEMBERS_MAX:
            return self.go()
        wire = self._iggy()
        member = SharingMember(wire)
        now_s = time.monotonic()
        wire.ask_of_group(JOIN_GROUP, self.topic, GROUP)
        self.members.append(member)
        takes_share, positions = isinstance(wire, IggyWWire), self._group_positions()
        self.group.join(member.model, positions, takes_share=takes_share, now_s=now_s)
        return False

    def go(self) -> bool:
        """Remove a member, or end its connection or session."""
        if not self.members:
            return self.join()
        gone = self.members.pop(self.random.randrange(len(self.members)))
        if self.random.random() < 0.5:
            gone.wire.ask_of_group(LEAVE_GROUP, self.topic, GROUP)
        elif isinstance(gone.wire, IggyWWire):
            gone.wire.log_out()
        gone.wire.close()
        deadline = time.monotonic() + GONE_S
        while len(self._dealt()) > len(self.members):
            if time.monotonic() > deadline:
                raise PositionsDiffer(f"{self.where()}: a member that is gone is still one")
            time.sleep(LOOK_S)
        self.group.leave(gone.model)
        return False

    def reconnect(self) -> bool:
        """Continue a member's session over another connection; half of the times the first
        connection is lost before.
        """
        newest = [member for member in self.members if isinstance(member.wire, IggyWWire)]
        if not newest:
            return self.join()
        member = self.random.choice(newest)
        earlier = member.wire
        assert isinstance(earlier, IggyWWire)
        if self.random.random() < 0.5:
            earlier.close()
        member.wire = IggyWWire(self.broker.address("iggy"), continues=earlier)
        earlier.close()
        return False

    def poll(self) -> bool:
        """Poll by a member, half of the times without a commit: in D2 the next of the member's
        partitions, in W any partition, which is refused unless the member has the partition.
        """
        if not self.members:
            return self.join()
        member = self.random.choice(self.members)
        count, commits = self.random.randint(1, 6), self.random.random() < 0.5
        if isinstance(member.wire, IggyWWire):
            index = self.at.index
            offsets = self._poll_named(member, member.wire, index, count, commits=commits)
            if offsets is None:
                return False
        else:
            turn = member.model.take_turn()
            number, offsets = member.wire.poll_in_turn(self.topic, count, GROUP, commits=commits)
            index = member.model.current if turn is None else turn
            wanted = 0 if index is None else index + 1
            if number != wanted:
                raise PositionsDiffer(f"{self.where()}: polled {number}, should be {wanted}")
            if index is None:
                self.check(not offsets, f"polled {offsets} of no partition")
                return False
            self.at = self.places[index]
        self.check(offsets == self.cursor.wanted()[:count], f"polled {offsets} of {count}")
        if commits:
            self.cursor.given_by_poll(offsets)
            self.group.committed(index, self.cursor.position)
        elif offsets:
            self.group.polled(member.model, index, offsets[-1] + 1)
        return False

    def _poll_named(
        self, member: SharingMember, wire: IggyWWire, index: int, count: int, *, commits: bool
    ) -> list[int] | None:
        """Return the offsets that a member polls; None for a partition of another member."""
        is_own = index in member.model.polled
        code = self.random.choice(POLLS)
        try:
            generation, offsets = wire.poll_as_member(
                self.topic, count, GROUP, partition=index + 1, commits=commits, code=code
            )
        except NotAssigned:
            if is_own:
                raise PositionsDiffer(f"{self.where()}: partition {index} refused") from None
            return None
        low, high = self._owner_generations[index]
        if not is_own or not low <= generation <= high:
            raise PositionsDiffer(
                f"{self.where()}: polled partition {index}, generation {generation}, should be"
                f" {_numbers(member.model.polled)}, {low} to {high}"
            )
        self._owner_generations[index] = (generation, generation)
        return offsets

    def store(self) -> bool:
        """Store an offset by a member: in D2 for the partition of the latest turn or any named
        partition, in W for the member's own partitions only.
        """
        if not self.members:
            return self.join()
        member = self.random.choice(self.members)
        model, number = member.model, self.at.index + 1
        if isinstance(member.wire, IggyWire) and self.random.random() < 0.5:
            if model.current is None:
                return self.join()
            self.at, number = self.places[model.current], BY_TURN
        offset = self.random.randrange(self.log.end)
        is_own = isinstance(member.wire, IggyWire) or self.at.index in model.partitions
        try:
            member.wire.store_offset(self.topic, GROUP, offset, partition=number, kind=OF_A_GROUP)
        except NotAssigned:
            self.check(not is_own, f"an offset of partition {self.at.index} refused")
            return False
        self.check(is_own, f"an offset of partition {self.at.index} stored")
        self.cursor.commit(offset + 1, kafka=False)
        self.iggy_committed()
        return True

    def delete_group(self) -> bool:
        """Delete the group with its members and the position of all protocols; then create it
        again.
        """
        with self._classic() as wire:
            wire.ask_of_group(DELETE_GROUP, self.topic, GROUP)
            wire.create_group(self.topic, GROUP)
        self._nobody()
        for place in self.places:
            place.cursor.end()
            place.stepped(is_on_disk=True)
        self.is_there = False
        return True

    # The topic.

    def grow(self) -> bool:
        """Add a partition: every subscription of the topic begins with its first record."""
        if len(self.places) == PARTITIONS_MAX:
            return self.shrink()
        with self._classic() as wire:
            wire.change_partitions(CREATE_PARTITIONS, self.topic, 1)
        place = ModelPartition(len(self.places))
        if self.is_there:
            place.cursor.start(0)
        place.stepped(is_on_disk=True)
        self.places.append(place)
        self.group.resize(len(self.places))
        self.fill(place)
        return True

    def shrink(self) -> bool:
        """Remove the last partition with its records and cursors."""
        if len(self.places) == 2:
            return self.grow()
        with self._classic() as wire:
            wire.change_partitions(DELETE_PARTITIONS, self.topic, 1)
        gone = self.places.pop()
        if gone is self.at:
            self.at = self.places[0]
        self.group.resize(len(self.places))
        return False

    def rename(self) -> bool:
        """Rename the topic: positions, members and assignments stay, for all protocols."""
        self._names += 1
        name = f"{self._first_name}-{self._names}"
        with self._classic() as wire:
            wire.rename_topic(self.topic, name)
        self.topic = name
        return False


def _numbers(partitions: list[int]) -> list[int]:
    """Return partitions counted from 1."""
    return [partition + 1 for partition in partitions]


GROUP_STEPS: Steps = {
    "a member joins Iggy's group": (SharingMachine.join, 5),
    "a member of Iggy's group goes": (SharingMachine.go, 3),
    "a member of Iggy's group reconnects": (SharingMachine.reconnect, 3),
    "a member of Iggy's group polls": (SharingMachine.poll, 16),
    "a member of Iggy's group stores": (SharingMachine.store, 6),
    "Iggy's group is deleted": (SharingMachine.delete_group, 1),
    "the topic grows": (SharingMachine.grow, 2),
    "the topic shrinks": (SharingMachine.shrink, 1),
    "the topic is renamed": (SharingMachine.rename, 2),
}
