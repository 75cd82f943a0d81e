"""Spark's network fetcher: from a running broker, the same rows as from its folder; and its
reaction to rare answers of a broker.
"""

import http.server
import json
import socket
import struct
import threading
import urllib.request
import zlib

import pyarrow.parquet as parquet
import pytest

from braidlog.storage.errors import DamagedLog, OffsetOutOfRange
from braidlog.storage.export.commit import StagedFile
from braidlog.storage.export.export import ExportJob, ExportSource, Progress, run_export
from braidlog.storage.export.network import BUSY_TRIES, BrokerReader, BrokerRefused, tell_broker
from braidlog.storage.export.places import open_log, tell_positions
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.registered import AVRO
from braidlog.storage.export.worker import Job, TaskFailed, write_range
from braidlog.storage.metadata.names import parse_topic
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow

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
    """Send a Kafka 0.8 produce request with acks=all."""
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


def test_rows_over_the_network_equal_the_folders(broker, tmp_path):
    over_network = exported(tmp_path, broker.url, "network")
    assert over_network == exported(tmp_path, str(broker.data_dir), "folder")
    assert over_network == [(n, value(n)) for n in range(100, RECORDS)]


def test_errors_over_the_network_equal_those_of_a_folder(broker):
    (state,) = open_log(broker.url).partitions()
    with open_log(broker.url).open(TOPIC, 0, state.partition_id) as reader:
        with pytest.raises(OffsetOutOfRange):
            next(reader.batches(RECORDS + 1))
        assert reader.first_at(0) == 0
        assert reader.first_at(1 << 62) is None
    with pytest.raises(FileNotFoundError):
        open_log(broker.url).open(TOPIC, 0, 999)


def test_registered_schemas_over_the_network_equal_the_folders(broker):
    avro = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
    wider = avro.replace("]}", ',{"name":"b","type":["null","string"],"default":null}]}')
    for definition in (avro, wider):
        schema = json.dumps({"type": "AVRO", "schema": definition, "properties": {}}).encode()
        url = f"{broker.url}/admin/v2/schemas/{TOPIC}/schema"
        urllib.request.urlopen(urllib.request.Request(url, schema, JSON, method="POST")).close()
    topics = [TOPIC, "public/default/none"]
    schemas = open_log(broker.url).schemas(topics)
    assert schemas == open_log(str(broker.data_dir)).schemas(topics)
    assert list(schemas) == [TOPIC]
    assert [schema.type for schema in schemas[TOPIC]] == [AVRO, AVRO]
    definitions = [json.loads(schema.definition) for schema in schemas[TOPIC]]
    assert definitions == [json.loads(avro), json.loads(wider)]


def test_the_position_appears_as_a_group(broker):
    tell_positions(broker.url, "export:lake", {(TOPIC, 0): 4000})
    with urllib.request.urlopen(f"{broker.url}/api/v1/groups/{TOPIC}/export:lake") as answer:
        assert b'"backlog":1000' in answer.read().replace(b" ", b"")


def test_an_unreachable_broker_is_a_single_line(tmp_path):
    part = Range(1, 0, 0, 5, TOPIC)
    (failure,) = write_range(Job(str(tmp_path), "http://127.0.0.1:1", 1), part)
    assert isinstance(failure, TaskFailed)
    assert "no broker answers at http://127.0.0.1:1" in failure.text


class Answers(http.server.BaseHTTPRequestHandler):
    """Returns the answers of `server.answers` in turn, and records the requests."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        status, content = self.server.answers.pop(0)
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Retry-After", "0")
        if not self.server.keeps_alive:
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def answering():
    """Return `answering(answer, ...)`, which returns the URL of a server with these answers."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.asked, server.answers, server.keeps_alive = [], [], True
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def url_of(server, login=""):
    return f"http://{login}127.0.0.1:{server.server_port}"


HERE = {"topic": TOPIC, "partition": 0, "partition_id": 1, "is_here": True}
FIGURES = {"log_start_offset": 0, "high_watermark": 9, "size_bytes": 90}
PAGE = {"partitions": [HERE | FIGURES], "next": None}


def opened(server, *answers):
    """Return a partition whose next answers are these."""
    server.answers = [(200, FIGURES), *answers]
    return BrokerReader(url_of(server)).open(TOPIC, 0, 1)


def test_a_busy_broker_is_asked_again(answering):
    answering.answers = [(429, {"message": "busy"}), (503, b""), (200, PAGE)]
    (state,) = BrokerReader(url_of(answering)).partitions()
    assert (state.topic, state.watermark, state.size_bytes) == (TOPIC, 9, 90)


def test_a_permanently_busy_broker_is_an_error_with_its_message(answering):
    answering.answers = [(503, {"message": "is starting"})] * BUSY_TRIES
    with pytest.raises(BrokerRefused, match="is starting"):
        BrokerReader(url_of(answering)).partitions()


def test_a_connection_closed_while_idle_is_reopened(answering):
    answering.keeps_alive = False
    with opened(answering, (200, {"first_offset": 4})) as reader:
        assert reader.first_at(5) == 4


def test_partitions_of_other_brokers_are_requested_and_deleted_ones_skipped(answering):
    other, gone = (HERE | {"is_here": False, "partition": n} for n in (1, 2))
    first = {"partitions": [HERE | FIGURES, other, gone, HERE | {"topic": "a/b/c"}], "next": "x"}
    answering.answers = [
        (200, first),
        (200, FIGURES),
        (404, b""),
        (200, {**PAGE, "partitions": []}),
    ]
    partitions = BrokerReader(url_of(answering)).partitions(lambda topic: topic == TOPIC)
    assert [
        (partition.topic, partition.index, partition.watermark) for partition in partitions
    ] == [
        (TOPIC, 0, 9),
        (TOPIC, 1, 9),
    ]
    paths = [path for path, _ in answering.asked]
    assert paths[1] == f"/api/v1/log/{TOPIC}/1?partition_id=1"
    assert paths[3] == "/api/v1/log?after=x"


@pytest.mark.parametrize("login", [":to%20ken@", ""])
def test_the_token_comes_from_the_url_or_the_variable(answering, monkeypatch, login):
    monkeypatch.setenv("BRAIDLOG_TOKEN", "of the variable")
    answering.answers = [(200, PAGE)]
    BrokerReader(url_of(answering, login)).partitions()
    token = "to ken" if login else "of the variable"
    assert answering.asked == [("/api/v1/log?after=", f"Bearer {token}")]


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((416, {"message": "gone"}), OffsetOutOfRange, "0"),
        ((500, {"code": "damaged_log", "message": "at 17"}), DamagedLog, "at 17"),
        ((500, {"code": "corrupt_batch", "message": "at 18"}), DamagedLog, "at 18"),
        ((500, {"code": "other", "message": "a bug"}), BrokerRefused, "a bug"),
        ((404, {"message": "no such partition"}), FileNotFoundError, "no such partition"),
        ((400, b"<html>"), BrokerRefused, "no Braidlog broker answers there"),
        ((200, b""), DamagedLog, "no records"),
        ((200, b"x" * 200), DamagedLog, "on the wire"),
    ],
)
def test_each_answer_to_a_fetch_is_its_error(answering, answer, error, text):
    with (
        opened(answering, answer, (200, FIGURES | {"log_start_offset": 5})) as reader,
        pytest.raises(error, match=text),
    ):
        next(reader.batches(0))


def test_changed_bytes_are_found(broker, answering):
    (state,) = open_log(broker.url).partitions()
    path = f"{broker.url}/api/v1/log/{TOPIC}/0/batches?partition_id={state.partition_id}&offset=0"
    with urllib.request.urlopen(path) as answer:
        content = answer.read()
    for changed in (content[:400] + bytes([content[400] ^ 1]) + content[401:], content[:400]):
        with (
            opened(answering, (200, changed)) as reader,
            pytest.raises(DamagedLog, match="body checksum is wrong"),
        ):
            list(reader.batches(0))


def test_batches_end_at_the_requested_offset(broker):
    (state,) = open_log(broker.url).partitions()
    with open_log(broker.url).open(TOPIC, 0, state.partition_id) as reader:
        batches = list(reader.batches(600, 1100))
    assert batches[0].base_offset <= 600 < batches[0].next_offset
    assert batches[-1].base_offset < 1100 <= batches[-1].next_offset


def test_a_refused_position_is_an_error(answering):
    answering.answers = [(403, {"message": "not allowed"})]
    with pytest.raises(BrokerRefused, match="not allowed"):
        tell_broker(url_of(answering), "export/all", {(TOPIC, 0): 5})
    assert answering.asked[0][0] == f"/api/v1/groups/{TOPIC}/export%2Fall/positions"


@pytest.mark.parametrize("url", ["ftp://host", "http://", "host:8080"])
def test_an_invalid_broker_url_is_an_error(url):
    with pytest.raises(OSError, match="invalid broker URL"):
        BrokerReader(url).partitions()


class InTurn:
    """Runs the tasks of an export in this process."""

    def map(self, task, parts, total, report):
        return [outcome for part in parts for outcome in task(lambda count: None, [part])]


def test_a_run_appears_in_the_list_of_the_broker(broker, tmp_path):
    job = ExportJob(
        source=ExportSource(broker.url, (parse_topic(TOPIC),)),
        target=tmp_path / "lake",
        progress=Progress(broker.url, "nightly"),
    )
    summary = run_export(job, InTurn())
    assert (summary.rows, summary.untold) == (RECORDS, None)
    assert run_export(job, InTurn()).rows == 0  # Reports nothing: there was no run.
    with urllib.request.urlopen(f"{broker.url}/api/v1/exports") as answer:
        (run,) = json.load(answer)["runs"]
    assert (run["target"], run["group"]) == (str(tmp_path / "lake"), "nightly")
    assert (run["rows"], run["files"], run["bytes"]) == (RECORDS, summary.files, summary.bytes)
    assert sum(part["end"] - part["start"] for part in run["ranges"]) == RECORDS
