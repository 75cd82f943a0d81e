"""What a partition remembers of its producers: the sequences that each stored last.

Shared by every protocol that tells a resent message from a new one. It is built from batch headers
(producer id, epoch, sequences): a table covers all batches below its `next_offset`. What counts as
a duplicate is each protocol's own rule. Knows no file (`sequence_store.py`) and no producer's name.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

# Batches remembered of each producer: a Kafka client has at most five requests on their way.
BATCHES_MAX: Final = 5
# Producers remembered of one partition; the least recently active goes first. About 2 MB.
PRODUCERS_MAX: Final = 5000


class StoredBatch(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """One batch of a producer: its sequences, and where it is."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerState(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The newest batches of one producer; `recent` has the newest at its end, and all are of this
    epoch.

    `first_sequence` is the first one noted of this epoch, and of this round of sequences, which
    begin again at 0. If the producer leaves no gaps, it has stored all sequences from there to
    `last_sequence`.
    """

    producer_id: int
    epoch: int
    last_append_us: int
    recent: list[StoredBatch]
    first_sequence: int = -1  # Unknown in a snapshot of version 1: then that of `recent`.

    def __post_init__(self) -> None:
        if self.first_sequence < 0:
            self.first_sequence = self.recent[0].first_sequence

    @property
    def last_sequence(self) -> int:
        """The last sequence stored."""
        return self.recent[-1].last_sequence


class SequenceTable:
    """The producers of one partition."""

    def __init__(self, next_offset: int, producers: Sequence[ProducerState] = ()) -> None:
        """`producers`: the least recently active first."""
        self.next_offset = next_offset
        self._producers = {state.producer_id: state for state in producers}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerState]:
        """Every producer, the least recently active first."""
        return iter(self._producers.values())

    def find(self, producer_id: int) -> ProducerState | None:
        """What is remembered of a producer."""
        return self._producers.get(producer_id)

    def note(self, producer_id: int, epoch: int, stored: StoredBatch, append_us: int) -> None:
        """Note a stored batch of a producer. With another epoch, what was before is forgotten."""
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
