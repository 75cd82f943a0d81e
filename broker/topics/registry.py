"""The interface of the topic registry: finds topics in memory, and changes them.

Implementations: `Topics` (`topics.py`, the local catalogue) and `ClusterTopics`
(`cluster_topics.py`). A cluster registry holds a local registry and decides for each change: the
owner of the catalogue makes the change in the local registry, any other broker asks the owner.
`Namespaces` and `ClusterNamespaces` do the same for namespaces and tenants.

Guarantees:

* Finding answers from memory and never waits. A registry finds all topics of the cluster. A
  partition of another broker's topic raises `NotOwner`.
* A change is awaited, and may lose to another change of the same topic: `Conflict`, with nothing
  changed. A change that fails leaves nothing behind; nobody sees half a topic.
* A change is in memory when the call returns, listeners have heard of it, and further partitions
  have their folders on disk. The change is durable once the returned ticket is. With ticket 0 the
  change is durable already, as another broker has published it.
* In a cluster, the topic's owner has followed the change when the call returns, within ten seconds,
  and so have all other brokers that answer, within a second. The call may also raise `NotOwner`
  (nothing was done: ask again) and `Unanswered` (the change may have been made).
* All changes may raise `StorageFull` (nothing changed) and `StorageFailed` (the broker stops).
* A caller that is cancelled leaves either no change or the whole change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from braidlog.broker.config.topics import TopicsConfig
from braidlog.broker.topics.topic_setting import NO_LIMIT

if TYPE_CHECKING:
    import trio

    from braidlog.broker.topics.deletion import Leaving
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic, TopicListener
    from braidlog.storage.metadata.catalogue_records import ClusterFields, NamespaceMeta, Setting
    from braidlog.storage.metadata.names import TopicName


@dataclass(slots=True, frozen=True)
class TopicDefaults:
    """Defaults for topics, from the configuration."""

    auto_create: bool = True
    num_partitions: int = 1
    deduplication: bool = False
    # Settings of topics: namespaces and topics may override them.
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @classmethod
    def of(cls, config: TopicsConfig) -> TopicDefaults:
        """Return the defaults by the configuration; a limit of `none` is stored as NO_LIMIT."""
        usual, named = TopicsConfig(), {"auto_create", "num_partitions", "deduplication"}
        settings: dict[str, Setting] = {}
        for name, value in msgspec.structs.asdict(config).items():
            if name not in named and value != getattr(usual, name):
                settings[name] = NO_LIMIT if value is None else value
        return cls(config.auto_create, config.num_partitions, config.deduplication, settings)


class TopicRegistry(Protocol):
    """All topics, as the services and adapters of a broker use them."""

    listeners: set[TopicListener]
    """Called for each change of a topic, within the change."""

    @property
    def defaults(self) -> TopicDefaults:
        """Defaults for topics that set nothing else."""

    def inherited(self, tenant: str, namespace: str) -> Mapping[str, Setting]:
        """Return the settings for a namespace's topics without their own: the namespace's, else the
        broker's.
        """

    @property
    def altering(self) -> trio.Lock:
        """Held while settings or names change."""

    @property
    def leaving(self) -> Leaving:
        """Deleted topics whose deletion is not durable yet."""

    # Finding: from memory.

    def __len__(self) -> int: ...

    def find(self, name: TopicName, /) -> Topic | None:
        """Return the topic of that name, if there is one."""

    def get(self, name: TopicName, /) -> Topic:
        """Return the topic of that name. Raises TopicNotFound."""

    def find_numbered(self, tenant: str, namespace: str, number: int, /) -> Topic | None:
        """Return the topic of a namespace that Iggy's clients know by this number."""

    def number(self, topic: Topic, /) -> int:
        """Return Iggy's number for a topic: chosen by an Iggy client, else by the catalogue."""

    def find_by_id(self, topic_id: int, /) -> Topic | None:
        """Return the topic with the catalogue's own number, if the topic still exists."""

    def partition(self, name: TopicName, index: int, /) -> Partition:
        """Return a partition by its number, from 0.

        Raises TopicNotFound, PartitionNotFound, NotOwner.
        """

    def list(self, tenant: str, namespace: str, /) -> Sequence[Topic]:
        """Return the topics of a namespace, by name."""

    def all(self) -> Sequence[Topic]:
        """Return every topic, in the order of creation."""

    def resolve_pulsar(self, text: str, /) -> tuple[TopicName, int | None]:
        """Read a Pulsar name: the topic, and N if the name ends in `-partition-N`.

        No topic can have such a name, so the name always means a partition. Raises InvalidName.
        """

    def pulsar_partition(self, name: TopicName, index: int | None, /) -> Partition:
        """Return the partition that a Pulsar producer or consumer means by the result of
        `resolve_pulsar`.

        `x` and `x-partition-0` are the one partition of an unpartitioned topic. Raises
        TopicNotFound, PartitionNotFound, NotOwner, and InvalidRequest for a partitioned topic
        without a number, which Apache Pulsar refuses too.
        """

    def is_deduplicated(self, topic: Topic, /) -> bool:
        """Return whether a message that a Pulsar producer sends again is not stored again."""

    # Checks of planned changes, as far as this broker knows.

    def check_new(self, name: TopicName, partitions: int, iggy_id: int | None = None, /) -> None:
        """Check that `create` may make this topic. Raises as `create`, without Conflict."""

    def check_growth(self, name: TopicName, total: int, /) -> None:
        """Check that `add_partitions` may make this change. Raises as `add_partitions`, without
        Conflict.
        """

    # Changing: awaited.

    async def create(
        self,
        name: TopicName,
        partitions: int,
        *,
        partitioned: bool | None = None,
        settings: Mapping[str, Setting] | None = None,
        iggy_id: int | None = None,
    ) -> Topic:
        """Create a topic; several partitions, or `partitioned`, make the topic partitioned. The
        topic is durable with `topic.ticket`.

        Raises InvalidName, InvalidRequest, NamespaceNotFound, TopicExists, LimitExceeded, Conflict.
        """

    async def auto_create(self, name: TopicName, /) -> Topic:
        """Return the topic of that name. A missing topic is created with the defaults if the
        configuration allows that; concurrent callers share the creation.

        Raises TopicNotFound and the errors of `create`.
        """

    async def add_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        """Grow a topic to `total` partitions; return the ticket. `seen` is the number of partitions
        on which the caller bases the total.

        Every subscription gets a cursor at 0 on the new partitions. Raises TopicNotFound,
        InvalidRequest, TopicInUse, TopicTerminated, LimitExceeded; Conflict if the topic was
        changed meanwhile, or has another number of partitions than `seen`.
        """

    async def keep_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        """Remove the partitions with the highest numbers, with their records and cursors, so that
        `total` are left; return the ticket, 0 if the topic has no more than that. `seen` as in
        `add_partitions`.

        Raises TopicNotFound, TopicInUse, Conflict.
        """

    async def alter_settings(self, name: TopicName, changes: Mapping[str, Setting | None]) -> int:
        """Change some settings of a topic, all or none; None unsets a setting. Return the ticket.

        The partitions follow before this returns, with a turn for other tasks after each: a change
        of durability waits for the disk in each. Raises TopicNotFound, InvalidRequest, Conflict.
        """

    async def alter_namespace(
        self, tenant: str, namespace: str, changes: Mapping[str, Setting | None]
    ) -> int:
        """Change settings of a namespace, which its topics have unless they set their own; None
        unsets a setting. Return the ticket. The topics follow before this returns.

        Raises NamespaceNotFound, Conflict.
        """

    async def terminate(self, name: TopicName) -> int:
        """Terminate a topic: clients can read its records, and append no more. Return the ticket.

        Raises TopicNotFound, Conflict.
        """

    async def delete(self, name: TopicName, *, holds_name: bool = False) -> int:
        """Delete a topic with its subscriptions; return the ticket. With `holds_name` clients that
        use the topic do not create it again by that: for a minute only `create` does.

        Cursors and files go once the deletion is durable (`leaving`). A topic that is marked for
        its deletion (`unused_topics.py`) is deleted only while the mark stays. Raises
        TopicNotFound, Conflict.
        """


class ClusterRegistry(Protocol):
    """Descriptions of clusters."""

    def names(self) -> Sequence[str]:
        """Return the names of all described clusters, in order."""

    def find(self, cluster: str) -> ClusterFields | None:
        """Return the description of a cluster, if there is one."""

    async def create(self, cluster: str, fields: ClusterFields) -> int:
        """Describe a cluster; return the ticket.

        Raises NamespaceExists if there is a description, InvalidRequest for a description that is
        too long, LimitExceeded, Conflict.
        """

    async def alter(self, cluster: str, fields: ClusterFields) -> int:
        """Replace the description of a cluster; return the ticket. Raises NamespaceNotFound
        without a description, InvalidRequest, Conflict.
        """

    async def delete(self, cluster: str) -> int:
        """Delete the description of a cluster; return the ticket. Raises NamespaceNotFound,
        Conflict.
        """


class NamespaceRegistry(Protocol):
    """All namespaces (Iggy: streams), and their tenants. A tenant exists if it was created, or has
    a namespace.
    """

    @property
    def clusters(self) -> ClusterRegistry:
        """Descriptions of clusters."""

    def all(self) -> Sequence[NamespaceMeta]:
        """Return every namespace, by name."""

    def find(self, tenant: str, namespace: str) -> NamespaceMeta | None:
        """Return the namespace of that name, if there is one."""

    def find_numbered(self, number: int) -> NamespaceMeta | None:
        """Return the namespace that Iggy's clients know by this number, if there is one."""

    def number(self, meta: NamespaceMeta) -> int:
        """Return Iggy's number for a namespace: chosen by an Iggy client, else by the catalogue."""

    def has_topics(self, tenant: str, namespace: str) -> bool:
        """Return whether the namespace has topics."""

    def get(self, tenant: str, namespace: str) -> NamespaceMeta:
        """Return the namespace of that name. Raises NamespaceNotFound."""

    async def create(self, tenant: str, namespace: str, *, iggy_id: int | None = None) -> int:
        """Create a namespace; return the ticket.

        Raises InvalidName, NamespaceExists, Conflict.
        """

    async def renumber(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        """Set the number by which Iggy's clients know a namespace; None: the catalogue's number.
        Return the ticket.

        Raises NamespaceNotFound, NamespaceExists, Conflict.
        """

    async def delete(self, tenant: str, namespace: str) -> int:
        """Delete a namespace; return the ticket.

        Raises NamespaceNotFound, TopicInUse while it has topics, InvalidRequest for
        `public/default`, which Kafka's listener always uses, Conflict.
        """

    def tenants(self) -> Sequence[str]:
        """Return the names of all tenants, in order."""

    def has_tenant(self, tenant: str) -> bool:
        """Return whether the tenant exists."""

    def admin_roles(self, tenant: str) -> Sequence[str]:
        """Return the names of the roles that administer a tenant."""

    def allowed_clusters(self, tenant: str) -> Sequence[str]:
        """Return the names of the clusters that a tenant may use; empty for the own cluster."""

    async def create_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str] = ()
    ) -> int:
        """Create a tenant, which exists even without a namespace; return the ticket.

        Raises InvalidName, NamespaceExists if it exists, InvalidRequest for too many roles or
        clusters, LimitExceeded, Conflict.
        """

    async def alter_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str] = ()
    ) -> int:
        """Set the roles that administer a tenant, and the allowed clusters; return the ticket. From
        then on the tenant exists even without a namespace.

        Raises NamespaceNotFound if the tenant does not exist, InvalidRequest for too many roles or
        clusters, LimitExceeded, Conflict.
        """

    async def delete_tenant(self, tenant: str) -> int:
        """Forget a tenant; return the ticket.

        Raises TopicInUse while it has a namespace, NamespaceNotFound, Conflict.
        """
