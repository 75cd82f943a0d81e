"""Small files become larger ones, with the same rows."""

import pyarrow.parquet as parquet
import pytest

from storage.codecs.api import BodyFormat
from storage.spark.commit import Commit, ExportFolder
from storage.spark.compact import compact
from storage.spark.files import Compression
from storage.spark.ranges import Range
from storage.spark.worker import write_range
from tests.storage.spark.test_worker import DAY_US, TOPIC, Data, record


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


def export(data, run):
    """One small run over two dates."""
    start = data.log.log_end_offset
    records = [record(value=b"%d" % i, publish_us=i % 2 * DAY_US) for i in range(10)]
    data.append(BodyFormat.PLAIN, records)
    job = data.job(run)
    files = write_range(job, Range(1, 0, start, start + 10, TOPIC))
    ExportFolder(data.root).commit(Commit(run, {1: start + 10}, files))


def rows(data):
    found = parquet.read_table(data.root, columns=["offset", "value"]).to_pylist()
    return sorted((row["offset"], row["value"]) for row in found)


def test_neighbours_are_merged_and_every_row_is_there_once(data):
    for run in (1, 2, 3):
        export(data, run)
    before = rows(data)
    folder = ExportFolder(data.root)
    done = compact(folder, Compression())
    assert (len(done.files), len(done.replaced)) == (2, 6)
    assert rows(data) == before
    names = sorted(path.name for path in data.root.glob("topic=*/date=*/*.parquet"))
    assert names == ["orders+00000+1+00000000000000000000+00000000000000000030.parquet"] * 2
    assert folder.last_commit().positions == {1: 30}
    assert compact(folder, Compression()) is None
    export(data, 5)
    assert len(rows(data)) == 40
