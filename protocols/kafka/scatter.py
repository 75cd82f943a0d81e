"""Positions on topics that other brokers own: requests for them are passed on to the owners.

One broker coordinates a group, but the owner of a topic keeps the positions on it, because every
other protocol moves them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from braidlog.broker.cluster.siblings import Asker, Commit, Committed, Place
from braidlog.broker.errors import BrokerError, NotOwner, Unanswered

if TYPE_CHECKING:
    from braidlog.protocols.kafka.context import Context

Found = dict[Place, Committed | BrokerError]


async def commit_elsewhere(
    context: Context, group: bytes, commits: Sequence[tuple[int, Commit]]
) -> list[BrokerError | None]:
    """Make commits at the nodes that own their topics; return the results, in order."""
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
    context: Context, group: bytes, wanted: Sequence[tuple[int, Place]], deadline: float
) -> Found:
    """Positions from the nodes that own the topics, or errors: NotOwner where a node does not
    answer before the deadline.
    """
    found: Found = {}
    asker = _asker(context)

    async def at(node: int, numbers: Sequence[int]) -> None:
        chosen = [wanted[number][1] for number in numbers]
        late = NotOwner(f"broker {node} does not answer in time", 0)
        found.update(dict.fromkeys(chosen, late))
        with trio.move_on_at(deadline):
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
    """Every partition of other brokers where the group has a position. Raises NotOwner if
    one of them does not answer.
    """
    found: list[Place] = []
    asker, namespace = _asker(context), _namespace(context)
    broker = context.broker
    for owner in broker.placement.others():
        found += await broker.siblings.positions(owner.node_id, asker, group, namespace)
    return found


async def end_elsewhere(context: Context, group: bytes) -> bool:
    """Delete what the group has at other brokers; whether there was any. Raises BrokerError, and
    Unanswered instead of NotOwner if a part was deleted already.
    """
    found = False
    asker, namespace = _asker(context), _namespace(context)
    broker = context.broker
    for owner in broker.placement.others():
        try:
            found |= await broker.siblings.end_group(owner.node_id, asker, group, namespace)
        except NotOwner as error:
            if found:
                raise Unanswered(str(error)) from error
            raise
    return found


def _namespace(context: Context) -> tuple[str, str]:
    """The listener's: a group of the same name in another namespace is a different group."""
    return context.names.tenant, context.names.namespace


def _asker(context: Context) -> Asker:
    return Asker(context.connection.principal, context.connection.at)


def _by_node(nodes: Sequence[int]) -> dict[int, list[int]]:
    """The indexes of `nodes` by node. What nobody owns is under node 0, which no broker has as its
    number.
    """
    found: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        found.setdefault(node, []).append(number)
    return found
