"""The partition for a key, if the client leaves the choice to the broker. Pure numbers.

Uses Pulsar's Murmur3_32Hash: a key gets the same partition over HTTP as from Pulsar's clients with
that hashing scheme. Kafka's clients choose a partition themselves; Iggy's rule is in its own
folder.
"""

from __future__ import annotations

import mmh3

INT32_MAX = 0x7FFF_FFFF


def key_partition(key: bytes, partitions: int) -> int:
    """Return the partition number, from 0, for a key (Murmur3_32Hash.java,
    RoundRobinPartitionMessageRouter).
    """
    return int((mmh3.hash(key, 0, signed=False) & INT32_MAX) % partitions)
