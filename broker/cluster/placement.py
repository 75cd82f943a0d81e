"""Which broker owns a topic, and where that one is reached. There is one broker: all are here.

Knows no partition and no protocol; each adapter tells its own clients where to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.errors import OwnedElsewhere

if TYPE_CHECKING:
    from storage.metadata.names import TopicName

NODE_ID: Final = 1


@dataclass(frozen=True, slots=True)
class Owner:
    """The broker that owns a topic, and by protocol where its clients are told to connect."""

    node_id: int
    addresses: dict[str, tuple[str, int]]  # Protocol -> host and port.


class Placement:
    """Answers where a topic is."""

    def __init__(self, node_id: int = NODE_ID) -> None:
        """`node_id` is this broker's number (Kafka's node id)."""
        self.node_id = node_id

    def owner(self, name: TopicName) -> Owner | None:
        """The other broker that owns a topic, also one still to be made; None: this one does."""
        return None

    def is_here(self, name: TopicName) -> bool:
        """Whether this broker owns the topic."""
        return self.owner(name) is None

    def check(self, name: TopicName) -> None:
        """Raises OwnedElsewhere for a topic of another broker, before anything is changed."""
        owner = self.owner(name)
        if owner is not None:
            raise OwnedElsewhere(f"{name} is owned by broker {owner.node_id}", owner.node_id)
