"""The catalogue of the simulation: which partition each topic has, as shard 0's journal tells.

A row is a topic and the number of its partition from then on, 0 where the topic is deleted. A topic
that is made again has a number of its own.
"""

import struct

from braidlog.storage.shared.layout import shard_of
from braidlog.storage.shared.ledger import JournalRow

SHARDS = 3
CATALOGUE_SHARD = 0
CATALOGUE = 2  # The kind of its journal rows.
ROW = struct.Struct("<QQ")
TOPIC_SHARDS = {topic: shard_of(f"t/n/topic{topic}", SHARDS) for topic in range(1, 6)}


class ModelCatalogue:
    """What one broker, or the judge, knows of it."""

    def __init__(self):
        self.place = 0
        self.partitions = {topic: topic for topic in TOPIC_SHARDS}  # Made before the first step.
        self.next_number = max(TOPIC_SHARDS) + 1
        self.pending = []  # Rows of our own that no round has.

    def follow(self, rows):
        """Apply rows behind the last one."""
        for row in rows:
            assert row.place == self.place + 1, "a catalogue's rows are dense"
            self._apply(*ROW.unpack(row.body))
            self.place = row.place

    def change(self, topic):
        """Delete a topic, or make it again."""
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
        """What the next round is to publish."""
        pending, self.pending = self.pending, []
        return pending

    def numbers(self, shard):
        """The partitions of a shard's topics."""
        its = self.partitions.items()
        return {number for topic, number in its if TOPIC_SHARDS[topic] == shard}


def published_catalogue(ledger):
    """The catalogue as it counts now."""
    catalogue = ModelCatalogue()
    catalogue.follow(ledger.journal(CATALOGUE_SHARD, CATALOGUE))
    return catalogue
