"""The catalogue of a broker in a cluster. Shard 0's journal has namespaces, topics and users; the
journal of each other shard has the state of its topics: groups, schemas, epochs and producer
numbers.

The owner of shard 0 changes that journal; all other brokers follow it. `SharedCatalogue` holds a
`Catalogue`, and chooses the journal of a change or refuses the change (`CatalogueWriter`). Knows no
ledger: callers pass rows and journals.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from braidlog.storage.errors import DamagedLog, NotOwned
from braidlog.storage.metadata.catalogue import FIRST_NUMBER, SCOPE_BITS, Catalogue
from braidlog.storage.metadata.catalogue_records import (
    MADE_ID_FIRST,
    CatalogueChange,
    ClusterDescribed,
    ClusterForgotten,
    CountersSet,
    EpochSet,
    GroupGone,
    GroupMade,
    GroupMeta,
    NamespaceGone,
    NamespaceMade,
    NamespaceSettingsSet,
    PartitionsSet,
    ProducerNamed,
    ProducersForgotten,
    SchemaAdded,
    SettingsSet,
    TenantGone,
    TenantSet,
    TopicGone,
    TopicMade,
    TopicMeta,
)
from braidlog.storage.metadata.catalogue_writer import Changes
from braidlog.storage.metadata.changes import ChangeJournal, in_records
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.shared.journal import LedgerJournal
from braidlog.storage.shared.layout import shard_of
from braidlog.storage.shared.ledger import SNAPSHOT, JournalRow

# A topic's id, tenant and namespace, a tenant, or a cluster that is described.
Subject = int | tuple[str, str] | str | tuple[str]
Named = TopicName | tuple[str, str] | str | tuple[str]  # The same, by name.

DELETED_MAX = 10_000  # Deleted names whose places are known: some 2 MB.


@dataclass(slots=True)
class Touched:
    """Subjects of the followed changes."""

    topics: set[TopicName] = field(default_factory=set)
    namespaces: set[tuple[str, str]] = field(default_factory=set)


class NotFollowed(Exception):
    """The rows do not continue the last rows: the whole journal is needed."""


class SharedCatalogue:
    """The catalogue as far as followed, and the topic data of the held shards."""

    def __init__(self, shards: int) -> None:
        """Start with nothing followed yet."""
        self.catalogue = Catalogue(self)
        self._shard_count = shards
        self._place = 0
        self._touched = Touched()
        self._main: Changes | None = None
        self._main_journal: LedgerJournal | None = None
        self._inner: dict[int, Changes] = {}
        self._owned_from = 0  # The place of the last change before shard 0 was taken over.
        self._changed: dict[Subject, int] = {}  # The places of the last changes since then.
        self._deleted: dict[Named, int] = {}  # The places of the last deletions, oldest first.
        self._deletions_from = 0  # The place that stands for all earlier deletions.

    # Following, and owning shard 0.

    @property
    def place(self) -> int:
        """The last row of shard 0's journal that is in here."""
        return self._place if self._main_journal is None else self._main_journal.last_place

    def last_change(self, subject: Subject) -> int:
        """Return the place of the last change of a topic, a namespace or a tenant; for the owner of
        shard 0. The place where the ownership began stands for all earlier places.
        """
        return min(self._changed.get(subject, self._owned_from), self.place)

    def last_deletion(self, name: Named) -> int:
        """Return the place of the last deletion of a topic, namespace or tenant of that name, as
        `last_change`.
        """
        return min(self._deleted.get(name, self._deletions_from), self.place)

    @property
    def is_owned(self) -> bool:
        """True if this broker changes the catalogue."""
        return self._main is not None

    @property
    def ticket(self) -> int:
        """As `CatalogueWriter.ticket`: then every change so far is published."""
        journals = [*self._inner.values(), *([self._main] if self._main else [])]
        return max((journal.ticket for journal in journals), default=0)

    def follow(self, rows: Sequence[JournalRow]) -> Touched:
        """Apply rows after `place`. Raises NotFollowed if there is a gap or a snapshot;
        DamagedLog, UnknownRecord.
        """
        if not rows:
            return Touched()
        if rows[0].place != self._place + 1 or any(row.kind >= SNAPSHOT for row in rows):
            raise NotFollowed
        changes = self._changes_of(Rows(rows))
        changes.replay(partial(self._follow_main, changes))
        self._place = rows[-1].place
        return self._take_touched()

    def follow_anew(self, rows: Sequence[JournalRow]) -> Touched:
        """Apply a whole journal; the state of its topics is retained. Raises as `follow`."""
        self._restart(self._changes_of(Rows(rows)))
        self._place = rows[-1].place if rows else 0
        self.catalogue.history.restart(self._place)
        return self._take_touched()

    def own(self, journal: LedgerJournal, now_us: int) -> Touched:
        """Take over shard 0: changes go to this journal. Raises DamagedLog, UnknownRecord."""
        changes = self._changes_of(journal)
        self._restart(changes)
        if journal.last_place != self._place:  # Else the history goes on.
            self.catalogue.history.restart(journal.last_place)
        self._main, self._main_journal = changes, journal
        self._owned_from, self._changed = journal.last_place, {}
        self._deletions_from, self._deleted = journal.last_place, {}
        self.catalogue.create_default_namespace(now_us)
        return self._take_touched()

    def disown(self) -> None:
        """Give up shard 0: take no more changes here, and follow the shard once the changes made
        are published.
        """
        self._place, self._main, self._main_journal = self.place, None, None

    def _changes_of(self, journal: "LedgerJournal | Rows") -> Changes:
        return ChangeJournal(journal, CatalogueChange, "catalogue")

    def _restart(self, changes: Changes) -> None:
        catalogue, touched = self.catalogue, self._touched
        touched.topics.update(meta.name for meta in catalogue.all_topics())
        touched.namespaces.update((meta.tenant, meta.namespace) for meta in catalogue.namespaces())
        previous_topics = catalogue.clear()
        changes.replay(self._apply_main)
        for meta in catalogue.all_topics():
            if (previous := previous_topics.get(meta.topic_id)) is not None:
                meta.take_data(previous)

    def _follow_main(self, changes: Changes, change: CatalogueChange) -> None:
        self._touch(change)
        self.catalogue.history.apply(self.catalogue, change, changes.last_place)

    def _apply_main(self, change: CatalogueChange) -> None:
        self._touch(change)
        self.catalogue.apply(change)

    def _touch(self, change: CatalogueChange) -> None:
        match change:
            case TopicMade(meta=meta):
                self._touched.topics.add(meta.name)
            case NamespaceMade(meta=namespace):
                self._touched.namespaces.add((namespace.tenant, namespace.namespace))
            case NamespaceGone() | NamespaceSettingsSet():
                self._touched.namespaces.add((change.tenant, change.namespace))
            case _:
                topic = self.catalogue.topic_by_id(getattr(change, "topic_id", 0))
                if topic is not None:
                    self._touched.topics.add(topic.name)

    def _take_touched(self) -> Touched:
        touched, self._touched = self._touched, Touched()
        return touched

    # Shards.

    def shard(self, name: TopicName) -> int:
        """Return the shard of a topic, even of a topic that is still to be created."""
        return shard_of(name.full, self._shard_count)

    def topics_of(self, shard: int) -> list[TopicMeta]:
        return [meta for meta in self.catalogue.all_topics() if self.shard(meta.name) == shard]

    def hold(self, shard: int, journal: LedgerJournal) -> None:
        """Take over a shard: read the state of its topics. Raises DamagedLog, UnknownRecord."""
        for meta in self.topics_of(shard):
            meta.take_data(meta.without_data())
        self.catalogue.forget_scope(shard)
        changes = self._changes_of(journal)
        changes.replay(partial(self._apply_inner, shard))
        self._inner[shard] = changes

    def follow_topic_data(self, shard: int, rows: Sequence[JournalRow]) -> None:
        """Read the state of a shard's topics from the whole journal of another broker.

        Raises DamagedLog, UnknownRecord.
        """
        self._changes_of(Rows(rows)).replay(partial(self._apply_inner, shard))

    def give_up(self, shard: int) -> None:
        """Give up a shard, which another broker owns now."""
        self._inner.pop(shard, None)
        self.catalogue.forget_scope(shard)

    def _apply_inner(self, shard: int, change: CatalogueChange) -> None:
        topic_id = getattr(change, "topic_id", None)
        if isinstance(change, CountersSet):
            self.catalogue.count_producers(shard, change.next_producer)
        elif topic_id is None or self.catalogue.topic_by_id(topic_id):  # Else deleted.
            self.catalogue.apply(change)

    # Changing.

    def write(self, *changes: CatalogueChange) -> int:
        """As `CatalogueWriter.write`. Raises NotOwned for a shard of another broker."""
        (shard,) = set(map(self._shard_of, changes))
        journal = self._inner.get(shard) if shard else self._main
        if journal is None:
            raise NotOwned(f"shard {shard} is another broker's")
        if shard:
            ticket = journal.append(*changes)  # No history: its places are those of shard 0.
            for change in changes:
                self.catalogue.apply(change)
            journal.snapshot_if_due(in_records(self._changes_in(shard)))
            return ticket
        subjects = [(subject_of(change), self._deleted_name(change)) for change in changes]
        ticket = self.catalogue.write(changes, journal, self.catalogue.state(with_data=False))
        for subject, deleted in subjects:
            self._note_change(subject, deleted)
        return ticket

    def _note_change(self, subject: Subject | None, deleted: Named | None) -> None:
        """Remember the place of a written change; `deleted` is the name of a deleted subject."""
        if deleted is not None:
            self._note_deletion(deleted)
        if subject is not None and deleted is not None:
            self._changed.pop(subject, None)
        elif subject is not None:
            self._changed[subject] = self.place

    def _shard_of(self, change: CatalogueChange) -> int:
        match change:
            case SchemaAdded() | EpochSet() | GroupMade() | GroupGone():
                topic = self.catalogue.topic_by_id(change.topic_id)
                return 0 if topic is None else self.shard(topic.name)
            case ProducerNamed(number=number) | ProducersForgotten(numbers=[number, *_]):
                return number >> SCOPE_BITS
        return 0

    def _deleted_name(self, change: CatalogueChange) -> Named | None:
        match change:
            case TopicGone():
                topic = self.catalogue.topic_by_id(change.topic_id)
                return None if topic is None else topic.name
            case NamespaceGone():
                return change.tenant, change.namespace
            case TenantGone():
                return change.tenant
            case ClusterForgotten():
                return (change.cluster,)
        return None

    def _note_deletion(self, name: Named) -> None:
        self._deleted.pop(name, None)  # The newest is last.
        self._deleted[name] = self.place
        if len(self._deleted) > DELETED_MAX:
            self._deletions_from = self._deleted.pop(next(iter(self._deleted)))

    def _changes_in(self, shard: int) -> Iterator[CatalogueChange]:
        next_producer = self.catalogue.next_producer(shard)
        yield CountersSet(FIRST_NUMBER, FIRST_NUMBER, MADE_ID_FIRST, next_producer)
        for meta in self.topics_of(shard):
            yield from _data_changes(meta)
        for (scope, name), number in self.catalogue.producer_numbers().items():
            if scope == shard:
                yield ProducerNamed(number, name)

    def scope(self, name: TopicName) -> int:
        """Return the number scope of producers: the shard of the topic that they write to."""
        return self.shard(name)


def subject_of(change: CatalogueChange) -> Subject | None:
    """Return the topic, namespace, tenant or cluster of a change in shard 0's journal, None for
    others.
    """
    match change:
        case TopicMade(meta=meta):
            return meta.topic_id
        case TopicGone() | PartitionsSet() | SettingsSet():
            return change.topic_id
        case NamespaceMade(meta=namespace):
            return namespace.tenant, namespace.namespace
        case NamespaceGone() | NamespaceSettingsSet():
            return change.tenant, change.namespace
        case TenantSet() | TenantGone():
            return change.tenant
        case ClusterDescribed() | ClusterForgotten():
            return (change.cluster,)
    return None


@dataclass(slots=True)
class Rows:
    """Rows of another broker's journal: only read. Implements `Journal`."""

    rows: Sequence[JournalRow]
    size_bytes: int = 0
    snapshot_bytes: int = 0
    _place: int = 0

    @property
    def last_place(self) -> int:
        """The place of the row that `replay` yielded last."""
        return self._place

    @property
    def next_place(self) -> int:
        return self.last_place + 1

    @property
    def replayed_place(self) -> int:
        return self.last_place

    def replay(self) -> Iterator[bytes]:
        for row in self.rows:
            self._place = row.place
            yield row.body

    def damage(self, reason: str) -> DamagedLog:
        return DamagedLog("the catalogue's journal", self._place, self._place, reason)

    def append(self, body: bytes) -> int:
        """Raise AssertionError: the rows belong to another broker."""
        raise AssertionError("another broker's journal is only read")

    def append_lazy(self, body: bytes) -> object:
        """Raise AssertionError, as `append`."""
        raise AssertionError("another broker's journal is only read")

    def snapshot(self, bodies: Iterable[bytes]) -> object:
        """Raise AssertionError, as `append`."""
        raise AssertionError("another broker's journal is only read")


def _data_changes(meta: TopicMeta) -> Iterator[CatalogueChange]:
    if meta.topic_epoch:
        yield EpochSet(meta.topic_id, meta.topic_epoch)
    for schema in meta.schemas:
        yield SchemaAdded(meta.topic_id, schema)
    last = meta.next_group_id - 1
    if last and all(group.group_id != last for group in meta.groups):
        # Deleted, but its number must not be used again.
        yield GroupMade(meta.topic_id, GroupMeta(last, ""))
        yield GroupGone(meta.topic_id, last)
    for group in meta.groups:
        yield GroupMade(meta.topic_id, group)
