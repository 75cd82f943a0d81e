"""The single service that changes the catalogue: topics, namespaces, settings and the data of
topics.

A change is a method of `state`, run by `change` or `free`. A change reaches memory and the journal
together, before another task runs. The data of a topic (named groups, schemas, epochs, producer
numbers) is changed by the topic's owner; all else by the catalogue's owner.

Each change returns a commit ticket. Reads come from memory (`state`). Knows no partition, no
connection and no protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from braidlog.broker.commit.storage_errors import Report, as_broker_errors

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Placement
    from braidlog.storage.metadata.catalogue import Catalogue
    from braidlog.storage.metadata.user_records import UserChange
    from braidlog.storage.metadata.users import UserBook

T = TypeVar("T")
P = ParamSpec("P")
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
        self.state = state  # For reading; its changes are run by `change` and `free`.
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

    @property
    def users(self) -> UserBook:
        return self.state.users

    def change_users(self, *changes: UserChange) -> int:
        """Change users or permissions, all or none. Raises NotOwner, StorageFull, StorageFailed."""
        self.placement.check_catalogue()
        return self.change(self.state.change_users, *changes)

    def change(self, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a change, a method of `state`. Raises InvalidRequest, NotOwner, StorageFull,
        StorageFailed.
        """
        with as_broker_errors(self._report):
            return make(*args, **kwargs)

    def free(self, make: Callable[P, int], *args: P.args, **kwargs: P.kwargs) -> int:
        """Run a change that frees space: on a full disk it may use the reserve. Raises as
        `change`.
        """
        with as_broker_errors(self._report):
            return self._use_reserve(lambda: make(*args, **kwargs))
