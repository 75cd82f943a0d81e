"""The implementation of `Peers` for a broker without a cluster: there is no other broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidlog.broker.cluster.peers import Asker, Peers, Result
from braidlog.broker.cluster.placement import Placement, Tries
from braidlog.broker.errors import NotOwner

if TYPE_CHECKING:
    import trio


class Alone(Peers):
    """No other brokers. A question to a node raises NotOwner; a question to all has no answers."""

    is_alone = True

    def nodes(self) -> Sequence[int]:
        return []

    async def ask(self, node: int, asker: Asker, name: str, *arguments: object) -> Result:
        raise NotOwner("there is no other broker", 0)

    async def ask_all(self, name: str, *arguments: object, seconds: float) -> Sequence[Result]:
        return []

    async def follow(self) -> None:
        """As `Peers.follow`."""

    async def forward(self, node: int, listener: str) -> trio.SocketStream:
        raise NotOwner("there is no other broker", 0)

    def tries(self, seconds: float) -> Tries:
        """As `Peers.tries`: no owner will come, so there is no second try."""
        return Tries(Placement(), 0.0)
