"""The last sequences that a partition stored for each producer.

Every protocol that tells a resent message from a new message uses this table. The table is built
from batch headers (producer id, epoch, sequences) and covers all batches below `next_offset`. Each
protocol has its own rule for duplicates. Knows no file (`sequence_store.py`) and no producer's
name.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from braidlog.storage.formats.api import SEQUENCE_MAX

# Batches remembered per producer: a Kafka client has at most five requests in flight.
BATCHES_MAX: Final = 5
# Producers remembered per partition (about 2 MB); the least recently active producer is dropped
# first.
PRODUCERS_MAX: Final = 5000


class StoredBatch(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A stored batch of a producer: sequences and base offset."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerState(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The newest batches of a producer, all of the same epoch; `recent` ends with the newest.

    `first_sequence` is the first sequence noted in this epoch and in this round of sequences, which
    begin again at 0. A producer that leaves no gaps has stored all sequences from `first_sequence`
    to `last_sequence`.
    """

    producer_id: int
    epoch: int
    last_append_us: int
    recent: list[StoredBatch]
    first_sequence: int = -1  # Not in a snapshot of version 1: taken from `recent`.

    def __post_init__(self) -> None:
        if self.first_sequence < 0:
            self.first_sequence = self.recent[0].first_sequence

    @property
    def last_sequence(self) -> int:
        """The last sequence stored."""
        return self.recent[-1].last_sequence

    @property
    def next_sequence(self) -> int:
        """The first sequence of the next batch, if the producer leaves no gap."""
        last = self.recent[-1].last_sequence
        return 0 if last == SEQUENCE_MAX else last + 1


class SequenceTable:
    """The producers of a partition."""

    def __init__(self, next_offset: int, producers: Sequence[ProducerState] = ()) -> None:
        """Store the producers; `producers` begins with the least recently active."""
        self.next_offset = next_offset
        self._producers = {state.producer_id: state for state in producers}

    def covers_to(self, offset: int) -> None:
        """Note that the table covers all batches below this offset."""
        self.next_offset = offset

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerState]:
        """Iterate over all producers, the least recently active first."""
        return iter(self._producers.values())

    def find(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer, None if the producer is unknown."""
        return self._producers.get(producer_id)

    def note(self, producer_id: int, epoch: int, stored: StoredBatch, append_us: int) -> None:
        """Note a stored batch of a producer. Another epoch replaces the earlier batches."""
        state = self._producers.pop(producer_id, None)
        if state is None:
            state = ProducerState(producer_id, epoch, append_us, [stored])
            if len(self._producers) >= PRODUCERS_MAX:
                del self._producers[next(iter(self._producers))]
        elif state.epoch != epoch:
            state.epoch, state.last_append_us, state.recent = epoch, append_us, [stored]
            state.first_sequence = stored.first_sequence
        else:
            state.first_sequence = min(state.first_sequence, stored.first_sequence)
            state.last_append_us = append_us
            state.recent.append(stored)
            del state.recent[:-BATCHES_MAX]
        self._producers[producer_id] = state
