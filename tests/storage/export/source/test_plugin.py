"""The data source as Spark calls it for a batch, without a JVM: schema, tasks, rows and filters."""

import json
from datetime import UTC, datetime

import pyarrow.parquet as parquet
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.errors import UnreadableBody
from braidlog.storage.export.source.offsets import DataLoss
from braidlog.storage.export.source.options import BadOption
from braidlog.storage.export.source.plugin import BraidlogSource
from braidlog.storage.export.source.stream import StreamReader
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.log.settings import LogSettings
from tests.storage.export.test_worker import TOPIC, Data, record

ROWS = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
DATA = StructType([StructField("id", LongType()), StructField("name", StringType())])
NOON = datetime(2023, 11, 14, 12, tzinfo=UTC)


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


def fill(data, *values, append_us=1_700_000_000_000_000):
    data.append(BodyFormat.KAFKA, [record(value=value, append_us=append_us) for value in values])


def source(data, **options):
    return BraidlogSource({"path": data.directory.path, "subscribe": "orders", **options})


def rows(reader):
    """Return the rows of all tasks; each task goes to a worker as bytes, with its reader."""
    all_rows = []
    for part in reader.partitions():
        sent, task = cloudpickle.loads(cloudpickle.dumps((reader, part)))
        all_rows += [row for batch in sent.read(task) for row in batch.to_pylist()]
    return all_rows


def offsets(reader):
    return [row["offset"] for row in rows(reader)]


def test_the_columns_equal_sparks_kafka_source_with_optional_columns(data):
    assert BraidlogSource.name() == "braidlog"
    plain = source(data).schema()
    names = [column.split()[0] for column in plain.split(", ")]
    assert names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert "headers" in source(data, includeHeaders="true").schema()
    valued = source(data, valueFormat="json", valueSchema="id bigint, name string").schema()
    assert valued == f"{plain}, data struct<`id`:bigint,`name`:string>"
    with pytest.raises(BadOption):
        source(data, includeHeaders="perhaps").schema()


def test_a_batch_reads_the_log_in_the_requested_number_of_tasks(data):
    fill(data, *(b"%d" % n for n in range(10)))
    reader = source(data, minPartitions="3").reader(ROWS)
    assert len(reader.partitions()) == 3
    assert rows(reader) == [{"offset": n, "value": b"%d" % n} for n in range(10)]
    small = source(data, maxRecordsPerPartition="4", startingOffsets='{"orders": {"0": 1}}')
    assert len(small.reader(ROWS).partitions()) == 3
    assert list(reader.read(InputPartition(None))) == []  # Spark's own task for an empty result.


def test_a_stream_has_the_stream_reader(data):
    assert isinstance(source(data).streamReader(ROWS), StreamReader)
    with pytest.raises(BadOption, match="a stream has no end"):
        source(data, endingOffsets="latest").streamReader(ROWS)


def test_values_are_columns_and_undecodable_values_follow_the_option(data, tmp_path):
    fill(data, b'{"id": 1, "name": "a"}', b"no JSON", b'{"id": 3}')
    both = StructType([StructField("offset", LongType()), StructField("data", DATA)])
    options = {"valueFormat": "json", "valueSchema": "id bigint, name string"}
    with pytest.raises(UnreadableBody, match="offset 1 of public/default/orders partition 0"):
        rows(source(data, **options).reader(both))
    skipped = rows(source(data, corrupt="skip", **options).reader(both))
    assert [row["data"] and row["data"]["id"] for row in skipped] == [1, None, 3]
    dead = tmp_path / "dead"
    options |= {"corrupt": "deadletter", "deadLetterPath": str(dead)}
    for _ in range(2):  # A repeated task writes its own file again.
        readable = rows(source(data, **options).reader(both))
        assert [row["offset"] for row in readable] == [0, 2]
        (file,) = dead.iterdir()
        (letter,) = parquet.read_table(file).to_pylist()
        assert (letter["offset"], letter["body"], letter["topic"]) == (1, b"no JSON", TOPIC)


def test_the_column_of_values_needs_their_format(data):
    schema = StructType([StructField("data", DATA)])
    with pytest.raises(BadOption, match="needs valueFormat"):
        source(data).reader(schema)


def test_an_unreadable_body_follows_the_option(data, tmp_path):
    fill(data, b"good")
    data.append_body(b"\xff" * 40, BodyInfo(3), BodyFormat.PULSAR, 1)
    fill(data, b"good")
    with pytest.raises(UnreadableBody, match="option corrupt can skip it"):
        rows(source(data).reader(ROWS))
    assert offsets(source(data, corrupt="skip").reader(ROWS)) == [0, 4]
    dead = tmp_path / "dead"
    options = {"corrupt": "deadletter", "deadLetterPath": str(dead)}
    assert offsets(source(data, **options).reader(ROWS)) == [0, 4]
    (letter,) = parquet.read_table(next(dead.iterdir())).to_pylist()
    assert (letter["offset"], letter["count"], letter["body"]) == (1, 3, b"\xff" * 40)


def filtered(data, *filters, **options):
    """Return the read offsets, and the filters that Spark must apply itself."""
    reader = source(data, filterPushdown="true", **options).reader(ROWS)
    left = list(reader.pushFilters(list(filters)))
    return offsets(reader), left


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([EqualTo(("offset",), 3)], [3]),
        ([GreaterThan(("offset",), 3), LessThan(("offset",), 6)], [4, 5]),
        ([GreaterThanOrEqual(("offset",), 3), LessThanOrEqual(("offset",), 4)], [3, 4]),
        ([GreaterThan(("offset",), 90)], []),
        ([EqualTo(("partition",), 0)], [*range(8)]),
        ([EqualTo(("partition",), 1)], []),
        ([In(("partition",), (0, 5))], [*range(8)]),
        ([In(("partition",), (4, 5))], []),
        ([EqualTo(("topic",), TOPIC)], [*range(8)]),
        ([EqualTo(("topic",), "orders")], []),
        ([In(("topic",), ("x", TOPIC))], [*range(8)]),
        ([In(("topic",), ("x",))], []),
        ([StringStartsWith(("topic",), "public/")], [*range(8)]),
        ([StringStartsWith(("topic",), "private/")], []),
        ([IsNotNull(("offset",)), IsNotNull(("topic",))], [*range(8)]),
    ],
    ids=str,
)
def test_filters_on_partition_and_offset_are_pushed_down(data, filters, read):
    fill(data, *(b"%d" % n for n in range(8)))
    assert filtered(data, *filters) == (read, [])


@pytest.mark.parametrize(
    "expression",
    [
        IsNotNull(("value",)),
        EqualTo(("value",), b"1"),
        EqualNullSafe(("offset",), 3),
        EqualNullSafe(("topic",), TOPIC),
        LessThan(("partition",), 1),
        GreaterThan(("offset",), 1.5),
        LessThan(("timestamp",), NOON),
    ],
    ids=str,
)
def test_other_filters_are_left_to_spark(data, expression):
    fill(data, *(b"%d" % n for n in range(8)))
    assert filtered(data, expression) == ([*range(8)], [expression])


@pytest.mark.parametrize("kind", [GreaterThan, GreaterThanOrEqual])
def test_a_time_filter_skips_older_records_and_spark_filters_the_rest(data, kind):
    noon_us = int(NOON.timestamp() * 1_000_000)
    for hours in range(-2, 3):
        fill(data, b"v", append_us=noon_us + hours * 3_600_000_000)
    later = kind(("timestamp",), NOON)
    read, left = filtered(data, kind(("timestamp",), NOON.replace(hour=11)), later)
    assert (read[0], read[-1]) == (2, 4)
    assert later in left and len(left) == 2
    assert filtered(data, kind(("timestamp",), NOON.replace(year=2100)))[0] == []


def test_removed_records_are_an_error_or_skipped(data):
    fill(data, *(b"%d" % n for n in range(4)))
    fill(data, *(b"%d" % n for n in range(4, 8)))
    readers = [source(data, failOnDataLoss=choice).reader(ROWS) for choice in ("true", "false")]
    parts = readers[0].partitions()
    data.log.delete_below(4)
    data.committer.commit()
    with pytest.raises(DataLoss, match="offsets 0 to 3 are no longer in the log"):
        [*readers[0].read(parts[0])]
    offsets = [row["offset"] for batch in readers[1].read(parts[0]) for row in batch.to_pylist()]
    assert offsets == [4, 5, 6, 7]


def test_a_deleted_partition_is_an_error_or_has_no_rows(data):
    fill(data, b"v")
    readers = [source(data, failOnDataLoss=choice).reader(ROWS) for choice in ("true", "false")]
    (part,) = readers[0].partitions()
    object.__setattr__(part.span, "partition_id", 99)
    with pytest.raises(DataLoss, match="orders partition 0 is gone"):
        [*readers[0].read(part)]
    assert [*readers[1].read(part)] == []


def test_an_older_log_is_an_error(data):
    fill(data, b"v")
    (part,) = source(data).reader(ROWS).partitions()
    object.__setattr__(part.span, "end", 5)
    with pytest.raises(DataLoss, match="the log ends at 1, not 5: is it an older one"):
        [*source(data).reader(ROWS).read(part)]


def test_several_partitions_by_assignment(data):
    second = data.directory.create_partitions(
        [NewPartition(2, TOPIC, 1)], LogSettings(), data.committer
    )
    assert second
    fill(data, b"v")
    options = {"path": data.directory.path, "assign": json.dumps({"orders": [0, 1]})}
    columns = StructType(
        [StructField("partition", IntegerType()), StructField("offset", LongType())]
    )
    assert rows(BraidlogSource(options).reader(columns)) == [{"partition": 0, "offset": 0}]
    options["assign"] = json.dumps({"orders": [7]})
    with pytest.raises(BadOption, match="there is no partition 7"):
        BraidlogSource(options).reader(columns).partitions()
