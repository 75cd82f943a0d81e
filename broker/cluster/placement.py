"""The owner of a topic, and the owner's addresses for clients.

Knows no partition and no protocol; each adapter redirects its own clients. A broker without a
cluster owns everything (`Placement`); in a cluster the ledger names the owners
(`ClusterPlacement`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from braidlog.broker.errors import NotOwner

if TYPE_CHECKING:
    from braidlog.storage.metadata.names import TopicName

NODE_ID: Final = 1
CATALOGUE_SHARD: Final = 0
# Pause between attempts at an owner that was unreachable or no longer the owner: this broker may
# learn of a new owner a moment before that broker serves the shard.
RETRY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Owner:
    """A broker: advertised address per listener, and session."""

    node_id: int
    addresses: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    session: int = 0


NOBODY: Final = Owner(0)  # No owner, or an unknown owner.


class Placement:
    """Locations of topics without a cluster: all are here."""

    is_alone = True  # No other broker can ever own a topic.

    def __init__(self, node_id: int = NODE_ID) -> None:
        """`node_id` is this broker's number (Kafka's node id)."""
        self.node_id = node_id
        self.changed = trio.Event()  # Set, and replaced, at each change of owners.

    def wake(self) -> None:
        """Wake the tasks that wait for an owner."""
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    def owner(self, name: TopicName) -> Owner | None:
        """Return the other broker that owns a topic, even before creation; None: this broker."""
        return None

    def epoch(self, name: TopicName) -> int:
        """Return the number of a topic's present ownership: it rises with each new owner, and is 0
        without a cluster.
        """
        return 0

    def owner_of_name(self, name: bytes) -> Owner | None:
        """Return the other broker that owns a name without a topic (a group's members); None: this
        broker.
        """
        return None

    def keeps(self, name: TopicName) -> bool:
        """Return whether this broker stores the records of a topic, even if clients cannot use it
        yet.
        """
        return True

    def catalogue_owner(self) -> Owner | None:
        """Return the other broker that changes topics, namespaces and users; None: this broker."""
        return None

    def others(self) -> list[Owner]:
        """Return the other brokers that serve clients."""
        return []

    def shard_owners(self) -> Mapping[int, Owner | None]:
        """Return the owner of each shard of the cluster; None: this broker."""
        return {}

    def is_over(self, session: int) -> bool:
        """Return whether a session is known to have ended; False for sessions newer than the last
        view.
        """
        return False

    async def look(self) -> None:
        """Read the owners of all topics now: each later owner follows the catalogue later than
        this call. Raises NotOwner.
        """

    def is_here(self, name: TopicName) -> bool:
        """Return whether this broker owns the topic."""
        return self.owner(name) is None

    def check_catalogue(self) -> None:
        """Raise NotOwner if another broker changes topics, namespaces and users."""
        owner = self.catalogue_owner()
        if owner is not None:
            raise elsewhere("the catalogue", owner)

    def check(self, name: TopicName) -> None:
        """Raise NotOwner for a topic of another broker, before anything is changed."""
        owner = self.owner(name)
        if owner is not None:
            raise elsewhere(str(name), owner)


class ClusterPlacement(Placement):
    """Locations of topics from the latest `show` of the ledger. `held` are this broker's own
    shards.
    """

    is_alone = False

    def __init__(
        self, node_id: int, shard_of: Callable[[str], int], keeps: Callable[[int], bool]
    ) -> None:
        """`shard_of` gives the shard of a full name; `keeps` is true for a shard with its records
        here.
        """
        super().__init__(node_id)
        self.held: set[int] = set()
        self._shard_of = shard_of
        self._keeps = keeps
        self._owners: Mapping[int, Owner] = {}
        self._others: list[Owner] = []
        self._shards: list[int] = []
        self._epochs: dict[int, int] = {}  # Newest known epoch of each shard.
        self._live: frozenset[int] = frozenset()
        self._newest = 0
        self._look: Callable[[], Awaitable[None]] | None = None  # Set in a member of the cluster.

    def on_look(self, look: Callable[[], Awaitable[None]]) -> None:
        """Have `look` read the owners of all shards and call `show`."""
        self._look = look

    async def look(self) -> None:
        if self._look is None:
            raise NotOwner("this broker is not a member of the cluster yet", 0)
        await self._look()

    def show(
        self,
        owners: Mapping[int, Owner],
        others: list[Owner],
        epochs: Mapping[int, int] | None = None,
    ) -> None:
        """Update the owners of shards, the other brokers, and the epochs of all shards."""
        self._shards = sorted(epochs or ())
        for shard, epoch in (epochs or {}).items():
            self._note_epoch(shard, epoch)
        is_news = (owners, others) != (self._owners, self._others)
        self._owners, self._others = owners, others
        if is_news:
            self.wake()

    def hold(self, shard: int, epoch: int = 0) -> None:
        """Serve a shard from now on, in this epoch."""
        self._note_epoch(shard, epoch)
        self.held.add(shard)
        self.wake()

    def _note_epoch(self, shard: int, epoch: int) -> None:
        # A view that was read before this broker took the shard has the former epoch.
        self._epochs[shard] = max(epoch, self._epochs.get(shard, 0))

    def let_go(self, shard: int) -> None:
        """Stop serving a shard."""
        self.held.discard(shard)
        self.wake()

    def show_sessions(self, live: frozenset[int], newest: int) -> None:
        """Update the live sessions, and the highest session number so far."""
        self._live, self._newest = live, newest

    def is_over(self, session: int) -> bool:
        return session <= self._newest and session not in self._live

    def owner(self, name: TopicName) -> Owner | None:
        """As `Placement.owner`; NOBODY if no broker has the topic's shard now."""
        return self._owner_of(self._shard_of(name.full))

    def epoch(self, name: TopicName) -> int:
        return self._epochs.get(self._shard_of(name.full), 0)

    def owner_of_name(self, name: bytes) -> Owner | None:
        return self._owner_of(self._shard_of(name.decode("utf-8", "replace")))

    def keeps(self, name: TopicName) -> bool:
        return self._keeps(self._shard_of(name.full))

    def catalogue_owner(self) -> Owner | None:
        return self._owner_of(CATALOGUE_SHARD)

    def others(self) -> list[Owner]:
        return self._others

    def shard_owners(self) -> Mapping[int, Owner | None]:
        """As `Placement.shard_owners`; NOBODY for a shard that no broker has now."""
        return {shard: self._owner_of(shard) for shard in self._shards}

    def _owner_of(self, shard: int) -> Owner | None:
        if shard in self.held:
            return None
        session = self._owners.get(shard, NOBODY)
        return NOBODY if session.node_id == self.node_id else session


class Tries:
    """The tries of a request until a broker owns the topic or the catalogue."""

    def __init__(self, placement: Placement, seconds: float) -> None:
        """Created before the first try, so that no change of owners is missed; `seconds` limits the
        time of all tries.
        """
        self._placement = placement
        self._changed = placement.changed
        self.deadline = trio.current_time() + seconds

    async def again(self, error: NotOwner) -> bool:
        """Wait after a try that raised `error`, until another try may succeed: for news of owners,
        at most for `RETRY_S` if a broker was asked. Return False once the time is over.
        """
        now = trio.current_time()
        if now >= self.deadline:
            return False
        due = self.deadline if error.is_unowned else min(self.deadline, now + RETRY_S)
        with trio.move_on_at(due):
            await self._changed.wait()
        self._changed = self._placement.changed
        return True


def elsewhere(subject: str, owner: Owner) -> NotOwner:
    """Return the error for a subject that another broker owns."""
    if owner is NOBODY:
        return NotOwner(f"no broker owns {subject} now", is_unowned=True)
    return NotOwner(f"{subject} is owned by broker {owner.node_id}", owner.node_id)
