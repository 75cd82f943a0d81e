"""What one broker asks of another on behalf of a client. A single broker has nobody to ask.

Knows no socket: `calls.py` carries it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braidlog.broker.errors import NotOwner

if TYPE_CHECKING:
    import trio

    from braidlog.broker.access.rights import Principal
    from braidlog.broker.errors import BrokerError
    from braidlog.storage.metadata.catalogue_records import SchemaMeta
    from braidlog.storage.metadata.names import TopicName

# Topic's full name, partition, offset, metadata, time in microseconds.
Commit = tuple[str, int, int, bytes | None, int]
# Topic's full name, and partition.
Place = tuple[str, int]
# Messages, bytes and segments of a topic.
Kept = tuple[int, int, int]
# Offset and metadata as they were given; None: never set.
Committed = tuple[int, bytes | None] | None


@dataclass(slots=True, frozen=True)
class Asker:
    """The client for which a broker asks; the other broker checks its rights once more."""

    principal: Principal
    at: str  # Where the client is, for the audit log.


class Siblings:
    """Other brokers; here there are none."""

    is_alone = True  # Whether every topic is here, always.

    async def commit(
        self, node: int, asker: Asker, group: bytes, commits: Sequence[Commit]
    ) -> list[BrokerError | None]:
        """Commit positions of topics that another broker owns; returns the error of each, if any,
        once they are published. Raises NotOwner, Unanswered.
        """
        raise _alone()

    async def committed(
        self, node: int, asker: Asker, group: bytes, wanted: Sequence[Place]
    ) -> list[tuple[str, int, Committed | BrokerError]]:
        """Positions of a group on topics that another broker owns, or the error of each, such as
        TopicNotFound, or NotOwner if the topic has moved. Raises NotOwner if that broker does not
        answer.
        """
        raise _alone()

    async def positions(
        self, node: int, asker: Asker, group: bytes, namespace: tuple[str, str]
    ) -> list[Place]:
        """Where a group has positions on a namespace's topics that another broker owns. Raises
        NotOwner where that broker does not answer.
        """
        raise _alone()

    async def end_group(
        self, node: int, asker: Asker, group: bytes, namespace: tuple[str, str]
    ) -> bool:
        """Delete a group's subscriptions to a namespace's topics that another broker owns; returns
        whether it had any, once that is published. Raises NotOwner, Unanswered, NotAuthorized.
        """
        raise _alone()

    async def relay(self, node: int, listener: str) -> trio.SocketStream:
        """A connection to the listener of that name of another broker. Raises NotOwner."""
        raise _alone()

    async def schema(
        self, node: int, asker: Asker, topic: TopicName, *, version: int | None, live: bool
    ) -> tuple[int, SchemaMeta] | None:
        """A schema of a topic that another broker owns, with its version: of that version, or the
        latest; None if there is none. `live`: of the non-persistent topic of that name. Raises
        NotOwner where that broker does not answer, NotAuthorized.
        """
        raise _alone()

    async def purge(self, node: int, asker: Asker, topic: str) -> None:
        """Drop all records of a topic, by its full name, that another broker owns; done once that
        is published. Raises NotOwner, Unanswered, NotAuthorized.
        """
        raise _alone()

    async def kept(self) -> Mapping[str, Kept]:
        """What the topics of other brokers hold, by their full names; without those of a broker
        that does not answer soon. For figures in lists: what a client may see is not checked.
        """
        return {}

    async def live(self, namespace: tuple[str, str]) -> Mapping[str, TopicName]:
        """A namespace's non-persistent topics that other brokers have in use, by their full names,
        partitions one by one; none of a broker that does not answer soon. What a client may see is
        not checked.
        """
        return {}

    async def follow(self) -> None:
        """Follow the catalogue as far as its owner has come now: other brokers may have told
        clients already of changes that are not known here. Raises NotOwner if the owner does
        not answer.
        """


def _alone() -> NotOwner:
    return NotOwner("there is no other broker", 0)


def named_error(error: BrokerError) -> list[Any]:
    """A broker error as it is sent."""
    return [type(error).__name__, str(error)]
