import random

import msgspec
import pytest

from braidlog.storage.errors import DamagedLog, StorageFull, UnwritableChange
from braidlog.storage.metadata.catalogue_records import MADE_ID_FIRST, GroupMeta, SchemaMeta
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.names import TopicName
from tests.storage.metadata.memory_journal import MemoryJournal

ORDERS = TopicName("public", "default", "orders")
PAID = TopicName("public", "default", "paid")


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def catalogue(journal):
    return JournalCatalogue(journal, now_us=5).catalogue


def create(catalogue, name=ORDERS, partitions=1, **more):
    partition_ids = [catalogue.next_partition_id() for _ in range(partitions)]
    more = {"partitioned": partitions > 1, "created_us": 9, **more}
    catalogue.create_topic(name, partition_ids, **more)
    return catalogue.topic(name)


def state_of(catalogue):
    """Return the whole content of a catalogue, and its next numbers."""
    return (
        catalogue.namespaces(),
        [(meta, catalogue.topic_id(meta)) for meta in catalogue.all_topics()],
        [catalogue.stream_id(meta) for meta in catalogue.namespaces()],
        catalogue._counters,
        catalogue._producers,
    )


def shortened(journal):
    """Return the journal after a snapshot."""
    short = journal.reopened()
    catalogue = JournalCatalogue(short, now_us=0).catalogue
    short.extra_bytes = 1 << 40
    catalogue.producer_id(b"one more")
    assert short.snapshots == 1
    return short


def test_a_new_catalogue_has_the_default_namespace_and_nothing_else(catalogue, journal):
    (meta,) = catalogue.namespaces()
    assert (meta.tenant, meta.namespace, meta.created_us) == ("public", "default", 5)
    assert meta.iggy_id is None
    assert catalogue.stream_id(meta) == MADE_ID_FIRST
    assert catalogue.all_topics() == []
    assert JournalCatalogue(journal.reopened(), now_us=77).catalogue.namespaces() == [meta]


def test_a_topic_is_found_by_name_and_by_either_number(catalogue):
    meta = create(catalogue, partitions=3, settings={"retention_ms": 5, "compact": True})
    assert meta.partition_ids == [1, 2, 3]
    assert meta.settings == {"retention_ms": 5, "compact": True}
    assert meta.partitioned
    assert meta.created_us == 9
    assert catalogue.topic_by_id(meta.topic_id) is meta
    iggy_id = catalogue.topic_id(meta)
    assert iggy_id > MADE_ID_FIRST
    assert catalogue.numbered_topics("public", "default")[iggy_id] is meta
    assert catalogue.topic(PAID) is None
    assert catalogue.topic_by_id(99) is None
    assert iggy_id not in catalogue.numbered_topics("public", "other")


def test_topics_of_a_namespace_are_listed_by_name(catalogue):
    catalogue.create_namespace("public", "shop", created_us=1)
    create(catalogue, PAID)
    create(catalogue, TopicName("public", "shop", "a"))
    create(catalogue, ORDERS)
    assert [meta.name.topic for meta in catalogue.topics("public", "default")] == ["orders", "paid"]
    assert [meta.name.topic for meta in catalogue.topics("public", "shop")] == ["a"]
    assert catalogue.topics("public", "none") == []
    assert [meta.name.topic for meta in catalogue.all_topics()] == ["paid", "a", "orders"]


def test_numbers_chosen_by_iggy_clients_have_priority(catalogue):
    catalogue.create_namespace("public", "one", created_us=1, iggy_id=1)
    catalogue.create_namespace("public", "large", created_us=1, iggy_id=MADE_ID_FIRST + 3)
    catalogue.create_namespace("public", "made", created_us=1)
    assert catalogue.namespace_by_stream_id(1).namespace == "one"
    numbers = [catalogue.stream_id(meta) for meta in catalogue.namespaces()]
    assert len(set(numbers)) == 4
    assert catalogue.stream_id(catalogue.namespace("public", "large")) == MADE_ID_FIRST + 3
    next_id = catalogue.topic_id(create(catalogue, ORDERS)) + 1
    assert catalogue.topic_id(create(catalogue, PAID, iggy_id=next_id)) == next_id
    assert catalogue.topic_id(create(catalogue, TopicName("public", "default", "x"))) > next_id


def test_numbers_are_never_reused_even_after_a_snapshot(catalogue, journal):
    catalogue.create_namespace("public", "shop", created_us=1)
    stream_id = catalogue.stream_id(catalogue.namespace("public", "shop"))
    meta = create(catalogue, TopicName("public", "shop", "a"), partitions=2)
    catalogue.delete_topic(meta.topic_id)
    catalogue.delete_namespace("public", "shop")
    for again in (journal.reopened(), shortened(journal)):
        catalogue = JournalCatalogue(again, now_us=0).catalogue
        assert catalogue.namespace("public", "shop") is None
        catalogue.create_namespace("public", "shop", created_us=1)
        assert catalogue.stream_id(catalogue.namespace("public", "shop")) > stream_id
        new = create(catalogue, TopicName("public", "shop", "a"))
        assert new.topic_id > meta.topic_id
        assert catalogue.topic_id(new) > catalogue.topic_id(meta)
        assert new.partition_ids[0] > max(meta.partition_ids)


def test_partition_numbers_begin_above_the_highest_folder(catalogue):
    catalogue.raise_partition_ids(41)
    assert catalogue.next_partition_id() == 42
    catalogue.raise_partition_ids(3)
    assert catalogue.next_partition_id() == 43


def test_changes_of_a_topic_are_persistent(catalogue, journal):
    topic_id = create(catalogue).topic_id
    schema = SchemaMeta(2, "Order", b"{}", {"a": "b"})
    catalogue.set_partitions(topic_id, [1, 5], partitioned=True)
    catalogue.alter_settings(topic_id, {"retention_bytes": 7})
    catalogue.add_schema(topic_id, schema)
    catalogue.add_schema(topic_id, SchemaMeta(1, "", b"", {}))
    catalogue.bump_topic_epoch(topic_id)
    catalogue.bump_topic_epoch(topic_id)
    for seen in (
        catalogue,
        *(JournalCatalogue(j, now_us=0).catalogue for j in (journal, shortened(journal))),
    ):
        meta = seen.topic(ORDERS)
        assert (meta.partition_ids, meta.partitioned) == ([1, 5], True)
        assert meta.settings == {"retention_bytes": 7}
        assert meta.schemas[0] == schema
        assert len(meta.schemas) == 2
        assert meta.topic_epoch == 2
    assert catalogue.next_partition_id() == 6


def test_topics_do_not_share_schemas_and_groups(catalogue):
    first, second = create(catalogue), create(catalogue, PAID)
    catalogue.create_group(first.topic_id, "g")
    catalogue.add_schema(first.topic_id, SchemaMeta(1, "", b"", {}))
    assert second.groups == []
    assert second.schemas == []


def test_group_numbers_increase_and_a_requested_number_is_used(catalogue, journal):
    topic_id = create(catalogue).topic_id
    catalogue.create_group(topic_id, "a")
    catalogue.create_group(topic_id, "b", 7)
    catalogue.create_group(topic_id, "c")
    assert catalogue.groups(topic_id) == [GroupMeta(1, "a"), GroupMeta(7, "b"), GroupMeta(8, "c")]
    catalogue.delete_group(topic_id, 8)
    catalogue = JournalCatalogue(shortened(journal), now_us=0).catalogue
    catalogue.create_group(topic_id, "d")
    assert catalogue.groups(topic_id)[-1] == GroupMeta(9, "d")


def test_a_producer_keeps_its_number(catalogue, journal):
    assert catalogue.producer_id(b"a") == 1
    ticket = catalogue.ticket
    assert catalogue.producer_id(b"\xff") == 2
    assert catalogue.ticket == ticket + 1
    assert catalogue.producer_id(b"a") == 1
    assert catalogue.ticket == ticket + 1
    again = JournalCatalogue(shortened(journal), now_us=0).catalogue
    assert [again.producer_id(name) for name in (b"\xff", b"a", b"one more", b"c")] == [2, 1, 3, 4]


def test_a_refused_change_changes_nothing(catalogue, journal):
    topic_id = create(catalogue).topic_id
    before = state_of(JournalCatalogue(journal.reopened(), now_us=0).catalogue)
    journal.full = True
    for change in (
        lambda: catalogue.create_namespace("public", "shop", created_us=1),
        lambda: catalogue.create_topic(PAID, [], partitioned=False, created_us=1),
        lambda: catalogue.delete_topic(topic_id),
        lambda: catalogue.bump_topic_epoch(topic_id),
        lambda: catalogue.producer_id(b"a"),
    ):
        with pytest.raises(StorageFull):
            change()
    assert state_of(catalogue) == before


def test_a_record_about_an_unknown_topic_is_an_error(catalogue, journal):
    catalogue.bump_topic_epoch(create(catalogue).topic_id)
    del journal.records[1]
    with pytest.raises(DamagedLog, match="EpochSet of unknown 1"):
        JournalCatalogue(journal, now_us=0)


def change_at_random(rng, catalogue):
    namespace = rng.choice(["default", "a", "ä b"])
    topics = catalogue.all_topics()
    meta = rng.choice(topics) if topics else None
    kind = rng.random()
    if catalogue.namespace("public", namespace) is None:
        iggy_id = rng.choice([None, 1 + len(catalogue.namespaces()) * 1000])
        if iggy_id is not None and catalogue.namespace_by_stream_id(iggy_id):
            iggy_id = None
        catalogue.create_namespace("public", namespace, created_us=1, iggy_id=iggy_id)
    elif kind < 0.3 or meta is None:
        name = TopicName("public", namespace, str(rng.randrange(5)))
        if catalogue.topic(name) is None:
            create(catalogue, name, partitions=rng.randrange(3), settings={"s": rng.random() < 0.5})
    elif kind < 0.5:
        catalogue.delete_topic(meta.topic_id)
    elif kind < 0.55 and not catalogue.topics("public", namespace):
        catalogue.delete_namespace("public", namespace)
    elif kind < 0.6:
        renamed = rng.choice(["b", "c"])
        if catalogue.namespace("public", renamed) is None:
            catalogue.rename_namespace("public", namespace, renamed)
    elif kind < 0.7:
        name = TopicName("public", meta.name.namespace, str(rng.randrange(9)))
        if catalogue.topic(name) is None:
            catalogue.rename_topic(meta.topic_id, name.topic)
    else:
        group = rng.choice(meta.groups) if meta.groups else None
        rng.choice(
            [
                lambda: catalogue.producer_id(rng.randbytes(1)),
                lambda: catalogue.bump_topic_epoch(meta.topic_id),
                lambda: catalogue.create_group(meta.topic_id, str(meta.next_group_id)),
                lambda: group and catalogue.delete_group(meta.topic_id, group.group_id),
                lambda: catalogue.add_schema(meta.topic_id, SchemaMeta(1, "n", b"\x00", {"a": ""})),
                lambda: catalogue.set_partitions(
                    meta.topic_id,
                    [*meta.partition_ids, catalogue.next_partition_id()],
                    partitioned=True,
                ),
            ]
        )()


@pytest.mark.parametrize("seed", range(20))
def test_a_replay_equals_the_state_with_and_without_a_snapshot(seed):
    rng = random.Random(seed)
    journal = MemoryJournal()
    catalogue = JournalCatalogue(journal, now_us=0).catalogue
    for _ in range(6):
        for _ in range(30):
            change_at_random(rng, catalogue)
        assert state_of(JournalCatalogue(journal.reopened(), now_us=0).catalogue) == state_of(
            catalogue
        )
        if rng.random() < 0.5:
            journal.extra_bytes = 1 << 40  # The next change triggers a snapshot.
        elif rng.random() < 0.5:
            journal = journal.reopened()
            catalogue = JournalCatalogue(journal, now_us=0).catalogue


def test_a_namespaces_number_can_be_set_and_removed(catalogue, journal):
    catalogue.number_namespace("public", "default", 7)
    assert catalogue.namespace_by_stream_id(MADE_ID_FIRST) is None
    (meta,) = catalogue.namespaces()
    assert catalogue.namespace_by_stream_id(7) == meta
    assert (meta.created_us, catalogue.stream_id(meta)) == (5, 7)
    assert state_of(JournalCatalogue(journal.reopened(), now_us=0).catalogue) == state_of(catalogue)
    catalogue.number_namespace("public", "default", None)
    (meta,) = catalogue.namespaces()
    assert catalogue.namespace_by_stream_id(7) is None
    assert catalogue.namespace_by_stream_id(MADE_ID_FIRST) == meta
    assert state_of(JournalCatalogue(journal.reopened(), now_us=0).catalogue) == state_of(catalogue)


def test_a_restored_number_is_not_taken_from_a_client(catalogue):
    made_id = catalogue.stream_id(catalogue.namespace("public", "default"))
    catalogue.number_namespace("public", "default", 7)
    catalogue.create_namespace("public", "shop", created_us=1, iggy_id=made_id)
    catalogue.number_namespace("public", "default", None)
    assert catalogue.namespace_by_stream_id(made_id).namespace == "shop"
    new = catalogue.stream_id(catalogue.namespace("public", "default"))
    assert new > made_id
    assert catalogue.namespace_by_stream_id(new).namespace == "default"


@pytest.mark.parametrize(
    "schema", [SchemaMeta(2, b"\xff", b"", {}), SchemaMeta(2, "name", b"", {"key": b"\xff"})]
)
def test_a_binary_schema_name_is_refused_without_effect(catalogue, journal, schema):
    meta = create(catalogue)
    before = list(journal.records)
    with pytest.raises(UnwritableChange):
        catalogue.add_schema(meta.topic_id, schema)
    assert catalogue.topic_by_id(meta.topic_id).schemas == []
    assert journal.records == before


def test_a_rename_keeps_numbers_content_and_holders(catalogue, journal):
    catalogue.create_namespace("public", "shop", created_us=1, iggy_id=7)
    before = create(catalogue, TopicName("public", "shop", "a"), partitions=2, iggy_id=3)
    catalogue.create_group(before.topic_id, "g")
    catalogue.rename_topic(before.topic_id, "b")
    catalogue.rename_namespace("public", "shop", "store")
    now = catalogue.topic(TopicName("public", "store", "b"))
    assert now == msgspec.structs.replace(before, name=now.name)
    assert before.name == TopicName("public", "shop", "a")
    assert catalogue.numbered_topics("public", "store")[3] is now is catalogue.topic_by_id(1)
    assert catalogue.namespace_by_stream_id(7).namespace == "store"
    assert catalogue.topics("public", "shop") == [] and catalogue.topic(before.name) is None
    again = JournalCatalogue(journal.reopened(), now_us=0).catalogue
    assert state_of(again) == state_of(catalogue)
    assert again.numbered_topics("public", "store")[3] == now


def test_only_a_rename_record_has_the_later_layout(catalogue, journal):
    """An earlier program reads all other records, and a snapshot."""
    meta = create(catalogue)
    catalogue.rename_topic(meta.topic_id, "b")
    catalogue.producer_id(b"p")
    assert [record[0] for record in journal.records][-2:] == [3, 2]
    assert {record[0] for record in shortened(journal).records} == {2}


def test_a_record_with_a_schema_has_the_layout_that_names_its_time(catalogue, journal):
    meta = create(catalogue)
    catalogue.add_schema(meta.topic_id, SchemaMeta(1, "", b"", {}, created_us=5))
    assert [record[0] for record in journal.records][-1] == 7
    shorter = shortened(journal)
    assert max(record[0] for record in shorter.records) == 7
    for seen in (journal.reopened(), shorter):
        (schema,) = JournalCatalogue(seen, now_us=0).catalogue.topic(meta.name).schemas
        assert schema.created_us == 5


def test_a_schema_of_an_earlier_program_has_no_time(catalogue, journal):
    meta = create(catalogue)
    added = [[7, meta.topic_id, [1, "", b"", {"a": "b"}]]]  # Change 7 without the time.
    journal.append(b"\x02" + msgspec.msgpack.encode(added))
    for seen in (journal.reopened(), shortened(journal.reopened())):
        (schema,) = JournalCatalogue(seen, now_us=0).catalogue.topic(meta.name).schemas
        assert schema == SchemaMeta(1, "", b"", {"a": "b"}, created_us=0)


def test_a_name_goes_to_the_later_holder_if_a_deletion_is_lost(catalogue, journal):
    first, two = (create(catalogue, TopicName("public", "default", name)) for name in "ab")
    catalogue.delete_topic(two.topic_id)
    end = len(journal.records) - 1
    catalogue.rename_topic(first.topic_id, "b")
    del journal.records[end]
    again = JournalCatalogue(journal.reopened(), now_us=0).catalogue
    assert [meta.topic_id for meta in again.all_topics()] == [first.topic_id]
