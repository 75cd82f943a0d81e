"""Which broker should own which shard: all decide alike, from what the ledger says. Pure.

A shard belongs to the live broker with the highest hash of shard and node (rendezvous hashing), so
that a broker that joins or leaves moves only its own share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.storage.shared.session import View

# The broker with the highest rank has this long to take a free shard; then any other may.
FIRST_S: Final = 2.0
# Hashes that are kept: of 4096 shards and a few brokers.
RANKS_MAX: Final = 1 << 16


@lru_cache(RANKS_MAX)
def rank(shard: int, node: int) -> int:
    """The node with the highest rank should own the shard."""
    return int.from_bytes(blake2b(f"{shard}/{node}".encode(), digest_size=8).digest())


def best(shard: int, nodes: Collection[int]) -> int:
    """Which of these nodes should own a shard."""
    return max(nodes, key=lambda node: rank(shard, node))


def to_take(view: View, session: int, free_s: Mapping[int, float]) -> list[int]:
    """Shards that this session should take now. `free_s`: for how long each was seen free."""
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


def to_give(view: View, session: int, settled_ms: int) -> list[int]:
    """Shards of this session that another one should own, which has been live for `settled_ms`; all
    of them if this one drains and there is another.
    """
    live = view.live
    if session not in live:
        return []
    me = live[session]
    others = [row.node for row in live.values() if not row.drains and row.session != session]
    settled = [
        row.node
        for row in live.values()
        if row.node in others and (me.drains or row.age_ms >= settled_ms)
    ]
    if not settled:
        return []
    candidates = settled if me.drains else [me.node, *settled]
    return [
        row.shard
        for row in view.shards
        if row.session == session and best(row.shard, candidates) != me.node
    ]
