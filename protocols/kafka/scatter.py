"""Positions on topics that other brokers own: the broker that a client asks passes them on.

A group is coordinated by one broker, but each position is with its topic's owner, as every other
protocol moves it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from broker.cluster.siblings import Asker, Commit, Committed, Place
from broker.errors import BrokerError

if TYPE_CHECKING:
    from protocols.kafka.context import Context

Found = dict[Place, Committed | BrokerError]


async def commit_elsewhere(
    context: Context, group: bytes, commits: Sequence[tuple[int, Commit]]
) -> list[BrokerError | None]:
    """Make commits at the nodes that own their topics; what became of each, in order."""
    told: list[BrokerError | None] = [None] * len(commits)
    asker = _asker(context)

    async def at(node: int, numbers: Sequence[int]) -> None:
        try:
            chosen = [commits[number][1] for number in numbers]
            codes = await context.broker.siblings.commit(node, asker, group, chosen)
        except BrokerError as error:
            codes = [error] * len(numbers)
        for number, code in zip(numbers, codes, strict=True):
            told[number] = code

    async with trio.open_nursery() as nursery:
        for node, numbers in _by_node([node for node, _ in commits]).items():
            nursery.start_soon(at, node, numbers)
    return told


async def fetch_elsewhere(
    context: Context, group: bytes, wanted: Sequence[tuple[int, Place]]
) -> Found:
    """Positions at the nodes that own their topics, or why there is none."""
    found: Found = {}
    asker = _asker(context)

    async def at(node: int, numbers: Sequence[int]) -> None:
        chosen = [wanted[number][1] for number in numbers]
        try:
            told = await context.broker.siblings.committed(node, asker, group, chosen)
        except BrokerError as error:
            found.update(dict.fromkeys(chosen, error))
            return
        found.update(dict.fromkeys(chosen))
        found.update(((name, index), given) for name, index, given in told)

    async with trio.open_nursery() as nursery:
        for node, numbers in _by_node([node for node, _ in wanted]).items():
            nursery.start_soon(at, node, numbers)
    return found


async def all_elsewhere(context: Context, group: bytes) -> list[Place]:
    """Every partition of other brokers where the group has a position. Raises OwnedElsewhere
    where one does not answer.
    """
    found: list[Place] = []
    asker, namespace = _asker(context), _namespace(context)
    broker = context.broker
    for owner in broker.placement.others():
        found += await broker.siblings.positions(owner.node_id, asker, group, namespace)
    return found


async def end_elsewhere(context: Context, group: bytes) -> bool:
    """Delete what the group has at other brokers; whether it had anything. Raises BrokerError."""
    found = False
    asker, namespace = _asker(context), _namespace(context)
    broker = context.broker
    for owner in broker.placement.others():
        found |= await broker.siblings.end_group(owner.node_id, asker, group, namespace)
    return found


def _namespace(context: Context) -> tuple[str, str]:
    """That of the listener: a group of the same name elsewhere is another one."""
    return context.names.tenant, context.names.namespace


def _asker(context: Context) -> Asker:
    return Asker(context.connection.principal, context.connection.at)


def _by_node(nodes: Sequence[int]) -> dict[int, list[int]]:
    """Which of them are at each node, by number. Those that nobody owns are asked of node 0, which
    is nobody's number.
    """
    found: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        found.setdefault(node, []).append(number)
    return found
