"""The files of a task, from logs of every body format, without a JVM."""

import pyarrow.parquet as parquet
import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export.commit import Commit, ExportFolder, StagedFile
from braidlog.storage.export.files import FILES_MAX, TableSettings
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.worker import DeadLetters, Job, TaskFailed, write_range
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.formats.columns.schema import FILE_SCHEMA
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.settings import LogSettings
from tests.storage.open_directories import open_directory

TOPIC = "public/default/orders"
DAY_US = 86_400_000_000
TABLE = TableSettings()


@pytest.fixture
def data(tmp_path):
    """Return a data directory with a partition; `append(format, records)` makes the records
    durable.
    """
    return Data(tmp_path)


class Data:
    def __init__(self, tmp_path, topic=TOPIC):
        self.root = tmp_path / "out"
        self.directory = open_directory(tmp_path / "data")
        self.committer = Committer(self.directory.files)
        self.log = self.directory.create_partitions(
            [NewPartition(1, topic, 0)], LogSettings(), self.committer
        )[0]
        self.folder = str(tmp_path / "data" / "partitions" / "1")

    def append(self, body_format, records):
        base = self.log.log_end_offset
        for number, record in enumerate(records):
            record.offset = base + number
        codec = codec_for(body_format)
        body = codec.encode(records, base)
        self.append_body(body, codec.inspect(body), body_format, records[0].append_us)

    def append_body(self, body, info, body_format, append_us):
        self.log.append([body], info, body_format=body_format, append_us=append_us)
        self.committer.commit()

    def export(self, start=0, end=None, on_corrupt="fail", table=TABLE):
        part = Range(1, 0, start, self.log.log_end_offset if end is None else end, TOPIC)
        return write_range(self.job(1, on_corrupt, table), part)

    def job(self, run, on_corrupt="fail", table=TABLE):
        return Job(str(self.root), self.directory.path, run, on_corrupt, table)


def rows_of(outcomes):
    files = [outcome for outcome in outcomes if isinstance(outcome, StagedFile)]
    assert len(files) == len(outcomes), outcomes
    all_rows = []
    for file in files:
        table = parquet.read_table(file.staged)
        assert table.schema.equals(FILE_SCHEMA)
        assert table.num_rows == file.rows
        all_rows += table.to_pylist()
    return sorted(all_rows, key=lambda row: row["offset"])


def record(append_us=1_700_000_000_000_000, **fields):
    return Record(offset=0, append_us=append_us, **fields)


@pytest.mark.parametrize(
    "body_format", [BodyFormat.PLAIN, BodyFormat.KAFKA, BodyFormat.PULSAR, BodyFormat.IGGY]
)
def test_values_and_offsets_of_every_format_are_exported(data, body_format):
    data.append(body_format, [record(value=b"one", publish_us=1_700_000_000_000_000)])
    data.append(body_format, [record(value=b"two"), record(value=b"three")])
    rows = rows_of(data.export())
    assert [(row["offset"], row["value"]) for row in rows] == [
        (0, b"one"),
        (1, b"two"),
        (2, b"three"),
    ]


def test_absent_and_empty_values_differ(data):
    data.append(
        BodyFormat.KAFKA,
        [record(), record(key=b"", value=b""), record(key=b"k"), record(value=b"v")],
    )
    rows = rows_of(data.export())
    assert [(row["key"], row["value"]) for row in rows] == [
        (None, None),
        (b"", b""),
        (b"k", None),
        (None, b"v"),
    ]


def test_all_record_fields_have_their_column(data):
    data.append(
        BodyFormat.PLAIN,
        [
            record(
                publish_us=1_700_000_000_000_001,
                event_us=5,
                key=b"key",
                value=b"value",
                headers=[Header(b"a", b"1"), Header(b"a", b"\xff", HeaderKind.RAW)],
                producer_name=b"producer",
                sequence_id=9,
                message_id=255,
                schema_version=b"\x00\x01",
                ordering_key=b"o",
            )
        ],
    )
    (row,) = rows_of(data.export())
    assert row["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": b"\xff"}]
    assert (row["headerKinds"], row["orderingKey"]) == ([2, 1], b"o")
    assert row["timestampType"] == 0
    assert row["timestamp"].timestamp() == pytest.approx(1_700_000_000.000001)
    assert row["eventTime"].microsecond == 5
    assert (row["producerName"], row["sequenceId"]) == ("producer", 9)
    assert row["messageId"] == f"{255:032x}"
    assert (row["schemaVersion"], row["protocol"]) == (b"\x00\x01", "rest")


def test_a_kafka_record_has_the_time_of_its_append(data):
    data.append(BodyFormat.KAFKA, [record(value=b"v")])
    (row,) = rows_of(data.export())
    assert row["timestampType"] == 1
    assert row["timestamp"].timestamp() == 1_700_000_000


def test_records_of_several_days_have_separate_files(data):
    start = 1_700_000_000_000_000
    data.append(
        BodyFormat.PLAIN,
        [record(value=b"%d" % i, publish_us=start + i * DAY_US) for i in (0, 1, 0, 2)],
    )
    finals = [outcome.final for outcome in data.export()]
    assert sorted(final.split("/")[1] for final in finals) == [
        "date=2023-11-14",
        "date=2023-11-15",
        "date=2023-11-16",
    ]


def test_a_range_inside_batches_is_cut_exactly(data):
    for _ in range(3):
        data.append(BodyFormat.KAFKA, [record(value=b"v") for _ in range(10)])
    assert [row["offset"] for row in rows_of(data.export(7, 23))] == list(range(7, 23))


def test_an_unreadable_body_stops_the_export_with_its_offset(data):
    data.append(BodyFormat.KAFKA, [record(value=b"v")])
    data.append_body(b"not a message set", BodyInfo(record_count=3), BodyFormat.PULSAR, 1)
    (failure,) = data.export()
    assert isinstance(failure, TaskFailed)
    assert "offset 1" in failure.text


def test_an_unreadable_body_is_a_dead_letter_on_request(data):
    data.append(BodyFormat.KAFKA, [record(value=b"v")])
    data.append_body(b"not a message set", BodyInfo(record_count=3), BodyFormat.PULSAR, 1)
    data.append(BodyFormat.KAFKA, [record(value=b"w")])
    outcomes = data.export(on_corrupt="deadletter")
    (letters,) = [outcome for outcome in outcomes if isinstance(outcome, DeadLetters)]
    (dead,) = parquet.read_table(letters.file.staged).to_pylist()
    assert (dead["offset"], dead["body"]) == (1, b"not a message set")
    rows = rows_of([outcome for outcome in outcomes if isinstance(outcome, StagedFile)])
    assert [row["offset"] for row in rows] == [0, 4]


def test_readers_of_the_folder_do_not_see_staged_files(data):
    data.append(BodyFormat.KAFKA, [record(value=b"v")])
    outcomes = data.export()
    assert list(data.root.glob("topic=*")) == []
    ExportFolder(data.root).commit(Commit(1, {1: 1}, outcomes))
    assert len(list(data.root.glob("topic=*/date=*/*.parquet"))) == 1


def test_a_publish_time_outside_the_calendar_is_an_ordinary_row(data):
    latest = (1 << 63) - 1
    data.append(BodyFormat.PLAIN, [record(value=b"v", publish_us=latest)])
    data.append(BodyFormat.PLAIN, [record(value=b"w", publish_us=5)])
    outcomes = data.export()
    assert sorted(outcome.final.split("/")[1] for outcome in outcomes) == [
        "date=1970-01-01",
        "date=__HIVE_DEFAULT_PARTITION__",
    ]
    times = [
        value
        for outcome in outcomes
        for value in parquet.read_table(outcome.staged)["timestamp"].cast("int64").to_pylist()
    ]
    assert sorted(times) == [5, latest]


def test_records_of_many_dates_open_few_files(data):
    data.append(
        BodyFormat.PLAIN,
        [record(value=b"", publish_us=day * DAY_US) for day in range(FILES_MAX + 50)],
    )
    outcomes = data.export()
    assert len(outcomes) == FILES_MAX + 1
    assert sum(outcome.rows for outcome in outcomes) == FILES_MAX + 50


def test_hours_and_other_times_decide_the_folder_on_request(data):
    data.append(BodyFormat.PLAIN, [record(value=b"v", event_us=3_600_000_000 * 5)])
    (outcome,) = data.export(table=TableSettings("hour", "eventTime"))
    assert outcome.final.split("/")[1:3] == ["date=1970-01-01", "hour=05"]


def test_a_log_shorter_than_planned_is_a_failure(data):
    data.append(BodyFormat.KAFKA, [record(value=b"a"), record(value=b"b")])
    (failure,) = data.export(0, 3)
    assert isinstance(failure, TaskFailed) and "offset 3 is outside [0, 2]" in failure.text
