"""Values by the registered schemas of their topics, without a JVM."""

import io
import json

import fastavro
import pytest

from braidlog.storage.export.ranges import Range
from braidlog.storage.export.source.options import BadOption, Selection, ValueFormat
from braidlog.storage.export.source.reading import ReadSettings
from braidlog.storage.export.source.table import DATA, Table
from braidlog.storage.export.source.value_schemas import values_of
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.metadata.catalogue_records import SchemaMeta
from tests.storage.log.directories import LogDirectory

STRING, JSON, AVRO = 1, 2, 4  # Pulsar's numbers.
TOPIC = "public/default/orders"
ORDERS = Selection(topics=(TOPIC,))
BY_REGISTRY = ValueFormat("avro", "")
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "id", "type": "long"},
    ],
}


@pytest.fixture
def directory(tmp_path):
    opened = LogDirectory(tmp_path / "data")
    yield opened
    opened.crash()


def register(directory, definition, type_=AVRO, topic_id=1):
    data = b"" if definition is None else json.dumps(definition).encode()
    directory.catalogue.add_schema(topic_id, SchemaMeta(type_, "", data, {}))
    directory.committer.commit()


def packed(definition, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    return out.getvalue()


def named(version):
    return None if version is None else version.to_bytes(8, "big")


def store(directory, *records):
    """Store (schema version, value) pairs."""
    log = directory.logs[1]
    base = log.log_end_offset
    stored = [
        Record(base + n, 5, value=value, schema_version=named(version))
        for n, (version, value) in enumerate(records)
    ]
    codec = codec_named("plain")
    body = codec.encode(stored, base)
    log.append([body], codec.inspect(body), body_format=codec.format, append_us=5)
    directory.committer.commit()


def read(directory, values, **options):
    table = Table(("offset", DATA), values.type)
    span = Range(1, 0, 0, directory.logs[1].log_end_offset, TOPIC)
    reading = ReadSettings(str(directory.path), table, values=values, **options)
    return [row for batch in reading.rows(span) for row in batch.to_pylist()]


def test_each_value_is_read_by_its_records_version(directory):
    register(directory, FIRST)
    register(directory, SECOND)
    store(
        directory,
        (0, packed(FIRST, {"id": 1})),
        (1, packed(SECOND, {"note": "x", "id": 2})),
        (None, packed(SECOND, {"note": None, "id": 3})),  # Without a version: the latest.
    )
    values = values_of(str(directory.path), ORDERS, BY_REGISTRY)
    assert [row[DATA] for row in read(directory, values)] == [
        {"note": None, "id": 1},
        {"note": "x", "id": 2},
        {"note": None, "id": 3},
    ]


def test_a_new_version_during_a_query_is_looked_up(directory):
    register(directory, FIRST)
    values = values_of(str(directory.path), ORDERS, BY_REGISTRY)
    wider = {**FIRST, "fields": [{"name": "new", "type": "string"}, *FIRST["fields"]]}
    register(directory, wider)
    store(directory, (1, packed(wider, {"new": "x", "id": 2})))
    assert [row[DATA] for row in read(directory, values)] == [{"id": 2}]


def test_an_unregistered_version_does_not_decode(directory):
    register(directory, FIRST)
    store(directory, (7, packed(FIRST, {"id": 1})), (0, packed(FIRST, {"id": 2})))
    values = values_of(str(directory.path), ORDERS, BY_REGISTRY)
    assert [row[DATA] for row in read(directory, values, corrupt="skip")] == [None, {"id": 2}]


def test_json_values_have_the_columns_of_the_registered_definition(directory):
    register(directory, SECOND, JSON)
    store(directory, (0, b'{"id": 7, "note": "n"}'))
    values = values_of(str(directory.path), ORDERS, ValueFormat("json", ""))
    assert [row[DATA] for row in read(directory, values)] == [{"note": "n", "id": 7}]


def test_topics_without_a_fitting_schema_are_a_clear_error(directory):
    place = str(directory.path)
    with pytest.raises(BadOption, match="no registered schema"):
        values_of(place, ORDERS, BY_REGISTRY)
    register(directory, None, STRING)
    with pytest.raises(BadOption, match="type 1, not AVRO"):
        values_of(place, ORDERS, BY_REGISTRY)
    register(directory, FIRST)
    register(directory, SECOND, topic_id=directory.make_topic("bills", 1))
    with pytest.raises(BadOption, match="different columns"):
        values_of(place, Selection(pattern=".*"), BY_REGISTRY)
    with pytest.raises(BadOption, match="no topic"):
        values_of(place, Selection(pattern="none"), BY_REGISTRY)
    late = values_of(place, ORDERS, BY_REGISTRY)
    with pytest.raises(BadOption, match="came after"):
        late.of("public/default/bills")
