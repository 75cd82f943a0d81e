"""The catalogue of the simulation: the partition of each topic, as in shard 0's journal.

A row is a topic and the number of its partition from then on, 0 for a deleted topic. A recreated
topic has a new number.
"""

import struct

from braidlog.storage.shared.layout import shard_of
from braidlog.storage.shared.ledger import JournalRow

SHARDS = 3
CATALOGUE_SHARD = 0
CATALOGUE = 2  # The kind of the catalogue's journal rows.
ROW = struct.Struct("<QQ")
TOPIC_SHARDS = {topic: shard_of(f"t/n/topic{topic}", SHARDS) for topic in range(1, 6)}


class ModelCatalogue:
    """The catalogue in the view of a broker, or of the judge."""

    def __init__(self):
        self.place = 0
        self.partitions = {topic: topic for topic in TOPIC_SHARDS}  # Created before the first step.
        self.next_number = max(TOPIC_SHARDS) + 1
        self.pending = []  # Own rows that are in no round yet.

    def follow(self, rows):
        """Apply rows behind the last row."""
        for row in rows:
            assert row.place == self.place + 1, "a catalogue's rows are dense"
            self._apply(*ROW.unpack(row.body))
            self.place = row.place

    def change(self, topic):
        """Delete or recreate a topic."""
        number = 0 if topic in self.partitions else self.next_number
        self._apply(topic, number)
        self.place += 1
        body = ROW.pack(topic, number)
        self.pending.append(JournalRow(CATALOGUE_SHARD, self.place, CATALOGUE, body))

    def _apply(self, topic, number):
        self.partitions.pop(topic, None)
        if number:
            self.partitions[topic] = number
            self.next_number = max(self.next_number, number + 1)

    def take_pending(self):
        """Return the rows for the next round."""
        pending, self.pending = self.pending, []
        return pending

    def numbers(self, shard):
        """Return the partitions of a shard's topics."""
        its = self.partitions.items()
        return {number for topic, number in its if TOPIC_SHARDS[topic] == shard}


def published_catalogue(ledger):
    """Return the published catalogue."""
    catalogue = ModelCatalogue()
    catalogue.follow(ledger.journal(CATALOGUE_SHARD, CATALOGUE))
    return catalogue
