"""The remembered changes of the catalogue."""

import pytest

from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.history import ChangeHistory
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.names import TopicName
from tests.storage.metadata.memory_journal import MemoryJournal

NAME = TopicName("public", "default", "t")


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def catalogue(journal) -> Catalogue:
    return JournalCatalogue(journal, now_us=1).catalogue


def test_a_change_has_its_subject_before_and_after(catalogue):
    catalogue.create_topic(NAME, [1, 2], partitioned=True, created_us=5)
    topic_id = catalogue.topic(NAME).topic_id
    catalogue.create_group(topic_id, "g")
    catalogue.set_partitions(topic_id, [1], partitioned=True)
    catalogue.rename_topic(topic_id, "u")
    catalogue.delete_topic(topic_id)
    created, grouped, smaller, renamed, gone = list(catalogue.history.after(-1))[1:]
    assert (created.before, created.after.partition_ids) == (None, [1, 2])
    assert (grouped.group.name, grouped.group.count, grouped.group.is_new) == ("g", 1, True)
    assert (smaller.before.partition_ids, smaller.after.partition_ids) == ([1, 2], [1])
    assert (renamed.before.name.topic, renamed.after.name.topic) == ("t", "u")
    assert (gone.before.name.topic, gone.after) == ("u", None)
    assert all(past.namespace.namespace == "default" for past in (created, grouped, smaller, gone))
    places = [past.place for past in (created, grouped, smaller, renamed, gone)]
    assert places == sorted(set(places)) and places[-1] == catalogue.writer.place


def test_a_change_holds_no_other_groups_of_its_topic(catalogue):
    """Thousands of changes of a topic with thousands of groups would hold millions."""
    catalogue.create_topic(NAME, [1], partitioned=True, created_us=5)
    topic_id = catalogue.topic(NAME).topic_id
    for name in ("a", "b", "c"):
        catalogue.create_group(topic_id, name)
    gone_id = catalogue.topic(NAME).groups[1].group_id
    catalogue.delete_group(topic_id, gone_id)
    catalogue.rename_topic(topic_id, "u")
    past = list(catalogue.history.after(-1))[-5:]
    assert all(meta.groups == [] for change in past for meta in (change.before, change.after))
    assert [change.group and change.group.name for change in past] == ["a", "b", "c", "b", None]
    gone = past[3].group
    assert (gone.group_id, gone.count, gone.is_new) == (gone_id, 2, False)


def test_changes_of_producers_are_not_remembered(catalogue):
    count = len(list(catalogue.history.after(-1)))
    catalogue.producer_id(b"p")
    assert len(list(catalogue.history.after(-1))) == count


def test_a_start_begins_a_history_at_its_place(catalogue, journal):
    catalogue.create_topic(NAME, [1], partitioned=True, created_us=5)
    again = JournalCatalogue(journal, now_us=2).catalogue
    assert list(again.history.after(-1)) == []
    assert again.history.begins_after == again.writer.place == catalogue.writer.place


def test_changes_of_many_partitions_are_forgotten_sooner(catalogue):
    """The numbers of a deleted topic's partitions would stay in memory, by thousands."""
    history = catalogue.history = ChangeHistory(partitions_max=10)
    for number in range(3):
        name = TopicName("public", "default", f"t{number}")
        catalogue.create_topic(name, [1, 2, 3], partitioned=True, created_us=5)
        catalogue.delete_topic(catalogue.topic(name).topic_id)
    remembered = list(history.after(-1))
    assert [past.before and past.before.name.topic for past in remembered] == ["t1", None, "t2"]
    assert history.begins_after == catalogue.writer.place - 3
    catalogue.create_topic(NAME, list(range(11)), partitioned=True, created_us=5)
    assert list(history.after(-1)) == []
    assert history.begins_after == catalogue.writer.place


def test_the_oldest_changes_are_forgotten(catalogue):
    history = catalogue.history = ChangeHistory(changes_max=2)
    for number in range(4):
        catalogue.create_namespace("public", f"n{number}", created_us=5)
    assert [past.after.namespace for past in history.after(-1)] == ["n2", "n3"]
    assert history.begins_after == catalogue.writer.place - 2
