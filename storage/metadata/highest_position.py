"""The highest position on a partition, beside the end of the partition's log.

A position above the end is a sign of lost files, and no proof: Kafka clients may commit any number.
"""

from braidlog.storage.metadata.positions import Positions

# An Iggy client may store offset 0, which is position 1, before the first message.
FIRST_IGGY_POSITION = 1


def highest_position(positions: Positions, topic_id: int, index: int) -> int:
    """Return the highest offset that any subscription of a partition has seen; 0 without any."""
    highest = 0
    for name in positions.names(topic_id):
        cursor = positions.get(topic_id, index, name)
        if cursor is not None:
            highest = max(highest, cursor.position, *(end for _, end in cursor.acked or ()))
    return highest


def is_above_end(position: int, end_offset: int) -> bool:
    """Return True if a position counts records that a log with this end does not have."""
    return position > max(end_offset, FIRST_IGGY_POSITION)
