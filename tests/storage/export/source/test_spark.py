"""The data source in a real Spark: batch, filters, streams. All tests share a JVM."""

import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.record import Header
from braidlog.storage.log.settings import LogSettings
from tests.storage.export.test_worker import TOPIC, Data, record

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def spark(spark_export):
    return spark_export.started()


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


def fill(data, first, last, body_format=BodyFormat.KAFKA):
    data.append(body_format, [record(key=b"k", value=b"%d" % i) for i in range(first, last)])


def frame(spark, data, **options):
    options = {"path": data.directory.path, "subscribe": "orders", **options}
    return spark.read.format("braidlog").options(**options)


def test_a_topic_is_a_data_frame_with_the_columns_of_sparks_kafka_source(spark, data):
    fill(data, 0, 30)
    fill(data, 30, 50, BodyFormat.PULSAR)
    rows = frame(spark, data).load()
    assert rows.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    ]
    shown = rows.selectExpr("offset", "CAST(value AS STRING) AS value", "topic").collect()
    assert [(row.offset, row.value) for row in shown] == [(i, str(i)) for i in range(50)]
    assert shown[0].topic == TOPIC


def test_headers_metadata_and_chosen_columns(spark, data):
    sent = record(value=b"v", headers=[Header(b"a", b"1")], ordering_key=b"o")
    data.append(BodyFormat.PLAIN, [sent])
    rows = frame(spark, data, includeHeaders="true", includeMetadata="true").load()
    row = rows.first()
    assert (row.headers[0].key, row.headerKinds, row.orderingKey) == ("a", [2], b"o")
    chosen = frame(spark, data).schema("partition int, offset bigint").load()
    assert chosen.collect() == [(0, 0)]


def test_offsets_partitions_and_filters(spark, data):
    fill(data, 0, 100)
    options = {
        "startingOffsets": '{"orders": {"0": 20}}',
        "endingOffsets": '{"orders": {"0": 60}}',
        "minPartitions": "3",
    }
    rows = frame(spark, data, **options).load()
    assert rows.rdd.getNumPartitions() == 3
    assert rows.count() == 40
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = frame(spark, data, filterPushdown="true").load()
        selected = rows.where("offset >= 90 AND offset < 95 AND topic LIKE 'public/%'")
        assert sorted(row.offset for row in selected.collect()) == [90, 91, 92, 93, 94]
        assert rows.where("timestamp > TIMESTAMP'2100-01-01'").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_no_records_are_an_empty_data_frame_and_invalid_options_an_error(spark, data):
    assert frame(spark, data).load().count() == 0
    with pytest.raises(Exception, match="there is no topic public/default/nothing"):
        frame(spark, data, subscribe="nothing").load().count()


def stream(spark, data, checkpoint, **options):
    """Run a query over the present log; return the rows of each micro-batch."""
    options = {"path": data.directory.path, "subscribe": "orders", **options}
    options.setdefault("startingOffsets", "earliest")
    seen = []

    def keep(rows, _):
        seen.append(sorted(row.offset for row in rows.select("offset").collect()))

    source = spark.readStream.format("braidlog").options(**options).load()
    query = source.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return seen


def test_a_stream_continues_from_its_checkpoint_in_bounded_batches(spark, data, tmp_path):
    fill(data, 0, 50)
    first = stream(spark, data, tmp_path / "checkpoint", maxOffsetsPerTrigger="20")
    assert [len(batch) for batch in first] == [20, 20, 10]
    fill(data, 50, 60)
    grown = data.directory.create_partitions(
        [NewPartition(2, TOPIC, 1)], LogSettings(), data.committer
    )[0]
    data.log, earlier_log = grown, data.log
    fill(data, 0, 5)
    data.log = earlier_log
    second = stream(spark, data, tmp_path / "checkpoint")
    assert sorted(offset for batch in second for offset in batch) == sorted(
        [*range(50, 60), *range(5)]
    )
    assert stream(spark, data, tmp_path / "checkpoint") == []


def test_json_values_become_a_column(spark, data):
    values = [b'{"id": 1}', b"no json", None]
    data.append(BodyFormat.KAFKA, [record(value=value) for value in values])
    options = {"valueFormat": "json", "valueSchema": "id bigint", "corrupt": "skip"}
    rows = frame(spark, data, **options).load().select("offset", "data.id").collect()
    assert [tuple(row) for row in rows] == [(0, 1), (1, None), (2, None)]
