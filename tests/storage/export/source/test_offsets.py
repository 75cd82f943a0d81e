"""Options to spans, on a real log, without a JVM."""

import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.readers import FolderReader
from braidlog.storage.export.source.offsets import DataLoss, spans, split
from braidlog.storage.export.source.options import BadOption, read_options
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.log.settings import LogSettings
from tests.storage.export.test_worker import TOPIC, Data, record


@pytest.fixture
def data(tmp_path):
    """Return a log: partition 0 has offsets 0 to 9, at 0 to 9 ms; partition 1 is empty."""
    data = Data(tmp_path)
    for number in range(0, 10, 2):
        pair = [record(publish_us=second * 1000) for second in (number, number + 1)]
        data.append(BodyFormat.PLAIN, pair)
    data.directory.create_partitions([NewPartition(2, TOPIC, 1)], LogSettings(), data.committer)
    return data


def selected_spans(data, **options_given):
    options_given.setdefault("subscribe", "orders")
    options = read_options({"path": data.directory.path, **options_given}, streaming=False)
    return [
        (span.index, span.start, span.end) for span in spans(FolderReader(options.place), options)
    ]


def test_the_default_is_the_whole_log(data):
    assert selected_spans(data) == [(0, 0, 10)]


def test_offsets_of_a_partition_and_the_default_of_the_other(data):
    with pytest.warns(UserWarning, match="orders/1"):
        assert selected_spans(data, startingOffsets='{"orders": {"0": 3}}') == [(0, 3, 10)]
    both = '{"orders": {"0": 7, "1": -1}}'
    assert selected_spans(data, endingOffsets=both) == [(0, 0, 7)]


def test_times_select_the_first_record_at_or_after(data):
    with pytest.warns(UserWarning):
        ranges = selected_spans(data, startingOffsetsByTimestamp='{"orders": {"0": 5}}')
    assert ranges == [(0, 5, 10)]
    end = {"endingTimestamp": "3", "startingOffsetsByTimestampStrategy": "latest"}
    assert selected_spans(data, **end) == [(0, 0, 3)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingTimestamp": "10"}, "no record that late"),
        ({"startingOffsets": '{"orders": {"5": 1}}'}, "partition 5 of .* is not read"),
        ({"subscribe": "other"}, "there is no topic"),
        ({"subscribePattern": "("}, "subscribePattern"),
    ],
)
def test_a_missing_topic_or_partition_is_a_clear_error(data, options, text):
    with pytest.raises(BadOption, match=text):
        selected_spans(data, **options)


def test_an_offset_beyond_the_log_is_loss_or_its_end(data):
    beyond = {"startingOffsets": '{"orders": {"0": 11, "1": 0}}'}
    with pytest.raises(DataLoss, match="11"):
        selected_spans(data, **beyond)
    with pytest.warns(UserWarning):
        assert selected_spans(data, failOnDataLoss="false", **beyond) == []


def test_patterns_match_short_and_full_names(data):
    for pattern in ("ord.*", "public/default/.*"):
        options = {"path": data.directory.path, "subscribePattern": pattern}
        read = read_options(options, streaming=False)
        assert len(spans(FolderReader(read.place), read)) == 1


def span(start, end, partition=0):
    return Range(1, partition, start, end, TOPIC)


def test_large_spans_are_split_in_proportion():
    pieces = split([span(0, 90), span(0, 10, 1)], 10, None)
    assert len([piece for piece in pieces if piece.index == 0]) == 9
    assert [(piece.start, piece.end) for piece in pieces][:2] == [(0, 10), (10, 20)]
    assert split([span(0, 5)], None, 2) == [span(0, 1), span(1, 3), span(3, 5)]
    assert split([span(0, 2)], 100, None) == [span(0, 1), span(1, 2)]
    assert split([], 4, None) == []
