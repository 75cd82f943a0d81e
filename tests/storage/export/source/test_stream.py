"""The stream reader as Spark calls it, without a JVM."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export.source.offsets import DataLoss
from braidlog.storage.export.source.options import BadOption, read_options
from braidlog.storage.export.source.reading import ReadSettings
from braidlog.storage.export.source.stream import StreamReader
from braidlog.storage.export.source.table import Table
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.log.settings import LogSettings
from tests.storage.export.test_worker import TOPIC, Data, record

ALL = ReadAllAvailable()


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


def fill(data, count):
    data.append(BodyFormat.KAFKA, [record(value=b"v") for _ in range(count)])


def reader(data, **texts):
    texts = {"path": data.directory.path, **texts}
    texts |= {} if "assign" in texts else {"subscribe": texts.get("subscribe", "orders")}
    texts.setdefault("startingOffsets", "earliest")
    options = read_options(texts, streaming=True)
    return StreamReader(
        options, ReadSettings(options.place, Table(("offset",)), options.fail_on_loss)
    )


def place_at(offset, partition_id=1):
    return {TOPIC: {"0": [offset, partition_id]}}


def test_spark_receives_the_limit_of_the_options(data):
    assert reader(data).getDefaultReadLimit() == ALL
    assert reader(data, maxOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert reader(data, maxBytesPerTrigger="5").getDefaultReadLimit() == ReadMaxBytes(5)


def test_a_micro_batch_keeps_to_its_limit_and_ends_with_the_same_offset(data):
    fill(data, 7)
    stream = reader(data)
    assert stream.initialOffset() == place_at(0)
    assert stream.latestOffset(place_at(0), ReadMaxRows(5)) == place_at(5)
    assert stream.latestOffset(place_at(5), ReadMaxRows(5)) == place_at(7)
    assert stream.latestOffset(place_at(7), ReadMaxRows(5)) == place_at(7)
    assert stream.reportLatestOffset() == place_at(7)
    few = stream.latestOffset(place_at(0), ReadMaxBytes(1))
    assert few == place_at(1)


def test_rows_are_between_two_offsets(data):
    fill(data, 7)
    stream = reader(data, minPartitions="2")
    parts = stream.partitions(place_at(2), place_at(6))
    offsets = [
        row for part in parts for batch in stream.read(part) for row in batch["offset"].to_pylist()
    ]
    assert (len(parts), offsets) == (2, [2, 3, 4, 5])


def test_available_now_reads_the_log_up_to_its_start(data):
    fill(data, 3)
    stream = reader(data)
    stream.prepareForTriggerAvailableNow()
    fill(data, 3)
    assert stream.latestOffset(place_at(0), ALL) == place_at(3)
    assert stream.latestOffset(place_at(3), ALL) == place_at(3)


def test_a_small_batch_waits_for_the_delay(data):
    fill(data, 3)
    waits = reader(data, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    assert waits.latestOffset(place_at(0), ALL) == place_at(0)
    fill(data, 7)
    assert waits.latestOffset(place_at(0), ALL) == place_at(10)
    hurries = reader(data, minOffsetsPerTrigger="100", maxTriggerDelay="0s")
    assert hurries.latestOffset(place_at(0), ALL) == place_at(10)


def test_a_new_partition_begins_at_its_log_start(data):
    fill(data, 3)
    data.directory.create_partitions([NewPartition(2, TOPIC, 1)], LogSettings(), data.committer)
    ends = reader(data).latestOffset(place_at(3), ALL)
    assert ends == {TOPIC: {"0": [3, 1], "1": [0, 2]}}


def test_a_recreated_topic_is_an_error_or_read_from_its_start(data):
    fill(data, 3)
    with pytest.raises(DataLoss, match="deleted and made again"):
        reader(data).latestOffset(place_at(3, partition_id=9), ALL)
    stream = reader(data, failOnDataLoss="false")
    end = stream.latestOffset(place_at(3, partition_id=9), ALL)
    assert end == place_at(3)
    assert [part.span.start for part in stream.partitions(place_at(3, partition_id=9), end)] == [0]


def deleted_topic_reader(data, **options):
    """Return a reader of an existing and a deleted topic, and the checkpoint of the
    deleted topic.
    """
    fill(data, 3)
    return reader(data, subscribe="gone,orders", **options), {"public/default/gone": {"0": [5, 9]}}


def test_a_deleted_topic_is_an_error_or_skipped(data):
    stream, known = deleted_topic_reader(data)
    with pytest.raises(BadOption, match="no topic public/default/gone"):
        stream.latestOffset({**known, **place_at(0)}, ALL)
    stream, known = deleted_topic_reader(data, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="no topic public/default/gone"):
        end = stream.latestOffset({**known, **place_at(0)}, ALL)
    assert end == {**known, **place_at(6)}
    assert [part.span.topic for part in stream.partitions({**known, **place_at(0)}, end)] == [TOPIC]


def test_available_now_skips_a_deleted_topic(data):
    stream, known = deleted_topic_reader(data, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="no topic public/default/gone"):
        stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset({**known, **place_at(0)}, ALL) == {**known, **place_at(3)}


def test_an_assigned_deleted_partition_is_skipped(data):
    fill(data, 3)
    assign = '{"orders": [0], "gone": [0]}'
    stream = reader(data, failOnDataLoss="false", assign=assign)
    with pytest.warns(UserWarning, match="no partition 0 of topic public/default/gone"):
        assert stream.latestOffset(place_at(0), ALL) == place_at(3)


def test_a_new_stream_needs_existing_topics(data):
    """A misspelled name is not a deleted topic."""
    stream, _ = deleted_topic_reader(data, failOnDataLoss="false")
    with pytest.raises(BadOption, match="no topic public/default/gone"):
        stream.initialOffset()


def test_a_log_that_ends_before_the_checkpoint_is_an_error(data):
    with pytest.raises(DataLoss, match="the log ends at 0, not 3"):
        reader(data).latestOffset(place_at(3), ALL)
