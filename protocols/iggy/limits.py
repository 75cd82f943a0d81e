"""Limits of the Iggy listeners that tests lower; docs/limits.md lists the effect of each limit."""

from dataclasses import dataclass
from typing import Final

# Time limit for finding a topic's owner. After an owner is killed, the next broker owns the topic
# after the lease (5 s) and the time of the takeover.
FIND_S: Final = 10.0
ANSWER_S: Final = 60.0  # A poll may wait for memory; a SEND waits for the object store.
# Partitions that a list looks at between two checkpoints: some ms of work.
PIECE_PARTITIONS: Final = 200
# A page of GET_METADATA_CHANGES ends with the record or item that reaches this: permissions of a
# user may have 100 KB.
PAGE_BYTES_MAX: Final = 1 << 20


@dataclass(slots=True, frozen=True)
class IggyLimits:
    """Part of the state that all connections of a broker share."""

    find_s: float = FIND_S
    answer_s: float = ANSWER_S
    piece_partitions: int = PIECE_PARTITIONS
    page_bytes: int = PAGE_BYTES_MAX


IGGY_LIMITS: Final = IggyLimits()
