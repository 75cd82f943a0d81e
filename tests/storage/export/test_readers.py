"""The log's folder as the export and the source see it beside a running broker."""

import shutil

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export.readers import FolderReader
from tests.storage.log.logs import OneLog


def test_a_topic_deleted_while_partitions_are_listed_is_left_out(tmp_path):
    opened = OneLog(tmp_path)
    new = [NewPartition(2, "public/default/clicks", 0)]
    opened.data_dir.create_partitions(new, opened.settings, opened.committer)

    def is_wanted(topic):
        if topic == "public/default/clicks":
            shutil.rmtree(opened.data_dir.partition_folder(2))
        return True

    states = FolderReader(str(tmp_path)).partitions(is_wanted)
    assert [state.topic for state in states] == ["public/default/orders"]
