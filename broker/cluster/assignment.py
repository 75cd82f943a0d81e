"""Assignment of shards to brokers: all brokers decide alike, from the ledger. Pure.

A shard belongs to the live broker with the highest hash of shard and node (rendezvous hashing), so
a broker that joins or leaves moves only a fair share of the shards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.storage.shared.session import ClusterView

# The broker with the highest rank has this long to take a free shard; then any other may.
FIRST_S: Final = 2.0
# Hashes in the cache: of 4096 shards and a few brokers.
RANKS_MAX: Final = 1 << 16


@lru_cache(RANKS_MAX)
def rank(shard: int, node: int) -> int:
    """Return the rank of a node for a shard: the node with the highest rank should own
    the shard.
    """
    return int.from_bytes(blake2b(f"{shard}/{node}".encode(), digest_size=8).digest())


def best(shard: int, nodes: Collection[int]) -> int:
    """Return the node among these that should own a shard."""
    return max(nodes, key=lambda node: rank(shard, node))


def to_take(view: ClusterView, session: int, free_s: Mapping[int, float]) -> list[int]:
    """Return the shards that this session should take now. `free_s`: seconds that each was seen
    free.
    """
    live = view.live
    if session not in live or live[session].drains:
        return []
    nodes = [row.node for row in live.values() if not row.drains]
    me = live[session].node
    return [
        row.shard
        for row in view.shards
        if row.session is None
        and (best(row.shard, nodes) == me or free_s.get(row.shard, 0.0) >= FIRST_S)
    ]


def to_give(view: ClusterView, session: int, lived_ms: int) -> list[int]:
    """Return this session's shards that another session, live for `lived_ms`, should own; all
    shards if this session drains and another exists.
    """
    live = view.live
    if session not in live:
        return []
    me = live[session]
    others = [row.node for row in live.values() if not row.drains and row.session != session]
    recipients = [
        row.node
        for row in live.values()
        if row.node in others and (me.drains or row.age_ms >= lived_ms)
    ]
    if not recipients:
        return []
    candidates = recipients if me.drains else [me.node, *recipients]
    return [
        row.shard
        for row in view.shards
        if row.session == session and best(row.shard, candidates) != me.node
    ]
