"""Descriptions of partitions for Metadata answers, made once and kept. Knows no topic.

All partitions of a topic have the same leader, so topics with as many partitions, that leader and
its epoch share a description. A change of these asks for another description: nothing here can be
outdated.
"""

from __future__ import annotations

from braidlog.protocols.kafka.codec import KeptList
from braidlog.protocols.kafka.wire.metadata import MetadataResponsePartition

# Of all kept lists; a partition takes some 100 bytes, and 26 more for each version asked for.
KEPT_PARTITIONS_MAX = 20_000

Description = tuple[int, int, int, int]
"""Partitions of a topic, error code, number of the leader, its epoch."""


def describe(index: int, code: int, leader: int, epoch: int) -> MetadataResponsePartition:
    """Return the description of a partition; a leader below 0 is none."""
    replicas = [leader] if leader >= 0 else []
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )


class KeptPartitions:
    """The lists that were asked for lately."""

    def __init__(self, partitions_max: int = KEPT_PARTITIONS_MAX) -> None:
        """Start empty; keep lists of `partitions_max` partitions in all."""
        self._partitions_max = partitions_max
        self._lists: dict[Description, KeptList[MetadataResponsePartition]] = {}
        self._size = 0

    def get(self, description: Description) -> KeptList[MetadataResponsePartition] | None:
        """Return the list if it is kept."""
        wanted = self._lists.pop(description, None)
        if wanted is not None:
            self._lists[description] = wanted  # Now the list that was asked for last.
        return wanted

    def keep(
        self, description: Description, partitions: list[MetadataResponsePartition]
    ) -> KeptList[MetadataResponsePartition]:
        """Keep a list, and drop those not asked for in the longest time."""
        partition_list = KeptList(partitions)
        self._size += len(partition_list) - len(self._lists.pop(description, ()))
        self._lists[description] = partition_list
        while self._size > self._partitions_max:
            oldest = next(iter(self._lists))
            self._size -= len(self._lists.pop(oldest))
        return partition_list


KEPT = KeptPartitions()
