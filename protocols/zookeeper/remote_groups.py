"""Groups and positions on topics of other brokers, as these brokers last returned them.

The tree reads this state without a wait. `refresh` asks the other brokers before a request that
depends on the state. Without a cluster nothing is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker.cluster.placement import NOBODY, elsewhere
from braidlog.broker.errors import NotOwner
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

# Time for brokers to answer. The owner of a topic may have ended: clients repeat a request that
# failed.
ASK_S: Final = 3.0
GROUPS_MAX: Final = 10_000  # Groups whose positions elsewhere are remembered: some MB.


class RemoteGroups:
    """The groups of topics that other brokers own."""

    def __init__(self, broker: Broker, namespace: tuple[str, str]) -> None:
        self._broker = broker
        self._namespace = namespace
        self._names: Mapping[str, Sequence[bytes]] = {}
        # By group, by full name of a topic, by partition.
        self._positions: dict[bytes, dict[str, Mapping[int, int]]] = {}

    def names(self, topic: TopicName) -> Sequence[bytes]:
        """Return the subscriptions of another broker's topic."""
        return self._names.get(topic.full, ())

    def positions(self, topic: TopicName, group: bytes) -> Mapping[int, int] | None:
        """Return a group's positions on another broker's topic; None without a subscription."""
        return self._positions.get(group, {}).get(topic.full)

    async def refresh_names(self) -> None:
        """Ask for the names of all groups. Raises NotOwner."""

        async def ask() -> None:
            counts = self._topic_counts()
            self._names = await self._broker.peers.groups(self._namespace, counts)

        await self._until_answered(ask)

    async def refresh(self, group: bytes, topic: str | None = None) -> None:
        """Ask for a group's positions on a topic, or on all topics. Raises NotOwner."""

        async def ask() -> None:
            peers, namespace = self._broker.peers, self._namespace
            if topic is None:
                counts = self._topic_counts()
                positions = dict(await peers.group_positions(group, namespace, counts))
            else:
                name = TopicName(*namespace, topic)
                owner = self._broker.placement.owner(name)
                if owner is None or self._broker.topics.find(name) is None:
                    return
                known = self._positions.get(group, {})
                own = await peers.topic_positions(owner.node_id, group, name)
                positions = {full: known[full] for full in known if full != name.full}
                positions |= {} if own is None else {name.full: own}
            self._store(group, positions)

        await self._until_answered(ask)

    async def _until_answered(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Repeat `ask` until all owners answer. Raises NotOwner."""
        if self._broker.placement.is_alone:
            return
        tries = self._broker.peers.tries(ASK_S)
        while True:
            try:
                await ask()
                return
            except NotOwner as error:
                if not await tries.again(error):
                    raise

    def _topic_counts(self) -> dict[int, int]:
        """Return how many topics of the namespace each other broker owns. Raises NotOwner."""
        counts: dict[int, int] = {}
        for topic in self._broker.topics.list(*self._namespace):
            owner = self._broker.placement.owner(topic.name)
            if owner is NOBODY:
                raise elsewhere(str(topic.name), owner)
            if owner is not None:
                counts[owner.node_id] = counts.get(owner.node_id, 0) + 1
        return counts

    def _store(self, group: bytes, positions: dict[str, Mapping[int, int]]) -> None:
        if group not in self._positions and len(self._positions) >= GROUPS_MAX:
            del self._positions[next(iter(self._positions))]
        self._positions[group] = positions
