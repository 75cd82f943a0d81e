import pytest

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.topic_file import TopicFile
from braidlog.storage.metadata.catalogue_records import TopicMade, TopicMeta
from braidlog.storage.metadata.changes import ChangeJournal
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.tools.journal_records import StoredJournal
from braidlog.storage.tools.repair_catalogue import CatalogueRepair

ORDERS, CLICKS = parse_topic("orders"), parse_topic("elsewhere/here/clicks")


class Recording(StoredJournal):
    """A journal in memory."""

    def __init__(self):
        super().__init__([])
        self.bodies = []

    def append(self, body):
        self.bodies.append(body)
        return 0


def catalogue_with(**topics):
    """Return a catalogue of these topics with these partition ids."""
    catalogue = JournalCatalogue(StoredJournal([]), now_us=1).catalogue
    for topic, ids in topics.items():
        catalogue.create_topic(parse_topic(topic), ids, partitioned=False, created_us=1)
    return catalogue


def repaired(catalogue, folders):
    """Return the topics with their partition ids after a repair, and the repair's lines.

    `folders` are number -> (topic, partition number) or None.
    """
    files = {
        number: topic and TopicFile(number, topic[0].full, topic[1])
        for number, topic in folders.items()
    }
    repair = CatalogueRepair(catalogue, files)
    repair.run(None, now_us=2)
    topics = {meta.name: meta.partition_ids for meta in catalogue.all_topics()}
    return topics, repair.lines


def test_a_topic_is_recreated_with_namespace_and_partitions_in_order():
    catalogue = catalogue_with()
    folders = {3: (CLICKS, 1), 5: (CLICKS, 0), 9: (ORDERS, 0)}
    topics, lines = repaired(catalogue, folders)
    assert topics == {ORDERS: [9], CLICKS: [5, 3]}
    assert catalogue.namespace("elsewhere", "here") is not None
    assert catalogue.next_partition_id() == 10
    assert len(lines) == 3


def test_a_topic_gets_back_its_next_partitions():
    folders = {1: (ORDERS, 0), 2: (ORDERS, 1), 3: (ORDERS, 2), 4: (ORDERS, 4)}
    topics, lines = repaired(catalogue_with(orders=[1]), folders)
    assert topics == {ORDERS: [1, 2, 3]}
    assert lines[-1] == "  nothing says whose folder 4 is: a start sets it aside"


def test_a_folder_with_a_topic_is_not_assigned_to_another():
    topics, _ = repaired(catalogue_with(orders=[1]), {1: (CLICKS, 0)})
    assert topics == {ORDERS: [1]}


def test_an_existing_partition_is_not_replaced_by_another_folder():
    topics, _ = repaired(catalogue_with(orders=[1]), {1: (ORDERS, 0), 2: (ORDERS, 0)})
    assert topics == {ORDERS: [1]}


def test_a_topic_is_removed_only_without_any_folder():
    catalogue = catalogue_with(orders=[1, 2], clicks=[3])
    topics, lines = repaired(catalogue, {2: (ORDERS, 1)})
    assert topics == {ORDERS: [1, 2]}
    assert "clicks goes" in lines[0]


def test_a_recreated_topic_with_a_lost_deletion():
    """The topic was deleted and recreated, and the record of the deletion is lost."""
    journal = Recording()
    writing = ChangeJournal(journal, TopicMade, "catalogue")
    for topic_id, made_id in ((1, 1 << 24), (2, (1 << 24) + 1)):
        writing.append(
            TopicMade(TopicMeta(topic_id, ORDERS, [topic_id], False, 1, {}, None, made_id))
        )
    lost = []
    catalogue = JournalCatalogue(
        StoredJournal(journal.bodies), now_us=1, lost=lost.append
    ).catalogue
    assert [meta.topic_id for meta in catalogue.all_topics()] == [2]
    assert catalogue.topic(ORDERS).partition_ids == [2]
    assert [meta.topic_id for meta in catalogue.topics("public", "default")] == [2]


def test_only_a_repair_skips_changes_of_missing_objects():
    journal = Recording()
    catalogue = JournalCatalogue(journal, now_us=1).catalogue
    catalogue.create_topic(ORDERS, [1], partitioned=False, created_us=1)
    catalogue.alter_settings(1, {"retention_ms": 5})
    without = [journal.bodies[0], journal.bodies[2]]
    with pytest.raises(DamagedLog):
        JournalCatalogue(StoredJournal(without), now_us=1)
    lost = []
    assert (
        JournalCatalogue(StoredJournal(without), now_us=1, lost=lost.append).catalogue.all_topics()
        == []
    )
    assert [refused.reason for refused in lost] == ["SettingsSet of unknown 1"]
