"""Steps of Kafka's new groups: members of a share group and of the consumer protocol."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from conformance.clients.raw.kafka_modern import ACCEPT, REJECT, RELEASE, ModernWire

if TYPE_CHECKING:
    from conformance.position.machine import PositionMachine

GROUP: Final = "billing"
TAKEN_MAX = 6
LEFT = 0  # The member leaves, and its record comes back.
KINDS = (ACCEPT, ACCEPT, REJECT, RELEASE, LEFT)


def share(machine: "PositionMachine") -> bool:
    """Take records as a member of a share group, with their delivery counts; settle some, and
    leave.
    """
    cursor = machine.cursor
    with ModernWire(machine.broker.address("kafka")) as wire:
        topic_id = wire.topic_id(machine.topic)
        count = machine.random.randint(1, TAKEN_MAX)
        if was_unset := cursor.below is None:
            cursor.start(machine.log.end)  # As share.auto.offset.reset says.
        index = machine.at.index
        offered = wire.take_records(GROUP, topic_id, count, partition=index)
        machine.check(cursor.offered(offered, count), f"offered {offered} of {count}")
        kinds = {offset: machine.random.choice(KINDS) for offset, _ in offered}
        settled = {offset: kind for offset, kind in kinds.items() if kind != LEFT}
        wire.settle(GROUP, topic_id, settled, partition=index)
    done = [offset for offset, kind in kinds.items() if kind in (ACCEPT, REJECT)]
    cursor.ack(done)
    if done or was_unset:
        machine.at.stepped(is_on_disk=True)
    return not cursor.came_back([record for record in offered if record[0] not in done]) and bool(
        done or was_unset
    )


def commit_by_epoch(machine: "PositionMachine") -> bool:
    """Commit as a member of the consumer protocol."""
    return machine.commit_by(ModernWire.commit_by_epoch, ModernWire)


STEPS: Final[dict[str, tuple[Callable[[Any], bool], int]]] = {
    "a share group's member takes records": (share, 8),
    "a member of the consumer protocol commits": (commit_by_epoch, 3),
}
