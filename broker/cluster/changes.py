"""Makes changes of the catalogue in a cluster: here if this broker owns the catalogue, else at the
owner.

Requests carry the wanted state and the place in the catalogue that the change is based on, never a
step. Knows no socket: `Ask` carries a request to the owner (`broker/cluster/cluster_peers.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from braidlog.broker.errors import Conflict, NotOwner, Unanswered
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.topics.namespaces import Namespaces
    from braidlog.broker.topics.topics import Topics
    from braidlog.storage.metadata.catalogue_records import Setting
    from braidlog.storage.shared.catalogue import Named, SharedCatalogue, Subject

# For a change that lost to another change: each time this broker has followed that change first.
TRIES: Final = 4

# Changes of a topic that exists: after a deletion its owner must store no further record.
ALTERING: Final = frozenset(
    {"add_partitions", "keep_partitions", "alter_settings", "terminate", "delete"}
)

Change = Callable[..., Awaitable[int]]  # Returns a ticket.


class Ask(Protocol):
    """Has the owner of the catalogue make a change; returns once the change is published and
    followed here, with the result of `Spread`. Raises the owner's broker error; NotOwner if nobody
    owns the catalogue now; Unanswered.
    """

    async def __call__(self, change: str, *arguments: object) -> bool:
        """`change` is a name that `LocalChanges` knows; arguments are values of msgpack, the first
        is the place in the catalogue that the change is based on.
        """


class Spread(Protocol):
    """Returns once the change with that ticket is published, and the other brokers that answer have
    followed the change: a client that goes on at another broker finds the change there. The owner
    of `altered`, a topic, has more time to follow: clients ask the owner for the result. Returns
    False if the owner may not have followed then.
    """

    async def __call__(self, ticket: int, altered: TopicName | None) -> bool: ...


class LocalChanges:
    """Changes of the local registries, by the names and arguments that other brokers send."""

    def __init__(
        self,
        topics: Topics,
        namespaces: Namespaces,
        is_deletion_followed: Callable[[TopicName], Awaitable[bool]],
    ) -> None:
        """`is_deletion_followed` waits until the owner of a topic that is to be created knows the
        last deletion of a topic of that name; False after a limit.
        """
        self._topics = topics
        self._is_deletion_followed = is_deletion_followed
        self.of_topics: Mapping[str, Change] = {
            "create": self._create,
            "add_partitions": topics.add_partitions,
            "keep_partitions": topics.keep_partitions,
            "alter_settings": topics.alter_settings,
            "terminate": topics.terminate,
            "delete": lambda name, holds_name: topics.delete(name, holds_name=holds_name),
        }
        self.others: Mapping[str, Change] = {
            "alter_namespace": topics.alter_namespace,
            "create_namespace": lambda tenant, namespace, iggy_id: namespaces.create(
                tenant, namespace, iggy_id=iggy_id
            ),
            "renumber_namespace": namespaces.renumber,
            "delete_namespace": namespaces.delete,
            "create_tenant": namespaces.create_tenant,
            "alter_tenant": namespaces.alter_tenant,
            "delete_tenant": namespaces.delete_tenant,
            "create_cluster": namespaces.clusters.create,
            "alter_cluster": namespaces.clusters.alter,
            "delete_cluster": namespaces.clusters.delete,
        }

    async def __call__(self, change: str, arguments: Sequence[Any]) -> int:
        """Make a change; return the ticket that publishes it.

        Raises broker errors; LookupError, TypeError, ValueError for a call that no broker makes.
        """
        if change in self.others:
            return await self.others[change](*arguments)
        named, *rest = arguments
        return await self.of_topics[change](TopicName(*named), *rest)

    async def prepare(self, change: str, arguments: Sequence[Any]) -> None:
        """Wait until a change may be made. Raises NotOwner for a topic whose owner may still store
        records of a deleted topic of that name: nobody would find them.
        """
        if change != "create":
            return
        name = TopicName(*arguments[0])
        if not await self._is_deletion_followed(name):
            text = f"the owner of {name} does not know yet that a topic of that name was deleted"
            raise NotOwner(text)

    def altered(self, change: str, arguments: Sequence[Any]) -> TopicName | None:
        """Return the topic that a change alters or deletes; None for other changes. An owner that
        does not know a new topic follows the catalogue when a client asks for the topic.
        """
        return TopicName(*arguments[0]) if change in ALTERING else None

    def check_unchanged(
        self, shared: SharedCatalogue, change: str, arguments: Sequence[Any], based_on: int
    ) -> None:
        """Check that the subject of a change was not changed after that place in the catalogue: the
        request may be late, or come from a broker that is behind. Raises Conflict.

        The subject of a creation must not have been deleted after that place either, nor the
        namespace of a topic: a late request would create again what was created and deleted since.
        """
        if change.startswith("create"):
            names = _names_of_creation(change, arguments)
            if any(shared.last_deletion(name) > based_on for name in names):
                raise Conflict("the catalogue was changed meanwhile")
            return
        subject: Subject
        if change in self.of_topics:
            meta = shared.catalogue.topic(TopicName(*arguments[0]))
            if meta is None:
                return
            subject = meta.topic_id
        else:
            subject = _named_subject(change, arguments)
        if shared.last_change(subject) > based_on:
            raise Conflict("the catalogue was changed meanwhile")

    async def _create(
        self,
        name: TopicName,
        partitions: int,
        partitioned: bool | None,
        settings: Mapping[str, Setting],
        iggy_id: int | None,
    ) -> int:
        topic = await self._topics.create(
            name, partitions, partitioned=partitioned, settings=settings, iggy_id=iggy_id
        )
        return topic.ticket


def _names_of_creation(change: str, arguments: Sequence[Any]) -> Sequence[Named]:
    """Return what a creation is about, by name, and what that lies in."""
    if change == "create":
        name = TopicName(*arguments[0])
        return name, (name.tenant, name.namespace)
    return (_named_subject(change, arguments),)


def _named_subject(change: str, arguments: Sequence[Any]) -> tuple[str, str] | str | tuple[str]:
    """Return the tenant, cluster or namespace of a change."""
    name, *rest = arguments
    if change.endswith("tenant"):
        return str(name)
    return (name,) if change.endswith("cluster") else (name, rest[0])


def _nothing() -> None:
    pass


def _check_followed(topic: TopicName | None, *, is_followed: bool) -> None:
    """Raise Unanswered if the owner of a changed topic may not have followed the change."""
    if not is_followed:
        raise Unanswered(
            f"the change of {topic} is made, but its owner has not followed it in time"
        )


class CatalogueChanges:
    """Decides for each change which broker makes it."""

    def __init__(
        self,
        local: LocalChanges,
        is_owner: Callable[[], bool],
        spread: Spread,
        *,
        ask: Ask,
        follow: Callable[[], Awaitable[None]],
        place: Callable[[], int],
    ) -> None:
        """`is_owner`: this broker changes the catalogue. `follow` follows the catalogue as far as
        its owner has come, and raises NotOwner if the owner does not answer; `place` is the place
        that was followed.
        """
        self._local = local
        self._is_owner = is_owner
        self._spread = spread
        self._ask = ask
        self._follow = follow
        self._place = place

    async def make(
        self,
        change: str,
        *arguments: object,
        is_made: Callable[[], bool],
        check: Callable[[], None] = _nothing,
    ) -> int:
        """Make a change, once at most; return its ticket, 0 for a change that the owner has
        published.

        The owner refuses a change that is based on an older place than the last change of the same
        topic or namespace: this broker has followed that change when it asks again. `check` is
        called before each request and may raise. If an answer is lost, `is_made` says whether the
        catalogue has the change. Raises what the change and `check` raise; NotOwner; Unanswered if
        the change may still be made, or the owner of a changed topic may not have followed: it may
        store records of a deleted topic, which are lost.
        """
        altered = self._local.altered(change, arguments)
        if self._is_owner():
            await self._local.prepare(change, arguments)
            check()
            ticket = await self._local(change, arguments)
            _check_followed(altered, is_followed=await self._spread(ticket, altered))
            return ticket
        is_followed = True
        for tries_left in reversed(range(TRIES)):
            check()
            try:
                is_followed = await self._ask(change, self._place(), *arguments)
                break
            except Conflict:
                if not tries_left:
                    raise
            except Unanswered:
                if not await self._is_in_the_catalogue(is_made):
                    raise
                is_followed = await self._spread(0, altered)
                break
        _check_followed(altered, is_followed=is_followed)
        return 0

    async def _is_in_the_catalogue(self, is_made: Callable[[], bool]) -> bool:
        try:
            await self._follow()
        except NotOwner:
            return False  # The outcome is unknown.
        return is_made()
