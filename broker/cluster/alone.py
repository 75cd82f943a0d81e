"""The implementation of `Peers` for a broker without a cluster: there is no other broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from braidlog.broker.cluster.placement import Placement, Tries
from braidlog.broker.errors import NotOwner

if TYPE_CHECKING:
    import trio

    from braidlog.broker.cluster.peers import Asker, Commit, Committed, Place, Standing, StoredSizes
    from braidlog.broker.errors import BrokerError
    from braidlog.storage.metadata.catalogue_records import SchemaMeta
    from braidlog.storage.metadata.names import TopicName


class Alone:
    """No other brokers. A question to a node raises NotOwner; a question to all has no answers."""

    is_alone = True

    def tries(self, seconds: float) -> Tries:
        """As `Peers.tries`: no owner will come, so there is no second try."""
        return Tries(Placement(), 0.0)

    async def commit(
        self, asker: Asker, group: bytes, commits: Sequence[tuple[int, Commit]]
    ) -> Sequence[BrokerError | None]:
        return [_alone() for _ in commits]

    async def committed(
        self, asker: Asker, group: bytes, wanted: Sequence[tuple[int, Place]], deadline: float
    ) -> Mapping[Place, Committed | BrokerError]:
        return {place: _alone() for _, place in wanted}

    async def positions(
        self, asker: Asker, group: bytes, namespace: tuple[str, str]
    ) -> Sequence[Place]:
        return []

    async def groups(
        self, namespace: tuple[str, str], counts: Mapping[int, int]
    ) -> Mapping[str, Sequence[bytes]]:
        return {}

    async def group_positions(
        self, group: bytes, namespace: tuple[str, str], counts: Mapping[int, int]
    ) -> Mapping[str, Mapping[int, int]]:
        return {}

    async def topic_positions(
        self, node: int, group: bytes, topic: TopicName
    ) -> Mapping[int, int] | None:
        raise _alone()

    async def commit_forward(self, node: int, asker: Asker, group: bytes, commit: Commit) -> bool:
        raise _alone()

    async def end_position(
        self, node: int, asker: Asker, group: bytes, place: Place, protocol: str
    ) -> None:
        raise _alone()

    async def seek(self, node: int, asker: Asker, group: bytes, place: Place, offset: int) -> None:
        raise _alone()

    async def standing(self, node: int, asker: Asker, group: bytes, place: Place) -> Standing:
        raise _alone()

    async def end_group(self, asker: Asker, group: bytes, namespace: tuple[str, str]) -> bool:
        return False

    async def schema(
        self,
        node: int,
        asker: Asker,
        topic: TopicName,
        *,
        version: int | None,
        non_persistent: bool,
    ) -> tuple[int, SchemaMeta] | None:
        raise _alone()

    async def purge(self, node: int, asker: Asker, topic: str) -> None:
        raise _alone()

    async def stored_sizes(self) -> Mapping[str, StoredSizes]:
        return {}

    async def non_persistent(self, namespace: tuple[str, str]) -> Mapping[str, TopicName]:
        return {}

    async def follow(self) -> None:
        """As `Peers.follow`."""

    async def forward(self, node: int, listener: str) -> trio.SocketStream:
        raise _alone()


def _alone() -> NotOwner:
    return NotOwner("there is no other broker", 0)
