"""Compares the end of a log with the cursors' journal: with its durable end and the positions of
its subscriptions. For `log verify` and `log repair`. Changes nothing.
"""

from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.names import parse_topic


class JournalledEnds:
    """The ends of the logs as recorded in a data directory's journals."""

    def __init__(self, catalogue: Catalogue | None, cursors: JournalPositions | None) -> None:
        self._catalogue = catalogue
        self._cursors = cursors

    def durable_end(self, partition_id: int) -> int:
        """Return the offset below which everything was on disk; 0 if unknown."""
        return 0 if self._cursors is None else self._cursors.ends.get(partition_id)

    def highest_position(self, topic: str, index: int) -> int:
        """Return the highest offset that any subscription of a partition has seen; 0
        without any.
        """
        if self._catalogue is None or self._cursors is None:
            return 0
        meta = self._catalogue.topic(parse_topic(topic))
        assert meta is not None, "the catalogue said so"
        positions = [0]
        for name in self._cursors.names(meta.topic_id):
            cursor = self._cursors.get(meta.topic_id, index, name)
            if cursor is not None:
                positions += [cursor.position, *(end for _, end in cursor.acked or ())]
        return max(positions)

    def first_free(self, partition_id: int, topic: str, index: int) -> int:
        """Return the lowest offset that was never given out, as far as known: the durable end. Only
        if that end is unknown, the highest position: clients may commit any number.
        """
        return self.durable_end(partition_id) or self.highest_position(topic, index)

    def warning(self, partition_id: int, end_offset: int) -> str | None:
        """Return why a log that ends there is older than the journals, None without evidence. A
        position above the end is none: clients may commit any number.
        """
        durable_end = self.durable_end(partition_id)
        if durable_end <= end_offset:
            return None
        reason = f"the log ends at {end_offset}, but everything below {durable_end} was on disk"
        return f"{reason}: files are missing, or from an older backup"

    def note(self, topic: str, index: int, end_offset: int) -> str | None:
        """Return a sentence on a position above the end of the log, None without such a
        position.
        """
        position = self.highest_position(topic, index)
        if position <= end_offset:
            return None
        reason = f"the log ends at {end_offset}, and a subscription is at {position}"
        return f"{reason}: a client may commit any number"
