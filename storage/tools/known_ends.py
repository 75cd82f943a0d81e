"""Compares the end of a log with the cursors' journal: with its durable end and the positions of
its subscriptions. For `log verify` and `log repair`. Changes nothing.
"""

from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.highest_position import highest_positions, is_above_end
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.tools.folder_owners import FolderOwner


class JournalledEnds:
    """The ends of the logs as recorded in a data directory's journals."""

    def __init__(self, catalogue: Catalogue | None, cursors: JournalPositions | None) -> None:
        self._catalogue = catalogue
        self._cursors = cursors
        self._highest: dict[int, dict[int, int]] = {}  # by topic and partition, once asked for

    def durable_end(self, partition_id: int) -> int:
        """Return the offset below which everything was on disk; 0 if unknown."""
        return 0 if self._cursors is None else self._cursors.ends.get(partition_id)

    def highest_position(self, owner: FolderOwner) -> int:
        """Return the highest offset that any subscription of a partition has seen; 0
        without any.
        """
        if self._catalogue is None or self._cursors is None:
            return 0
        meta = self._catalogue.topic(parse_topic(owner.topic))
        assert meta is not None, "the catalogue said so"
        highest = self._highest.get(meta.topic_id)
        if highest is None:
            highest = self._highest[meta.topic_id] = highest_positions(self._cursors, meta.topic_id)
        return highest.get(owner.index, 0)

    def first_free(self, partition_id: int, owner: FolderOwner) -> int:
        """Return the lowest offset that was never given out, as far as known: the durable end. Only
        if that end is unknown, the highest position: clients may commit any number.
        """
        return self.durable_end(partition_id) or self.highest_position(owner)

    def warning(self, partition_id: int, owner: FolderOwner, end_offset: int) -> str | None:
        """Return a sentence on a log that ends below its durable end or below a position; None for
        any other log.
        """
        durable_end = self.durable_end(partition_id)
        if durable_end > end_offset:
            reason = f"the log ends at {end_offset}, but everything below {durable_end} was on disk"
            return f"{reason}: files are missing, or from an older backup"
        position = self.highest_position(owner)
        if not is_above_end(position, end_offset):
            return None
        reason = f"the log ends at {end_offset}, and a subscription is at {position}"
        return f"{reason}: files are missing, or a client has committed such a number"
