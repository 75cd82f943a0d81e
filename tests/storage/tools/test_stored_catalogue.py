import pytest

from braidlog.storage.metadata.catalogue_records import SchemaMeta
from braidlog.storage.tools.stored_catalogue import read_catalogue
from tests.storage.log.directories import Directory, snapshot_of


@pytest.mark.parametrize("ending", ["running", "stop", "crash"])
def test_the_stored_catalogue_is_the_durable_state(tmp_path, ending):
    one = Directory(tmp_path / "data")
    topic_id = one.make_topic("bills", 2)
    one.catalogue.add_schema(topic_id, SchemaMeta(4, "", b"{}", {}))
    one.committer.commit()
    one.catalogue.add_schema(topic_id, SchemaMeta(1, "", b"", {}))  # Not yet on disk.
    before = snapshot_of(one.path)
    found = {meta.name.full: meta for meta in read_catalogue(one.path).all_topics()}
    assert snapshot_of(one.path) == before
    assert sorted(found) == ["public/default/bills", "public/default/orders"]
    assert [schema.type for schema in found["public/default/bills"].schemas] == [4]
    if ending != "running":
        one.committer.commit()
        getattr(one, ending)()
        names = {meta.name.full: meta for meta in read_catalogue(one.path).all_topics()}
        assert [schema.type for schema in names["public/default/bills"].schemas] == [4, 1]


def test_snapshots_are_read_too(tmp_path):
    one = Directory(tmp_path / "data")
    for number in range(20):
        one.make_topic(f"t{number}", 1)
    one.catalogue.writer.rewrite()
    one.committer.commit()
    one.make_topic("last", 1)
    names = {meta.name.topic for meta in read_catalogue(one.path).all_topics()}
    assert names == {"orders", "last", *(f"t{number}" for number in range(20))}


def test_a_folder_without_a_catalogue_is_an_error(tmp_path):
    with pytest.raises(OSError):
        read_catalogue(tmp_path)
