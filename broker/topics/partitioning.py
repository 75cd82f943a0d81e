"""Which partition a key means, for writers that leave the choice to the broker. Pure numbers.

Pulsar's Murmur3_32Hash: records that its clients send with that hashing scheme meet those that come
over HTTP. Clients of Kafka choose by themselves; Iggy's rule is in its own folder.
"""

from __future__ import annotations

import mmh3

INT32_MAX = 0x7FFF_FFFF


def key_partition(key: bytes, partitions: int) -> int:
    """The partition number, from 0, for a key among `partitions` of them (Murmur3_32Hash.java,
    RoundRobinPartitionMessageRouter).
    """
    return int((mmh3.hash(key, 0, signed=False) & INT32_MAX) % partitions)
