"""The single service that changes the catalogue: topics, namespaces, settings, and what a topic
keeps.

Changes of topics and namespaces are awaited and may lose to another change (`Conflict`). A change
is in memory and in the journal at once, without a turn for another task. What belongs to a topic
(named groups, schemas, epochs, producer numbers) is changed by the topic's owner and never waits.

Each change returns a commit ticket. Reads come from memory (`state`). Knows no partition, no
connection and no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.catalogue_records import (
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
    """The catalogue as this broker changes it. Callers have checked that a change makes sense."""

    def __init__(
        self, state: Catalogue, placement: Placement, *, use_reserve: UseReserve, report: Report
    ) -> None:
        """`placement` says which broker makes a change; `use_reserve` may let a change use the
        space reserved for it on a full disk; `report` is called with each error of storage before
        the broker error is raised.
        """
        self.state = state  # For reading only.
        self._placement = placement
        self._use_reserve = use_reserve
        self._report = report

    @property
    def is_owned(self) -> bool:
        """Whether this broker changes topics, namespaces and users."""
        return self._placement.catalogue_owner() is None

    @property
    def ticket(self) -> int:
        """After this ticket every change so far is on disk."""
        return self.state.ticket

    # Users and permissions.

    @property
    def users(self) -> UserBook:
        """All users, for reading only."""
        return self.state.users

    def change_users(self, change: UserChange) -> int:
        """Change users or permissions. Raises NotOwner, StorageFull, StorageFailed."""
        self._placement.check_catalogue()
        return self._change(lambda: self.state.change_users(change))

    # Topics and namespaces. All raise Conflict, StorageFull, StorageFailed.

    async def new_partition_ids(self, count: int) -> Sequence[int]:
        """Numbers that no partition has ever had."""
        return [self.state.next_partition_id() for _ in range(count)]

    async def create_topic(self, planned: TopicMeta, partition_ids: Sequence[int]) -> int:
        """Make a topic over existing folders; the catalogue chooses its number."""
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
        """Set a topic's partitions: the ids of all, in order of their numbers."""
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
        """Make a namespace."""
        return self._change(
            lambda: self.state.create_namespace(
                tenant, namespace, created_us=created_us, iggy_id=iggy_id
            )
        )

    async def number_namespace(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        """Set the number by which Iggy's clients know a namespace; None: the one made here."""
        return self._change(lambda: self.state.number_namespace(tenant, namespace, iggy_id))

    async def alter_namespace(
        self, tenant: str, namespace: str, settings: Mapping[str, Setting]
    ) -> int:
        """Replace all settings of a namespace."""
        return self._free(lambda: self.state.alter_namespace(tenant, namespace, dict(settings)))

    async def delete_namespace(self, tenant: str, namespace: str) -> int:
        """Remove a namespace that has no topics."""
        return self._free(lambda: self.state.delete_namespace(tenant, namespace))

    async def set_tenant(self, tenant: str, admin_roles: Sequence[str]) -> int:
        """Make a tenant, or give one other admin roles."""
        return self._change(lambda: self.state.change_tenants(TenantSet(tenant, [*admin_roles])))

    async def forget_tenant(self, tenant: str) -> int:
        """Forget a tenant that was made or given admin roles."""
        return self._free(lambda: self.state.change_tenants(TenantGone(tenant)))

    # Names. Never waits: the change is seen here and in the topics at the same time.

    def rename_topic(self, topic_id: int, topic: str) -> int:
        """Give a topic another name in its namespace. Raises StorageFull, StorageFailed."""
        return self._change(lambda: self.state.rename_topic(topic_id, topic))

    def rename_namespace(self, tenant: str, namespace: str, renamed: str) -> int:
        """Give a namespace and its topics another name. Raises StorageFull, StorageFailed."""
        return self._change(lambda: self.state.rename_namespace(tenant, namespace, renamed))

    # What a topic keeps, which its owner changes. All raise StorageFull, StorageFailed; NotOwner
    # for a named group, a schema or an epoch of another broker's topic.

    def create_group(self, topic_id: int, name: str, group_id: int | None) -> int:
        """Make a named group, with the next number if none is given."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.create_group(topic_id, name, group_id))

    def delete_group(self, topic_id: int, group_id: int) -> int:
        """Remove a named group."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.delete_group(topic_id, group_id))

    def add_schema(self, topic_id: int, schema: SchemaMeta) -> int:
        """Add a schema behind the others."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.add_schema(topic_id, schema))

    def raise_topic_epoch(self, topic_id: int) -> int:
        """Raise the topic's epoch by one."""
        self._check_owner(topic_id)
        return self._change(lambda: self.state.bump_topic_epoch(topic_id))

    def producer_number(self, name: bytes, scope: int) -> tuple[int, int]:
        """The number that stands for a producer's name, and the ticket that makes it durable."""
        number = self._change(lambda: self.state.producer_id(name, scope))
        return number, self.state.ticket

    def forget_producers(self, numbers: Sequence[int]) -> int:
        """Forget producers; their numbers are never used again."""
        return self._free(lambda: self.state.forget_producers([*numbers]))

    def _check_owner(self, topic_id: int) -> None:
        meta = self.state.topic_by_id(topic_id)
        if meta is not None:
            self._placement.check(meta.name)

    def _change(self, change: Callable[[], T]) -> T:
        with as_broker_errors(self._report):
            return change()

    def _free(self, change: Callable[[], int]) -> int:
        """A change that frees space: on a full disk it may use the reserve."""
        with as_broker_errors(self._report):
            return self._use_reserve(change)
