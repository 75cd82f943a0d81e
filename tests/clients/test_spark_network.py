"""Spark's network fetcher against a running broker: the same rows as from its folder."""

import json
import socket
import struct
import urllib.request
import zlib

import pyarrow.parquet as parquet
import pytest

from conformance.server import RunningBroker
from storage.errors import OffsetOutOfRange
from storage.spark.commit import StagedFile
from storage.spark.places import open_log, tell_positions
from storage.spark.ranges import Range
from storage.spark.registered import AVRO
from storage.spark.worker import Job, TaskFailed, write_range

pytestmark = [pytest.mark.slow, pytest.mark.clients]

TOPIC = "public/default/orders"
RECORDS = 5000
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with RunningBroker(tmp_path_factory.mktemp("broker")) as running:
        request = urllib.request.Request(
            f"{running.url}/api/v1/topics/{TOPIC}", b"{}", JSON, method="PUT"
        )
        urllib.request.urlopen(request).close()
        for base in range(0, RECORDS, 500):
            produce(running.address("kafka"), [value(n) for n in range(base, base + 500)])
        yield running


def value(number):
    return b"value %d" % number + b"." * (number % 3)


def produce(address, values):
    """One Kafka 0.8 produce request, acknowledged by all."""
    parts = []
    for value in values:
        rest = struct.pack(">bbii", 0, 0, -1, len(value)) + value
        message = struct.pack(">I", zlib.crc32(rest)) + rest
        parts.append(struct.pack(">qi", 0, len(message)) + message)
    stored = b"".join(parts)
    body = struct.pack(">hii", -1, 10_000, 1) + struct.pack(">h6s", 6, b"orders")
    body += struct.pack(">iii", 1, 0, len(stored)) + stored
    frame = struct.pack(">hhih", 0, 0, 1, -1) + body
    with socket.create_connection(address) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert connection.recv(65536)


def exported(tmp_path, place, name):
    (state,) = open_log(place).partitions()
    part = Range(state.partition_id, 0, 100, state.watermark, TOPIC)
    outcomes = write_range(Job(str(tmp_path / name), place, 1), part)
    assert all(isinstance(outcome, StagedFile) for outcome in outcomes), outcomes
    tables = [parquet.read_table(outcome.staged) for outcome in outcomes]
    return sorted((row["offset"], row["value"]) for table in tables for row in table.to_pylist())


def test_rows_over_the_network_are_those_of_the_folder(broker, tmp_path):
    over_network = exported(tmp_path, broker.url, "network")
    assert over_network == exported(tmp_path, str(broker.data_dir), "folder")
    assert over_network == [(n, value(n)) for n in range(100, RECORDS)]


def test_offsets_out_of_range_and_partitions_that_are_gone_are_what_they_are_in_a_folder(broker):
    (state,) = open_log(broker.url).partitions()
    with open_log(broker.url).open(TOPIC, 0, state.partition_id) as reader:
        with pytest.raises(OffsetOutOfRange):
            next(reader.batches(RECORDS + 1))
        assert reader.first_at(0) == 0
        assert reader.first_at(1 << 62) is None
    with pytest.raises(FileNotFoundError):
        open_log(broker.url).open(TOPIC, 0, 999)


def test_registered_schemas_over_the_network_are_those_of_the_folder(broker):
    avro = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
    wider = avro.replace("]}", ',{"name":"b","type":["null","string"],"default":null}]}')
    for definition in (avro, wider):
        schema = json.dumps({"type": "AVRO", "schema": definition, "properties": {}}).encode()
        url = f"{broker.url}/admin/v2/schemas/{TOPIC}/schema"
        urllib.request.urlopen(urllib.request.Request(url, schema, JSON, method="POST")).close()
    topics = [TOPIC, "public/default/none"]
    found = open_log(broker.url).schemas(topics)
    assert found == open_log(str(broker.data_dir)).schemas(topics)
    assert list(found) == [TOPIC]
    assert [one.type for one in found[TOPIC]] == [AVRO, AVRO]
    definitions = [json.loads(one.definition) for one in found[TOPIC]]
    assert definitions == [json.loads(avro), json.loads(wider)]


def test_the_position_shows_as_a_group(broker):
    tell_positions(broker.url, "export:lake", {(TOPIC, 0): 4000})
    with urllib.request.urlopen(f"{broker.url}/api/v1/groups/{TOPIC}/export:lake") as answer:
        assert b'"backlog":1000' in answer.read().replace(b" ", b"")


def test_no_broker_is_one_line(tmp_path):
    part = Range(1, 0, 0, 5, TOPIC)
    (failure,) = write_range(Job(str(tmp_path), "http://127.0.0.1:1", 1), part)
    assert isinstance(failure, TaskFailed)
    assert "no broker answers at http://127.0.0.1:1" in failure.text
