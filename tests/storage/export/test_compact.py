"""Small files are merged into larger files, with the same rows."""

import pyarrow.parquet as parquet
import pytest

from braidlog.storage.export.commit import Commit, ExportFolder
from braidlog.storage.export.compact import compact, show_hidden_files
from braidlog.storage.export.files import Compression
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.worker import write_range
from braidlog.storage.formats.api import BodyFormat
from tests.storage.export.test_worker import DAY_US, TOPIC, Data, record


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


HIDDEN_TOPIC = "public/default/_x"


def export(data, run, topic=TOPIC):
    """Export a small run over two dates."""
    start = data.log.log_end_offset
    records = [record(value=b"%d" % i, publish_us=i % 2 * DAY_US) for i in range(10)]
    data.append(BodyFormat.PLAIN, records)
    job = data.job(run)
    files = write_range(job, Range(1, 0, start, start + 10, topic))
    ExportFolder(data.root).commit(Commit(run, {1: start + 10}, files))


def rows(data):
    table = parquet.read_table(data.root, columns=["offset", "value"]).to_pylist()
    return sorted((row["offset"], row["value"]) for row in table)


def test_neighbours_are_merged_and_every_row_appears_once(data):
    for run in (1, 2, 3):
        export(data, run)
    before = rows(data)
    folder = ExportFolder(data.root)
    done = compact(folder, Compression())
    assert (len(done.files), len(done.replaced)) == (2, 6)
    assert rows(data) == before
    names = sorted(path.name for path in data.root.glob("topic=*/date=*/*.parquet"))
    assert names == ["records+orders+00000+1+00000000000000000000+00000000000000000030.parquet"] * 2
    assert folder.last_commit().positions == {1: 30}
    assert compact(folder, Compression()) is None
    export(data, 5)
    assert len(rows(data)) == 40


@pytest.fixture
def hidden(tmp_path):
    """Return an export of a topic named `_x`, with the file names of earlier releases."""
    data = Data(tmp_path, topic=HIDDEN_TOPIC)
    for run in (1, 2):
        export(data, run, HIDDEN_TOPIC)
    for path in data.root.glob("topic=*/**/*.parquet"):
        path.rename(path.with_name(path.name.removeprefix("records+")))
    return data


def test_readers_skip_files_of_earlier_releases_until_the_files_are_renamed(hidden):
    folder = ExportFolder(hidden.root)
    assert parquet.read_table(hidden.root).num_rows == 0
    shown = show_hidden_files(folder)
    assert (len(shown.files), len(shown.replaced)) == (4, 4)
    assert [offset for offset, _ in rows(hidden)] == list(range(20))
    assert sum(file.rows for file in shown.files) == 20
    assert folder.last_commit().positions == {1: 20}
    assert show_hidden_files(folder) is None


@pytest.mark.parametrize("moved", [0, 1, 3, 4])
def test_a_killed_rename_is_finished(hidden, moved):
    folder = ExportFolder(hidden.root)
    before = {path.name: path.read_bytes() for path in hidden.root.glob("topic=*/**/_*.parquet")}
    shown = show_hidden_files(folder)
    records = hidden.root / "_export"
    (records / "commits" / f"{shown.run:020d}.json").rename(
        records / "prepared" / f"{shown.run:020d}.json"
    )
    for file in shown.files[moved:]:
        (hidden.root / file.final).rename(file.staged)
    assert folder.finish_prepared() == shown
    after = {path.name: path.read_bytes() for path in hidden.root.glob("topic=*/**/*.parquet")}
    assert after == {f"records+{name}": content for name, content in before.items()}
    assert [offset for offset, _ in rows(hidden)] == list(range(20))


def test_a_merge_with_files_of_earlier_releases_is_visible(hidden):
    export(hidden, 3, HIDDEN_TOPIC)
    compact(ExportFolder(hidden.root), Compression())
    assert [offset for offset, _ in rows(hidden)] == list(range(30))
