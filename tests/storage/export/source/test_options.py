"""The options of the data source, compared with the table of the guide to Spark's Kafka source."""

import pytest

from braidlog.storage.export.places import store_place
from braidlog.storage.export.source.options import (
    EARLIEST,
    LATEST,
    BadOption,
    Edge,
    Selection,
    TriggerLimits,
    ValueFormat,
    read_more_columns,
    read_options,
)

ORDERS = "public/default/orders"


def read(streaming=False, **options):
    return read_options({"path": "/data", "subscribe": "orders", **options}, streaming=streaming)


def test_names_ignore_case_and_defaults_equal_kafkas_source():
    options = read_options({"PATH": "/data", "Subscribe": "orders"}, streaming=False)
    assert options.selection == Selection(topics=(ORDERS,))
    assert (options.starting, options.ending) == (Edge(EARLIEST), Edge(LATEST))
    assert (options.fail_on_loss, options.corrupt) == (True, "fail")
    assert read_more_columns({"IncludeHeaders": "true"}) == (True, False)
    assert read(streaming=True).starting == Edge(LATEST)


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        ({"subscribe": "a, t/n/b"}, Selection(topics=("public/default/a", "t/n/b"))),
        ({"subscribePattern": "or.*"}, Selection(pattern="or.*")),
        ({"assign": '{"a": [0, 2]}'}, Selection(assigned={"public/default/a": (0, 2)})),
    ],
)
def test_topics_are_given_by_list_pattern_or_assignment(options, selection):
    assert read_options({"path": "x", **options}, streaming=False).selection == selection


def test_offsets_of_single_partitions_and_times():
    assert read(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting == Edge(
        EARLIEST, offsets={ORDERS: {0: 23, 1: EARLIEST}}
    )
    assert read(startingTimestamp="5").starting == Edge(EARLIEST, time_us=5_000)
    by_time = read(endingOffsetsByTimestamp='{"orders": {"0": 7}}').ending
    assert by_time == Edge(LATEST, times_us={ORDERS: {0: 7_000}})


def test_a_global_time_precedes_times_and_offsets():
    options = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"orders": {"0": 7}}',
        "startingOffsets": "earliest",
    }
    assert read(**options).starting.time_us == 5_000
    del options["startingTimestamp"]
    assert read(**options).starting.times_us == {ORDERS: {0: 7_000}}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribePattern": "x"}, "exactly one of subscribe"),
        ({"broker": "localhost:8080"}, "exactly one of path"),
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffsets": "latest"}, "for streams"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "for streams"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "would read nothing"),
        ({"startingOffsets": "soon"}, "not JSON"),
        ({"startingOffsets": '{"orders": {"x": 1}}'}, "partitions are numbers"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "no lower number"),
        ({"startingTimestamp": "today"}, "no number"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"corrupt": "ignore"}, "one of fail, skip, deadletter"),
        ({"corrupt": "deadletter"}, "go together"),
        ({"valueFormat": "xml"}, "json or avro"),
        ({"valueSchema": "x"}, "needs valueFormat"),
        ({"minPartition": "2"}, "no option 'minpartition'"),
        ({"store": "s3://b/p"}, "exactly one of path"),
        ({"database": "host=db"}, "database goes with store"),
        ({"endpoint": "http://s3"}, "endpoint goes with store"),
    ],
)
def test_invalid_options_are_a_clear_error(options, text):
    with pytest.raises(BadOption, match=text):
        read(**options)


def test_streams_have_limits_and_no_end():
    options = read(streaming=True, maxOffsetsPerTrigger="9", minOffsetsPerTrigger="2")
    assert options.limits == TriggerLimits(9, None, 2, 900)
    assert read(streaming=True, maxTriggerDelay="30s").limits.delay_s == 30
    with pytest.raises(BadOption, match="above"):
        read(streaming=True, maxOffsetsPerTrigger="1", minOffsetsPerTrigger="2")
    with pytest.raises(BadOption, match="no end"):
        read(streaming=True, endingOffsets="latest")


def test_foreign_options_are_reported_and_ignored():
    with pytest.warns(UserWarning, match="kafka.bootstrap.servers is ignored"):
        read(**{"kafka.bootstrap.servers": "localhost:9092"})
    with pytest.warns(UserWarning, match="for streams"):
        assert read(maxOffsetsPerTrigger="5").limits == TriggerLimits()


def test_a_broker_is_a_url():
    texts = {"broker": "host:8080", "subscribe": "a", "valueFormat": "json", "valueSchema": "s"}
    options = read_options(texts, streaming=False)
    assert (options.place, options.value_format) == ("http://host:8080", ValueFormat("json", "s"))


def test_a_store_is_a_place_without_passwords():
    options = {
        "store": "s3://b/p",
        "database": "host=db",
        "endpoint": "http://s3",
        "subscribe": "a",
    }
    assert read_options(options, streaming=True).place == store_place(
        "s3://b/p", "host=db", "http://s3"
    )
    with pytest.raises(BadOption, match="PGPASSWORD"):
        read_options({**options, "database": "host=db password=x"}, streaming=False)
    with pytest.raises(BadOption, match="store: 'b'"):
        read_options({**options, "store": "b"}, streaming=False)
