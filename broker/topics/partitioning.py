"""The partition for a key, for writers that leave the choice to the broker. Pure numbers.

By Pulsar's Murmur3_32Hash: a key's records over HTTP go where its clients with that hashing scheme
send theirs. Kafka's clients choose by themselves; Iggy's rule is in its own folder.
"""

from __future__ import annotations

import mmh3

INT32_MAX = 0x7FFF_FFFF


def key_partition(key: bytes, partitions: int) -> int:
    """The partition number, from 0, for a key among `partitions` of them (Murmur3_32Hash.java,
    RoundRobinPartitionMessageRouter).
    """
    return int((mmh3.hash(key, 0, signed=False) & INT32_MAX) % partitions)
