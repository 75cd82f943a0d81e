import pytest

from braidlog.storage.metadata.catalogue_records import SchemaMeta
from braidlog.storage.tools.stored_catalogue import read_catalogue
from tests.storage.log.directories import LogDirectory, snapshot_of


@pytest.mark.parametrize("ending", ["running", "stop", "crash"])
def test_the_stored_catalogue_is_the_durable_state(tmp_path, ending):
    directory = LogDirectory(tmp_path / "data")
    topic_id = directory.make_topic("bills", 2)
    directory.catalogue.add_schema(topic_id, SchemaMeta(4, "", b"{}", {}))
    directory.committer.commit()
    directory.catalogue.add_schema(topic_id, SchemaMeta(1, "", b"", {}))  # Not yet on disk.
    before = snapshot_of(directory.path)
    topics = {meta.name.full: meta for meta in read_catalogue(directory.path).all_topics()}
    assert snapshot_of(directory.path) == before
    assert sorted(topics) == ["public/default/bills", "public/default/orders"]
    assert [schema.type for schema in topics["public/default/bills"].schemas] == [4]
    if ending != "running":
        directory.committer.commit()
        getattr(directory, ending)()
        names = {meta.name.full: meta for meta in read_catalogue(directory.path).all_topics()}
        assert [schema.type for schema in names["public/default/bills"].schemas] == [4, 1]


def test_snapshots_are_read_too(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    for number in range(20):
        directory.make_topic(f"t{number}", 1)
    directory.catalogue.writer.rewrite()
    directory.committer.commit()
    directory.make_topic("last", 1)
    names = {meta.name.topic for meta in read_catalogue(directory.path).all_topics()}
    assert names == {"orders", "last", *(f"t{number}" for number in range(20))}


def test_a_folder_without_a_catalogue_is_an_error(tmp_path):
    with pytest.raises(OSError):
        read_catalogue(tmp_path)
