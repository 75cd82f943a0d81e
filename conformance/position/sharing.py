"""Random steps of all protocols on a topic of several partitions, which grows, shrinks and is
renamed, while members of an Iggy group join and leave.

The broker assigns partition `i` to the `i mod m`th member, in the order of joining. A join, a leave
and a change of the topic reassign all partitions (Iggy's dialects up to D4).
"""

import random
import time
from dataclasses import dataclass

from conformance.clients.raw.iggy import (
    BY_TURN,
    CREATE_PARTITIONS,
    DELETE_GROUP,
    DELETE_PARTITIONS,
    JOIN_GROUP,
    LEAVE_GROUP,
    IggyWire,
)
from conformance.clients.raw.iggy import GROUP as OF_A_GROUP
from conformance.position.machine import GROUP, STEPS, PositionMachine, PositionsDiffer, Steps
from conformance.position.model import ModelPartition
from conformance.server import RunningBroker

PARTITIONS_MAX = 5
MEMBERS_MAX = 6  # Enough that some have no partition.
GONE_S = 60.0  # Time for a busy broker to see the end of a connection.
LOOK_S = 0.005


@dataclass(slots=True)
class SharingMember:
    """A member with its connection."""

    wire: IggyWire
    partitions: list[int]
    turn: int = 0
    current: int | None = None  # Partition of the latest turn; the first partition before that.

    def deal(self, partitions: list[int]) -> None:
        """Assign partitions and restart the turns."""
        self.partitions, self.turn = partitions, 0
        self.current = partitions[0] if partitions else None

    def take_turn(self) -> int | None:
        """Return the partition that the member polls next."""
        if self.partitions:
            self.current = self.partitions[self.turn % len(self.partitions)]
            self.turn += 1
        return self.current


class SharingMachine(PositionMachine):
    """A topic with the same name in all protocols, and an Iggy group that shares its partitions."""

    def __init__(self, broker: RunningBroker, topic: str, seed: int) -> None:
        count = random.Random(seed).randint(2, PARTITIONS_MAX - 1)
        super().__init__(broker, topic, seed, partitions=count)
        self.members: list[SharingMember] = []
        self._first_name, self._names = topic, 0
        with self._iggy() as wire:
            wire.create_group(topic, GROUP)

    def possible(self) -> Steps:
        return {**STEPS, **GROUP_STEPS}

    def compare(self) -> None:
        """See `PositionMachine`; also compare the assigned partitions with the model."""
        super().compare()
        dealt = self._dealt()
        wanted = [[index + 1 for index in member.partitions] for member in self.members]
        if dealt != wanted:
            raise PositionsDiffer(f"{self.where()}: members have {dealt}, should have {wanted}")

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

    def _nobody(self) -> None:
        for member in self.members:
            member.wire.close()
        self.members.clear()

    def _iggy(self) -> IggyWire:
        return IggyWire(self.broker.address("iggy"))

    def _dealt(self) -> list[list[int]]:
        with self._iggy() as wire:
            return wire.members_of(self.topic, GROUP)

    def _deal(self) -> None:
        count = len(self.members)
        for number, member in enumerate(self.members):
            member.deal(list(range(number, len(self.places), count)))

    # Members. None of these steps changes a cursor.

    def join(self) -> bool:
        """Add a member, up to the limit."""
        if len(self.members) == MEMBERS_MAX:
            return self.go()
        wire = self._iggy()
        wire.ask_of_group(JOIN_GROUP, self.topic, GROUP)
        self.members.append(SharingMember(wire, []))
        self._deal()
        return False

    def go(self) -> bool:
        """Remove a member, or end its connection."""
        if not self.members:
            return self.join()
        gone = self.members.pop(self.random.randrange(len(self.members)))
        if self.random.random() < 0.5:
            gone.wire.ask_of_group(LEAVE_GROUP, self.topic, GROUP)
        gone.wire.close()
        deadline = time.monotonic() + GONE_S
        while len(self._dealt()) > len(self.members):
            if time.monotonic() > deadline:
                raise PositionsDiffer(f"{self.where()}: a member that is gone is still one")
            time.sleep(LOOK_S)
        self._deal()
        return False

    def poll(self) -> bool:
        """Poll the next partition of a member; no messages without a partition."""
        if not self.members:
            return self.join()
        member = self.random.choice(self.members)
        count = self.random.randint(1, 6)
        index = member.take_turn()
        number, offsets = member.wire.poll_in_turn(self.topic, count, GROUP)
        if index is None:
            wanted = (0, [])
        else:
            self.at = self.places[index]
            wanted = (index + 1, self.cursor.wanted()[:count])
        if (number, offsets) != wanted:
            raise PositionsDiffer(f"{self.where()}: polled {number, offsets}, should be {wanted}")
        self.cursor.given_by_poll(offsets)
        return False

    def store(self) -> bool:
        """Store an offset by a member, for the partition of the latest turn or a
        named partition.
        """
        having = [candidate for candidate in self.members if candidate.current is not None]
        if not having:
            return self.join()
        member = self.random.choice(having)
        index = member.current
        assert index is not None
        self.at = self.places[index]
        offset = self.random.randrange(self.log.end)
        named = self.random.choice((BY_TURN, index + 1))
        member.wire.store_offset(self.topic, GROUP, offset, partition=named, kind=OF_A_GROUP)
        self.cursor.commit(offset + 1, kafka=False)
        return True

    def delete_group(self) -> bool:
        """Delete the group with its members and the position of all protocols; then create it
        again.
        """
        with self._iggy() as wire:
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
        with self._iggy() as wire:
            wire.change_partitions(CREATE_PARTITIONS, self.topic, 1)
        place = ModelPartition(len(self.places))
        if self.is_there:
            place.cursor.start(0)
        place.stepped(is_on_disk=True)
        self.places.append(place)
        self._deal()
        self.fill(place)
        return True

    def shrink(self) -> bool:
        """Remove the last partition with its records and cursors."""
        if len(self.places) == 2:
            return self.grow()
        with self._iggy() as wire:
            wire.change_partitions(DELETE_PARTITIONS, self.topic, 1)
        gone = self.places.pop()
        if gone is self.at:
            self.at = self.places[0]
        self._deal()
        return False

    def rename(self) -> bool:
        """Rename the topic: positions, members and assignments stay, for all protocols."""
        self._names += 1
        name = f"{self._first_name}-{self._names}"
        with self._iggy() as wire:
            wire.rename_topic(self.topic, name)
        self.topic = name
        return False


GROUP_STEPS: Steps = {
    "a member joins Iggy's group": (SharingMachine.join, 5),
    "a member of Iggy's group goes": (SharingMachine.go, 3),
    "a member of Iggy's group polls": (SharingMachine.poll, 16),
    "a member of Iggy's group stores": (SharingMachine.store, 6),
    "Iggy's group is deleted": (SharingMachine.delete_group, 1),
    "the topic grows": (SharingMachine.grow, 2),
    "the topic shrinks": (SharingMachine.shrink, 1),
    "the topic is renamed": (SharingMachine.rename, 2),
}
