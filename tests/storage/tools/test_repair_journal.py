import shutil

import pytest

from braidlog.storage.errors import DamagedLog
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.segment_header import KIND_CURSORS
from braidlog.storage.log.watermark import read_watermark
from braidlog.storage.metadata.catalogue_records import EpochSet, SchemaAdded, SchemaMeta
from braidlog.storage.metadata.cursors import Unsubscribed, new_subscription
from braidlog.storage.metadata.node_records import NodeMade
from braidlog.storage.metadata.nodes import OPEN, StoredNodes
from braidlog.storage.tools.findings import Level
from tests.storage.log.directories import (
    GROUP,
    LogDirectory,
    batch_places,
    journal_segment,
    levels,
    repaired,
    snapshot_of,
    verified,
)
from tests.storage.log.logs import flip
from tests.storage.tools.conftest import END, SMALL


def test_lost_commits_restore_the_earlier_position(crashed):
    directory = LogDirectory(crashed.path, **SMALL)
    directory.move_cursor(7)
    directory.move_cursor(9)
    directory.crash()
    file_pos, offset = batch_places(crashed.path, "cursors")[-1]
    flip(journal_segment(crashed.path, "cursors"), file_pos + HEADER_BYTES + 1)
    with pytest.raises(DamagedLog):
        LogDirectory(crashed.path, **SMALL)
    lines, _ = repaired(crashed.path)
    assert f"cursors: the changes at offset {offset} are lost" in lines[0]
    assert list((crashed.path / "set-aside").glob("cursors.*.log"))
    slot = read_watermark(str(crashed.path / "cursors"), 1, KIND_CURSORS)
    assert slot.log_start_offset == int(journal_segment(crashed.path, "cursors").stem)
    again = LogDirectory(crashed.path, **SMALL)
    assert again.cursors.get(1, 0, GROUP).position == 7
    again.move_cursor(11)
    again.stop()
    assert LogDirectory(crashed.path, **SMALL).cursors.get(1, 0, GROUP).position == 11


def test_changes_that_depend_on_a_lost_change_are_dropped_and_reported(crashed):
    """The record that created the subscription is lost: commits to the subscription are
    meaningless.
    """
    file_pos, _ = batch_places(crashed.path, "cursors")[0]
    flip(journal_segment(crashed.path, "cursors"), file_pos + HEADER_BYTES + 1)
    lines, _ = repaired(crashed.path)
    assert any("with them goes: Moved of unknown" in line for line in lines)
    assert verified(crashed.path)[1].faults == 0
    again = LogDirectory(crashed.path, **SMALL)
    assert again.cursors.names(1) == []
    assert len(again.values()) == END


def test_a_topic_with_a_lost_record_is_recreated_from_its_folders(crashed):
    places_there = batch_places(crashed.path, "catalogue")
    file_pos, _ = places_there[1]  # The first batch created the namespace.
    flip(journal_segment(crashed.path, "catalogue"), file_pos + HEADER_BYTES + 1)
    lines, _ = repaired(crashed.path)
    assert any("public/default/orders is made again from its 2 folders" in line for line in lines)
    findings, report = verified(crashed.path)
    assert report.faults == 0, findings
    again = LogDirectory(crashed.path, **SMALL)
    (meta,) = again.catalogue.all_topics()
    assert (meta.name.full, meta.partition_ids) == ("public/default/orders", [1, 2])
    assert meta.topic_id > 1, "the cursors of the old number are not those of this topic"
    assert again.aside == []
    assert len(again.values()) == END


def test_a_folder_without_a_claim_is_reported(crashed):
    file_pos, _ = batch_places(crashed.path, "catalogue")[1]
    flip(journal_segment(crashed.path, "catalogue"), file_pos + HEADER_BYTES + 1)
    flip(crashed.file("topic", 2), 34)
    lines, _ = repaired(crashed.path)
    assert any("made again from its 1 folders" in line for line in lines)
    assert "  nothing says whose folder 2 is: a start sets it aside" in lines


def test_a_lost_deletion_does_not_restore_a_topic(crashed):
    directory = LogDirectory(crashed.path, **SMALL)
    topic_id = directory.make_topic("clicks", 1)
    directory.catalogue.delete_topic(topic_id)
    directory.cursors.drop_topic(topic_id)
    directory.committer.commit()
    directory.data_dir.retire_partition(3)
    directory.crash()
    file_pos, _ = batch_places(crashed.path, "catalogue")[-1]
    flip(journal_segment(crashed.path, "catalogue"), file_pos + HEADER_BYTES + 1)
    lines, _ = repaired(crashed.path)
    assert any("clicks goes: it has no folder" in line for line in lines)
    again = LogDirectory(crashed.path, **SMALL)
    assert [meta.name.topic for meta in again.catalogue.all_topics()] == ["orders"]


@pytest.mark.parametrize("journal", ["catalogue", "cursors"])
def test_a_missing_journal_is_recreated(crashed, journal):
    shutil.rmtree(crashed.path / journal)
    before = snapshot_of(crashed.path / "partitions")
    with pytest.raises(DamagedLog, match="the journal is missing"):
        LogDirectory(crashed.path, **SMALL)
    assert snapshot_of(crashed.path / "partitions") == before
    assert list((crashed.path / "set-aside").iterdir()) == []
    assert not (crashed.path / journal).exists()
    lines, _ = repaired(crashed.path)
    assert f"{journal}: everything in it is lost" in lines[0]
    findings, report = verified(crashed.path)
    assert report.faults == 0, findings
    again = LogDirectory(crashed.path, **SMALL)
    assert len(again.values()) == END
    assert again.aside == []
    again.stop()
    assert verified(crashed.path)[1].faults == 0


def test_a_journal_header_is_repaired_without_loss(crashed):
    flip(journal_segment(crashed.path, "cursors"), 9)
    lines, _ = repaired(crashed.path)
    assert "nothing is lost by this" in lines[0]
    assert LogDirectory(crashed.path, **SMALL).cursors.get(1, 0, GROUP).position == 5


def test_a_producer_name_never_gets_the_number_of_another(crashed):
    """A batch header may hold the number. The record of the second of three names is lost."""
    directory = LogDirectory(crashed.path, **SMALL)
    assert [directory.catalogue.producer_id(name) for name in (b"a", b"b", b"c")] == [1, 2, 3]
    directory.committer.commit()
    directory.crash()
    file_pos, _ = batch_places(crashed.path, "catalogue")[-2]
    flip(journal_segment(crashed.path, "catalogue"), file_pos + HEADER_BYTES + 1)
    repaired(crashed.path)
    again = LogDirectory(crashed.path, **SMALL)
    assert [again.catalogue.producer_id(name) for name in (b"a", b"c", b"new")] == [1, 3, 4]


def write_unreadable(directory, journal, *changes):
    """Write a record without the checks, as an earlier broker did."""
    opened = {"catalogue": directory.catalogue.writer, "cursors": directory.cursors}[
        journal
    ]._journal
    opened._journal.append(opened._body(changes))
    directory.committer.commit()


def test_a_binary_schema_name_is_repairable_damage(crashed):
    """Written by a broker that did not check its clients' names."""
    directory = LogDirectory(crashed.path, **SMALL)
    bad = SchemaAdded(1, SchemaMeta(2, b"\xff", b"", {}))
    write_unreadable(directory, "catalogue", bad, EpochSet(1, 7))
    directory.crash()
    file_pos, offset = batch_places(crashed.path, "catalogue")[-1]
    with pytest.raises(DamagedLog, match="a record cannot be read: Expected `str`") as refused:
        LogDirectory(crashed.path, **SMALL)
    assert (refused.value.file_pos, refused.value.offset) == (file_pos, offset)
    (fault,) = levels(verified(crashed.path)[0], Level.FAULT)
    assert (fault.file_pos, fault.offset, fault.path) == (file_pos, offset, refused.value.path)
    lines, refusals = repaired(crashed.path)
    assert refusals == []
    assert any("a change cannot be read" in line for line in lines)
    assert verified(crashed.path)[1].faults == 0
    again = LogDirectory(crashed.path, **SMALL)
    (meta,) = again.catalogue.all_topics()
    assert (meta.schemas, meta.topic_epoch) == ([], 7), "the rest of that record is kept"
    assert again.cursors.get(1, 0, GROUP).position == 5
    assert len(again.values()) == END


def test_a_binary_property_is_repairable_damage(crashed):
    directory = LogDirectory(crashed.path, **SMALL)
    write_unreadable(directory, "cursors", new_subscription(1, b"bad", 2, {"key": b"\xff"}))
    directory.crash()
    with pytest.raises(DamagedLog, match="a record cannot be read"):
        LogDirectory(crashed.path, **SMALL)
    assert verified(crashed.path)[1].faults == 1
    repaired(crashed.path)
    again = LogDirectory(crashed.path, **SMALL)
    assert again.cursors.names(1) == [GROUP]
    assert again.cursors.get(1, 0, GROUP).position == 5


def test_a_change_of_a_missing_object_is_repairable_damage(crashed):
    directory = LogDirectory(crashed.path, **SMALL)
    write_unreadable(directory, "cursors", Unsubscribed(99, b"nobody"))
    directory.crash()
    with pytest.raises(DamagedLog, match="Unsubscribed of unknown 99"):
        LogDirectory(crashed.path, **SMALL)
    assert verified(crashed.path)[1].faults == 1
    repaired(crashed.path)
    assert LogDirectory(crashed.path, **SMALL).cursors.get(1, 0, GROUP).position == 5


def test_a_lost_change_of_nodes_is_named_and_all_others_are_kept(crashed):
    directory = LogDirectory(crashed.path, **SMALL)
    nodes = StoredNodes(directory.data_dir.open_journal("nodes", directory.committer))
    for zxid, path in enumerate(("/a", "/lost", "/b"), 1):
        nodes.apply(NodeMade(path, b"x", OPEN, 0, zxid, 1))
        nodes.write()
    directory.committer.commit()
    directory.crash()
    assert verified(crashed.path)[1].faults == 0
    file_pos, _ = batch_places(crashed.path, "nodes")[1]
    flip(journal_segment(crashed.path, "nodes"), file_pos + HEADER_BYTES + 1)
    (fault,) = levels(verified(crashed.path)[0], Level.FAULT)
    assert (fault.log, fault.file_pos) == ("nodes", file_pos)
    lines, _ = repaired(crashed.path)
    assert "nodes: the changes at offset 1 are lost" in lines[0]
    assert verified(crashed.path)[1].faults == 0
    again = LogDirectory(crashed.path, **SMALL)
    left = StoredNodes(again.data_dir.open_journal("nodes", again.committer))
    assert set(left.nodes) == {"/", "/a", "/b"}
