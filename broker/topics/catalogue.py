"""The single service that changes the catalogue: topics, namespaces, settings and the data of
topics.

Changes of topics and namespaces are awaited and may lose to another change (`Conflict`). A change
reaches memory and the journal together, before another task runs. The data of a topic (named
groups, schemas, epochs, producer numbers) is changed by the topic's owner and never waits.

Each change returns a commit ticket. Reads come from memory (`state`). Knows no partition, no
connection and no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.catalogue_records import (
    ClusterDescribed,
    ClusterField,
    ClusterForgotten,
    SchemaMeta,
    Setting,
    TenantGone,
    TenantSet,
    TopicMeta,
)
from braidlog.storage.metadata.user_records import UserChange
from braidlog.storage.metadata.users import UserBook

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Placement

T = TypeVar("T")
UseReserve = Callable[[Callable[[], int]], int]  # Runs a change that frees space.


class LocalCatalogue:
    """Changes of the catalogue by this broker. Callers have checked that a change makes sense.

    Implements `UserCatalogue`.
    """

    def __init__(
        self, state: Catalogue, placement: Placement, *, use_reserve: UseReserve, report: Report
    ) -> None:
        """`placement` names the broker that makes a change. `use_reserve` may let a change use the
        reserved space of a full disk. `report` is called with each storage error before the broker
        error is raised.
        """
        self.state = state  # For reading only.
        self.placement = placement
        self._use_reserve = use_reserve
        self._report = report

    @property
    def is_owned(self) -> bool:
        """True if this broker changes topics, namespaces and users."""
        return self.placement.catalogue_owner() is None

    @property
    def ticket(self) -> int:
        """Commit ticket of the last change: when the ticket is durable, every change so far is on
        disk.
        """
        return self.state.ticket

    @property
    def place(self) -> int:
        """Place of the last change in the journal, as far as this broker has followed."""
        return self.state.writer.place

    # Users and permissions.

    @property
    def users(self) -> UserBook:
        return self.state.users

    def change_users(self, *changes: UserChange) -> int:
        """Change users or permissions, all or none. Raises NotOwner, StorageFull, StorageFailed."""
        self.placement.check_catalogue()
        return self._change(lambda: self.state.change_users(*changes))

    # Topics and namespaces. All raise Conflict, StorageFull, StorageFailed.

    async def new_partition_ids(self, count: int) -> Sequence[int]:
        """Return numbers that no partition has ever had."""
        return [self.state.next_partition_id() for _ in range(count)]

    async def create_topic(self, planned: TopicMeta, partition_ids: Sequence[int]) -> int:
        """Create a topic over existing folders; the catalogue chooses the topic number."""
        return self._change(
            lambda: self.state.create_topic(
                planned.name,
                [*partition_ids],
                partitioned=planned.partitioned,
                created_us=planned.created_us,
                settings=planned.settings,
                iggy_id=planned.iggy_id,
            )
        )

    async def set_partitions(
        self, topic_id: int, partition_ids: Sequence[int], *, partitioned: bool
    ) -> int:
        """Set a topic's partitions: the ids of all partitions, in order of their numbers."""
        return self._change(
            lambda: self.state.set_partitions(topic_id, [*partition_ids], partitioned=partitioned)
        )

    async def alter_settings(self, topic_id: int, settings: Mapping[str, Setting]) -> int:
        """Replace all settings of a topic."""
        return self._free(lambda: self.state.alter_settings(topic_id, dict(settings)))

    async def delete_topic(self, topic_id: int) -> int:
        """Remove a topic."""
        return self._free(lambda: self.state.delete_topic(topic_id))

    async def create_namespace(
        self, tenant: str, namespace: str, *, created_us: int, iggy_id: int | None
    ) -> int:
        return self._change(
            lambda: self.state.create_namespace(
                tenant, namespace, created_us=created_us, iggy_id=iggy_id
            )
        )

    async def number_namespace(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        """Set the number of a namespace for Iggy's clients; None restores the number
        chosen here.
        """
        return self._change(lambda: self.state.number_namespace(tenant, namespace, iggy_id))

    async def alter_namespace(
        self, tenant: str, namespace: str, settings: Mapping[str, Setting]
    ) -> int:
        """Replace all settings of a namespace."""
        return self._free(lambda: self.state.alter_namespace(tenant, namespace, dict(settings)))

    async def delete_namespace(self, tenant: str, namespace: str) -> int:
        """Remove a namespace that has no topics."""
        return self._free(lambda: self.state.delete_namespace(tenant, namespace))

    async def set_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str]
    ) -> int:
        """Create a tenant, or replace the admin roles and the clusters of a tenant."""
        change = TenantSet(tenant, [*admin_roles], [*allowed_clusters])
        return self._change(lambda: self.state.change_tenants(change))

    async def forget_tenant(self, tenant: str) -> int:
        """Forget a tenant that was created or given admin roles."""
        return self._free(lambda: self.state.change_tenants(TenantGone(tenant)))

    async def describe_cluster(self, cluster: str, fields: Mapping[str, ClusterField]) -> int:
        """Describe a cluster, or replace the description of a cluster."""
        change = ClusterDescribed(cluster, dict(fields))
        return self._change(lambda: self.state.change_tenants(change))

    async def forget_cluster(self, cluster: str) -> int:
        """Delete the description of a cluster."""
        return self._free(lambda: self.state.change_tenants(ClusterForgotten(cluster)))

    # Names. Never waits: the new name appears here and in the topics at the same time.

    def rename_topic(self, topic_id: int, topic: str) -> int:
        """Rename a topic within its namespace. Raises StorageFull, StorageFailed."""
        return self._change(lambda: self.state.rename_topic(topic_id, topic))

    def rename_namespace(self, tenant: str, namespace: str, renamed: str) -> int:
        """Rename a namespace, and so its topics. Raises StorageFull, StorageFailed."""
        return self._change(lambda: self.state.rename_namespace(tenant, namespace, renamed))

    # Data of a topic, changed by the topic's owner. All raise StorageFull, StorageFailed; NotOwner
    # for a named group, a schema or an epoch of another broker's topic.

    def create_group(self, topic_id: int, name: str, group_id: int | None) -> int:
        """Create a named group, with the next number if none is given."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.create_group(topic_id, name, group_id))

    def delete_group(self, topic_id: int, group_id: int) -> int:
        """Remove a named group."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.delete_group(topic_id, group_id))

    def add_schema(self, topic_id: int, schema: SchemaMeta) -> int:
        """Add a schema after the others."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.add_schema(topic_id, schema))

    def raise_topic_epoch(self, topic_id: int) -> int:
        """Increment the topic's epoch."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.bump_topic_epoch(topic_id))

    def producer_number(self, name: bytes, scope: int) -> tuple[int, int]:
        """Return the number that stands for a producer's name, and the ticket that makes the number
        durable.
        """
        number = self._change(lambda: self.state.producer_id(name, scope))
        return number, self.state.ticket

    def forget_producers(self, numbers: Sequence[int]) -> int:
        """Forget producers; their numbers are never used again."""
        return self._free(lambda: self.state.forget_producers([*numbers]))

    def _check_owner(self, topic_id: int) -> None:
        meta = self.state.topic_by_id(topic_id)
        if meta is not None:
            self.placement.check(meta.name)

    def _change(self, change: Callable[[], T]) -> T:
        with as_broker_errors(self._report):
            return change()

    def _free(self, change: Callable[[], int]) -> int:
        """Run a change that frees space: on a full disk it may use the reserve."""
        with as_broker_errors(self._report):
            return self._use_reserve(change)
