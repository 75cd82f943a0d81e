"""Topics and subscriptions over journals in memory, with partitions that are only numbers."""

import trio

from braidlog.broker.cluster.placement import Placement
from braidlog.broker.config.settings import LogConfig
from braidlog.broker.limits import STATE_LIMITS
from braidlog.broker.positions.subscriptions import Subscriptions
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.namespaces import Namespaces
from braidlog.broker.topics.registry import TopicDefaults
from braidlog.broker.topics.settings import log_settings
from braidlog.broker.topics.topics import Topics
from braidlog.storage.errors import StorageFull
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.journal_positions import JournalPositions
from tests.storage.metadata.memory_journal import MemoryJournal

NOW_US = 1_700_000_000_000_000


class NumberedPartition:
    def __init__(self, topic, index, partition_id):
        self.topic = topic
        self.index = index
        self.partition_id = partition_id
        self.log_start_offset = 0
        self.next_offset = 0
        self.removed = False

    def remove(self):
        self.removed = True

    def describe(self, topic):
        self.topic = topic


class FakeFactory:
    """`folders` stands for the data directory."""

    def __init__(self):
        self.folders = set()
        self.room = 1000

    async def create(self, topic, first_index, partition_ids):
        if len(self.folders) + len(partition_ids) > self.room:
            raise StorageFull("no room")
        self.folders |= set(partition_ids)
        self.settings = topic.meta.settings
        return [
            NumberedPartition(topic, first_index + number, partition_id)
            for number, partition_id in enumerate(partition_ids)
        ]

    def in_turn(self, partition_ids):
        return iter(partition_ids)

    def open(self, topic, index, partition_id):
        assert partition_id in self.folders
        return NumberedPartition(topic, index, partition_id)

    def alter(self, topic, changed):
        self.settings = changed

    def check(self, settings):
        log_settings(LogConfig(), settings)

    async def alter_one(self, partition, changed):
        """Alter a partition."""

    def is_open(self, partition):
        return partition.partition_id in self.folders

    def discard(self, partition):
        self.folders.remove(partition.partition_id)


class MetadataParts:
    """The parts of a broker; `restarted` returns another house on the same journals and folders."""

    def __init__(
        self,
        catalogue=None,
        cursors=None,
        factory=None,
        placement=None,
        limits=STATE_LIMITS,
        **defaults,
    ):
        self.catalogue_journal = catalogue or MemoryJournal()
        self.cursor_journal = cursors or MemoryJournal()
        self.factory = factory or FakeFactory()
        self.reported = []  # Errors of storage.
        report = self.reported.append
        placement = placement or Placement()
        state = JournalCatalogue(self.catalogue_journal, now_us=NOW_US).catalogue
        self.catalogue = LocalCatalogue(
            state, placement, use_reserve=lambda act: act(), report=report
        )
        self.cursors = JournalPositions(self.cursor_journal)
        self.topics = Topics(
            self.catalogue,
            self.cursors,
            self.factory,
            defaults=TopicDefaults(**defaults),
            now_us=lambda: NOW_US,
            report=report,
            limits=limits,
        )
        self.topics.open_all()
        self.namespaces = Namespaces(self.catalogue, lambda: NOW_US, limits)
        self.subscriptions = Subscriptions(self.topics, self.cursors, report=report, limits=limits)

    def create(self, name, partitions):
        """Create a topic, in a test that is no coroutine."""
        return trio.run(self.topics.create, name, partitions)

    def restarted(self):
        return MetadataParts(
            self.catalogue_journal.reopened(), self.cursor_journal.reopened(), self.factory
        )

    @property
    def tickets(self):
        return self.catalogue_journal.ticket, self.cursor_journal.ticket


class RecordingListener:
    """A listener to events of topics and of a subscription."""

    def __init__(self):
        self.events = []

    def topic_changed(self, topic, event):
        self.events.append((topic.name.topic, event))

    def moved(self, index, event, mover=None):
        self.events.append((index, event))

    def take(self):
        events, self.events = self.events, []
        return events
