"""The last changes of the catalogue, in memory, for clients that follow them.

A change is remembered with its subject before and after it, so that a reader needs no earlier
state. The history begins at a start of the broker, or where a broker followed the catalogue anew;
readers of an earlier place have to read the whole state. Knows no client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import time_ns
from typing import Protocol

import msgspec

from braidlog.storage.metadata.catalogue_records import (
    CatalogueChange,
    GroupGone,
    GroupMade,
    GroupMeta,
    NamespaceGone,
    NamespaceMade,
    NamespaceMeta,
    NamespaceRenamed,
    PartitionsSet,
    SettingsSet,
    TopicGone,
    TopicMade,
    TopicMeta,
    TopicRenamed,
)
from braidlog.storage.metadata.user_records import Granted, Revoked, UserGone, UserMeta, UserSet
from braidlog.storage.metadata.users import UserBook

Subject = NamespaceMeta | TopicMeta | UserMeta

# Remembered changes: more than a client misses within minutes.
HISTORY_CHANGES_MAX = 2_000
# Partitions of the topics in these changes, before and after each: 40 bytes each, as a deleted
# topic's numbers stay in memory. A topic may have 10,000 partitions.
HISTORY_PARTITIONS_MAX = 50_000


class CatalogueState(Protocol):
    """The part of the catalogue that a history reads: see `catalogue.py`."""

    users: UserBook

    def apply(self, change: CatalogueChange) -> None:
        """Apply a written change to memory. Raises KeyError for a missing subject."""

    def namespace(self, tenant: str, namespace: str) -> NamespaceMeta | None:
        """The namespace of that name."""

    def topic_by_id(self, topic_id: int) -> TopicMeta | None:
        """The topic with the catalogue's own number."""


@dataclass(frozen=True, slots=True)
class PastGroup:
    """A named group that a change created (`is_new`) or deleted; `count` is the number of the
    topic's groups after the change.
    """

    group_id: int
    name: str
    count: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class PastChange:
    """A change. `before` or `after` is None if there was no subject before or after the change;
    both are copies. `namespace` is that of a topic. The copies of a topic have no groups: a topic
    may have thousands, so that a change of a group has the changed `group` alone.
    """

    place: int
    time_us: int
    before: Subject | None
    after: Subject | None
    namespace: NamespaceMeta | None = None
    of_grants: bool = False
    group: PastGroup | None = None

    @property
    def partitions(self) -> int:
        """Number of partition numbers that the change holds in memory."""
        metas = (self.before, self.after)
        return sum(len(meta.partition_ids) for meta in metas if isinstance(meta, TopicMeta))


class ChangeHistory:
    """The last changes, oldest first.

    Guarantees: has every change after `begins_after`.
    """

    def __init__(
        self,
        changes_max: int = HISTORY_CHANGES_MAX,
        partitions_max: int = HISTORY_PARTITIONS_MAX,
    ) -> None:
        """Begin empty."""
        self._changes: deque[PastChange] = deque()
        self._changes_max = changes_max
        self._partitions = 0  # of all remembered changes
        self._partitions_max = partitions_max
        self.begins_after, self.begins_after_us = -1, 0
        """Place and time of the last change that is not remembered."""

    def restart(self, place: int) -> None:
        """Forget all changes: changes up to `place` are not known."""
        self._changes.clear()
        self._partitions = 0
        self.begins_after, self.begins_after_us = place, _now_us()

    def apply(self, state: CatalogueState, change: CatalogueChange, place: int) -> None:
        """Apply a change that was written at `place`, and remember the change. Raises KeyError."""
        if self._is_remembered(change, place):
            state.apply(change)
            return
        before, gone = _subject(state, change), _gone_group(state, change)
        state.apply(change)
        after = _subject(state, change, after=True)
        topic = after or before
        if topic is None:
            return
        namespace = None
        if isinstance(topic, TopicMeta):
            namespace = state.namespace(topic.name.tenant, topic.name.namespace)
        of_grants = isinstance(change, Granted | Revoked)
        group = _group(state, change, gone)
        past = PastChange(place, _now_us(), before, after, namespace, of_grants, group)
        self._changes.append(past)
        self._partitions += past.partitions
        while len(self._changes) > self._changes_max or self._partitions > self._partitions_max:
            self._forget_oldest()

    def _is_remembered(self, change: CatalogueChange, place: int) -> bool:
        """Return True for a further change of a user's permissions by the same record.

        A record may have thousands of them, and a change does not say which permissions changed.
        """
        if not isinstance(change, Granted | Revoked) or not self._changes:
            return False
        last = self._changes[-1]
        user = last.after
        return (
            last.of_grants
            and last.place == place
            and isinstance(user, UserMeta)
            and user.name == change.grant.subject
        )

    def _forget_oldest(self) -> None:
        oldest = self._changes.popleft()
        self._partitions -= oldest.partitions
        self.begins_after, self.begins_after_us = oldest.place, oldest.time_us

    def after(self, place: int) -> Iterator[PastChange]:
        """Yield the changes after that place, oldest first."""
        return (past for past in self._changes if past.place > place)


def _now_us() -> int:
    return time_ns() // 1000


def _subject(
    state: CatalogueState, change: CatalogueChange, *, after: bool = False
) -> Subject | None:
    """Return a copy of the namespace, topic or user of a change; None for other changes."""
    subject: Subject | None = None
    match change:
        case NamespaceMade(meta=namespace):
            subject = state.namespace(namespace.tenant, namespace.namespace)
        case NamespaceRenamed() if after:
            subject = state.namespace(change.tenant, change.renamed)
        case NamespaceGone() | NamespaceRenamed():
            subject = state.namespace(change.tenant, change.namespace)
        case TopicMade(meta=topic):
            subject = state.topic_by_id(topic.topic_id)
        case TopicGone() | TopicRenamed() | PartitionsSet() | SettingsSet():
            subject = state.topic_by_id(change.topic_id)
        case GroupMade() | GroupGone():
            subject = state.topic_by_id(change.topic_id)
        case UserSet(meta=user):
            subject = state.users.by_id(user.user_id)
        case UserGone():
            subject = state.users.by_id(change.user_id)
        case Granted() | Revoked():
            subject = state.users.find(change.grant.subject)
    if isinstance(subject, TopicMeta):
        return msgspec.structs.replace(subject, groups=[])
    return subject and msgspec.structs.replace(subject)


def _gone_group(state: CatalogueState, change: CatalogueChange) -> GroupMeta | None:
    """Return the group that a change is about to delete, if any."""
    topic = state.topic_by_id(change.topic_id) if isinstance(change, GroupGone) else None
    if topic is None or not isinstance(change, GroupGone):
        return None
    return next((group for group in topic.groups if group.group_id == change.group_id), None)


def _group(
    state: CatalogueState, change: CatalogueChange, gone: GroupMeta | None
) -> PastGroup | None:
    """Return the group that a change created or, as `gone`, deleted; None for other changes."""
    if isinstance(change, GroupMade | GroupGone):
        group = change.group if isinstance(change, GroupMade) else gone
        topic = state.topic_by_id(change.topic_id)
        if group is not None and topic is not None:
            is_new = isinstance(change, GroupMade)
            return PastGroup(group.group_id, group.name, len(topic.groups), is_new)
    return None
