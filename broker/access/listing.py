"""Leaves out of a list the items that the principal may not see. Knows no protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from braidlog.broker.access.rights import Action, Principal, Resource
from braidlog.broker.runtime.turns import in_turns

if TYPE_CHECKING:
    from braidlog.broker.access.access import Access

LOOKED_AT: Final = 500  # Items between two checkpoints: some 5 us each if the rules are asked.

T = TypeVar("T")


def sees_all(access: Access, principal: Principal, namespace: tuple[str, str]) -> bool:
    """Return True if the principal may see a namespace, and so everything in it."""
    return access.allows(principal, Action.DESCRIBE, Resource.of_namespace(*namespace))


async def seen(
    access: Access,
    principal: Principal,
    namespace: tuple[str, str],
    items: Sequence[T],
    resource_of: Callable[[T], Resource],
) -> Sequence[T]:
    """Return the items of a namespace that the principal may see; runs in pieces."""
    if sees_all(access, principal, namespace):
        return items
    return [
        item
        async for item in in_turns(items, LOOKED_AT)
        if access.allows(principal, Action.DESCRIBE, resource_of(item))
    ]
