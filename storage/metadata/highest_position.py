"""The highest positions on the partitions of a topic, beside the ends of the partitions' logs.

A position above the end is a sign of lost files, and no proof: Kafka clients may commit any number.
"""

from braidlog.storage.metadata.positions import Positions

# An Iggy client may store offset 0, which is position 1, before the first message.
FIRST_IGGY_POSITION = 1


def highest_positions(positions: Positions, topic_id: int) -> dict[int, int]:
    """Return, by partition, the highest offset that any subscription of a topic has seen;
    partitions without a position are left out.
    """
    highest: dict[int, int] = {}
    for subscription in positions.subscriptions(topic_id):
        for index, cursor in subscription.cursors.items():
            position = max(cursor.position, *(end for _, end in cursor.acked or ()), 0)
            highest[index] = max(highest.get(index, 0), position)
    return highest


def is_above_end(position: int, end_offset: int) -> bool:
    """Return True if a position counts records that a log with this end does not have."""
    return position > max(end_offset, FIRST_IGGY_POSITION)
