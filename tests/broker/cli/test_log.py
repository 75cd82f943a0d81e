"""`braidlog log`: its output, its questions, and its exit codes."""

import base64
import io
import json
import sys

import pytest

from braidlog.broker.cli.main import run
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import codec_named
from conformance.clients.raw.kafka import KafkaWire, message, parse_set
from conformance.server import RunningBroker
from tests.broker.cli.test_progress import FakeTerminal
from tests.storage.log.directories import LogDirectory
from tests.storage.log.logs import flip
from tests.storage.tools.test_verify import places


@pytest.fixture
def healthy(tmp_path):
    """Return a topic `orders` of two partitions, with batches of all formats in the first."""
    directory = LogDirectory(tmp_path / "data", partitions=2)
    directory.fill(4)
    directory.fill(1, 2)
    directory.stop()
    return directory


def damage(directory, number=1):
    """Damage the second batch; return (file, file_pos)."""
    path, file_pos, _ = places(directory.path, number)[1]
    flip(path, file_pos + HEADER_BYTES + 2)
    return path, file_pos


def outputs(capsys, *arguments, code=0):
    """Run a command; return standard output and standard error."""
    assert run(["log", *arguments]) == code
    return capsys.readouterr()


def rows(capsys, *arguments, code=0):
    """Run a command; return its JSON objects, an object per line."""
    out = outputs(capsys, *arguments, "--output", "ndjson", code=code).out
    return [json.loads(line) for line in out.splitlines()]


# verify


def test_verify_of_a_healthy_directory_is_a_single_line(capsys, healthy):
    out, error = outputs(capsys, "verify", "--data-dir", str(healthy.path))
    assert out.splitlines() == [out.strip()]
    assert "4 logs" in out and "0 faults, 0 warnings" in out
    assert error == ""


def test_verify_names_a_fault_in_a_line_and_exits_with_1(capsys, healthy):
    path, file_pos = damage(healthy)
    out, _ = outputs(capsys, "verify", "--data-dir", str(healthy.path), code=1)
    fault = out.splitlines()[0]
    assert fault.startswith("fault: public/default/orders/0: ")
    assert f"{path} at byte {file_pos}, offsets 3 to 5: body checksum is wrong" in fault
    assert "1 faults" in out.splitlines()[-1]


def test_verify_as_json_has_all_findings(capsys, healthy):
    path, file_pos = damage(healthy)
    out, _ = outputs(capsys, "verify", "--data-dir", str(healthy.path), "--output", "json", code=1)
    answer = json.loads(out)
    (finding,) = answer["findings"]
    assert finding == {
        "level": "fault",
        "log": "public/default/orders/0",
        "path": path,
        "file_pos": file_pos,
        "offset": 3,
        "next_offset": 6,
        "reason": "body checksum is wrong",
    }
    assert (answer["faults"], answer["warnings"], answer["broker_pid"]) == (1, 0, 0)
    assert {log["log"]: log["records"] for log in answer["logs"]} == {
        "catalogue": 2,
        "cursors": 1,
        "public/default/orders/0": 9,
        "public/default/orders/1": 3,
    }


def test_a_warning_alone_is_no_failure(capsys, healthy):
    flip(healthy.file("watermark"), 512 + 30)
    out, _ = outputs(capsys, "verify", "--data-dir", str(healthy.path))
    assert out.startswith("warning: ")


def test_verify_beside_a_broker_reports_the_broker(capsys, healthy):
    directory = LogDirectory(healthy.path)
    out, _ = outputs(capsys, "verify", "--data-dir", str(healthy.path))
    assert "each log was checked up to its watermark slot" in out
    directory.crash()


@pytest.mark.parametrize("command", [["verify"], ["repair", "--yes"], ["dump", "orders"]])
def test_a_folder_without_data_is_not_found(capsys, tmp_path, command):
    _, error = outputs(capsys, *command, "--data-dir", str(tmp_path / "nothing"), code=4)
    assert "is no data directory" in error
    assert not (tmp_path / "nothing").exists()


# dump


def test_dump_lists_batches_with_their_places(capsys, healthy):
    batches = rows(capsys, "dump", "orders/0", "--data-dir", str(healthy.path))
    assert [row["format"] for row in batches] == ["plain", "kafka", "pulsar", "iggy"]
    assert [(row["base_offset"], row["next_offset"], row["records"]) for row in batches] == [
        (0, 3, 3),
        (3, 6, 3),
        (6, 9, 3),
        (9, 12, 3),
    ]
    for row, (path, file_pos, header) in zip(batches, places(healthy.path), strict=True):
        assert (row["file"], row["position"]) == (path, file_pos)
        assert row["durable_offset"] == header.durable_offset
        assert (row["body_bytes"], row["positions_bytes"]) == (header.body_bytes, 12)
        assert row["append_us"] == 5_000_000


def test_dump_as_a_table_has_a_line_for_each_batch(capsys, healthy):
    out, _ = outputs(capsys, "dump", "orders/0", "--data-dir", str(healthy.path))
    lines = out.splitlines()
    assert lines[0] == "public/default/orders/0 (partition 1)"
    assert lines[1].split()[:3] == ["offsets", "records", "format"]
    assert lines[3].split()[:4] == ["3-5", "3", "kafka", "1970-01-01T00:00:05+00:00"]
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("place", "partitions"),
    [
        ("orders", {"public/default/orders/0", "public/default/orders/1"}),
        ("public/default/orders", {"public/default/orders/0", "public/default/orders/1"}),
        ("persistent://public/default/orders/1", {"public/default/orders/1"}),
        ("orders/1", {"public/default/orders/1"}),
        ("orders-partition-1", {"public/default/orders/1"}),
    ],
)
def test_topics_and_partitions_are_found_by_each_form_of_name(capsys, healthy, place, partitions):
    batches = rows(capsys, "dump", place, "--data-dir", str(healthy.path))
    assert {row["partition"] for row in batches} == partitions


@pytest.mark.parametrize(
    ("place", "code", "text"),
    [
        ("clicks", 4, "there are: public/default/orders"),
        ("orders/7", 4, "no folder there is that of orders/7"),
        ("orders/x", 2, "'x' is no number of a partition"),
        ("a/b/c/d/e", 2, "neither a topic"),
    ],
)
def test_an_unknown_name_is_refused(capsys, healthy, place, code, text):
    _, error = outputs(capsys, "dump", place, "--data-dir", str(healthy.path), code=code)
    assert text in error


def test_from_and_count_bound_batches_and_records(capsys, healthy):
    place = ["dump", "orders/0", "--data-dir", str(healthy.path)]
    batches = rows(capsys, *place, "--from", "4", "--count", "2")
    assert [row["base_offset"] for row in batches] == [3, 6]
    records = rows(capsys, *place, "--from", "4", "--count", "3", "--records")
    assert [(row["offset"], row["value"]) for row in records] == [
        (4, "value 4"),
        (5, "value 5"),
        (6, "value 6"),
    ]
    outputs(capsys, *place, "--from", "-1", code=2)
    outputs(capsys, *place, "--count", "-1", code=2)


def test_dump_reports_unreadable_parts_at_their_place(capsys, healthy):
    path, file_pos = damage(healthy)
    for flags in ([], ["--records"]):
        listed = rows(capsys, "dump", "orders/0", "--data-dir", str(healthy.path), *flags)
        (hole,) = [row for row in listed if "unreadable" in row]
        assert (hole["base_offset"], hole["next_offset"]) == (3, 6)
        assert (hole["file"], hole["position"]) == (path, file_pos)
        assert len(listed) == (10 if flags else 4)
        out, _ = outputs(capsys, "dump", "orders/0", "--data-dir", str(healthy.path), *flags)
        assert "offsets 3 to 5: cannot be read, body checksum is wrong" in out


STRANGE = Record(
    0,
    7,
    publish_us=5,
    event_us=6,
    key=b"\xff\x00",
    value=b"caf\xc3\xa9\x1b[2J",
    headers=[Header(b"n", b"\xfe"), Header(b"\xfd", b"\x01\x00", HeaderKind.INT16)],
    ordering_key=b"",
    producer_name=b"maker",
    sequence_id=8,
    message_id=1 << 127,
    schema_version=b"\x00\xff",
)


@pytest.fixture
def strange(tmp_path):
    """Return a record with every field, and a record with none."""
    directory = LogDirectory(tmp_path / "data")
    codec = codec_named("plain")
    body = codec.encode([STRANGE, Record(1, 7)], 0)
    directory.logs[1].append([body], codec.inspect(body), body_format=codec.format, append_us=7)
    directory.stop()
    return directory


def test_bytes_are_never_mangled_in_json(capsys, strange):
    full, empty = rows(capsys, "dump", "orders", "--records", "--data-dir", str(strange.path))
    assert (base64.b64decode(full["key"]), full["key_encoding"]) == (STRANGE.key, "base64")
    assert (full["value"].encode(), full["encoding"]) == (STRANGE.value, "utf8")
    assert full["headers"] == [
        {"name": "n", "kind": "string", "value": "/g==", "encoding": "base64"},
        {
            "name": "/Q==",
            "name_encoding": "base64",
            "kind": "int16",
            "value": "\x01\x00",
            "encoding": "utf8",
        },
    ]
    assert (full["append_us"], full["publish_us"], full["event_us"]) == (7, 5, 6)
    assert (full["ordering_key"], full["producer_name"], full["sequence_id"]) == ("", "maker", 8)
    assert full["message_id"] == str(1 << 127)
    assert (full["schema_version"], full["schema_version_encoding"]) == ("AP8=", "base64")
    assert (empty["key"], empty["value"], empty["headers"]) == (None, None, [])
    assert "encoding" not in empty


def test_dump_writes_no_terminal_control_characters(capsys, strange):
    out, _ = outputs(capsys, "dump", "orders", "--records", "--data-dir", str(strange.path))
    assert "\x1b" not in out
    assert "\\x1b[2J" in out
    assert "b'\\xff\\x00'" in out


# repair


def test_repair_of_a_healthy_directory_does_nothing(capsys, healthy):
    out, _ = outputs(capsys, "repair", "--data-dir", str(healthy.path))
    assert out.strip() == "there is nothing to repair"


def test_repair_without_a_terminal_shows_the_plan_and_refuses(capsys, healthy, monkeypatch):
    damage(healthy)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    out, error = outputs(capsys, "repair", "--data-dir", str(healthy.path), code=2)
    assert "offsets 3 to 5 are lost, 3 records" in out
    assert "--yes" in error
    outputs(capsys, "verify", "--data-dir", str(healthy.path), code=1)


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0), ("YES\n", 0)])
def test_repair_on_a_terminal_asks(capsys, healthy, monkeypatch, typed, code):
    damage(healthy)
    monkeypatch.setattr(sys, "stdin", FakeTerminal(typed))
    out, _ = outputs(capsys, "repair", "orders", "--data-dir", str(healthy.path), code=code)
    assert ("1 repairs done" in out) == (code == 0)
    outputs(capsys, "verify", "--data-dir", str(healthy.path), code=code)


def test_repair_beside_a_broker_is_refused(capsys, healthy):
    directory = LogDirectory(healthy.path)
    _, error = outputs(capsys, "repair", "--yes", "--data-dir", str(healthy.path), code=1)
    assert "is in use by process" in error
    directory.crash()


def test_irreparable_damage_is_reported_as_a_failure(capsys, healthy):
    first = healthy.segments()[0]
    first.with_name(f"{4:020d}.log").write_bytes(first.read_bytes())
    out, error = outputs(capsys, "repair", "--yes", "--data-dir", str(healthy.path), code=1)
    assert "nothing was changed" in out
    assert "not repaired: public/default/orders/0" in error


# With a broker


@pytest.mark.slow
def test_a_broker_that_cannot_start_names_the_repair_and_starts_after_it(capsys, tmp_path):
    broker = RunningBroker(tmp_path, others=False, listen={"kafka": "127.0.0.1:0"})
    with broker, KafkaWire(broker.address("kafka")) as wire:
        wire.create("orders")
        for number in range(4):
            assert wire.produce("orders", message(None, b"order %d" % number)) == (0, number)
        wire.commit("billing", "orders", 1)
        data_dir = str(broker.data_dir)
        out, _ = outputs(capsys, "verify", "--data-dir", data_dir)
        assert f"process {broker.pid} runs a broker there" in out
        broker.kill()
    outputs(capsys, "verify", "--data-dir", data_dir)
    path, file_pos, _ = places(broker.data_dir)[1]
    flip(path, file_pos + HEADER_BYTES + 2)
    flip(broker.data_dir / "cursors" / f"{0:020d}.log", 64 + HEADER_BYTES + 3)
    code, _, error = broker.run_to_end()
    assert (code, len(error.strip().splitlines())) == (1, 1)
    assert f"`braidlog log repair --data-dir {data_dir}` mends it" in error
    outputs(capsys, "verify", "--data-dir", data_dir, code=1)
    outputs(capsys, "repair", "--yes", "--data-dir", data_dir)
    outputs(capsys, "verify", "--data-dir", data_dir)
    with broker, KafkaWire(broker.address("kafka")) as wire:
        assert wire.produce("orders", message(None, b"order 4")) == (0, 4)
        values, offset = {}, 0
        while offset < 5:
            error_code, _, body = wire.fetch("orders", offset)
            assert error_code == 0
            records = parse_set(body)
            values |= {at: value for at, _, value in records}
            offset = records[-1][0] + 1
        assert values == {at: b"order %d" % at for at in (0, 2, 3, 4)}
        assert broker.stop() == 0
    outputs(capsys, "verify", "--data-dir", data_dir)


@pytest.mark.parametrize("command", [["verify"], ["dump", "orders"]])
def test_an_unreadable_folder_is_neither_damaged_nor_missing(capsys, tmp_path, command):
    code = run(["log", *command, "--data-dir", "/" + "x" * 5000])
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (3, 1)
    assert "File name too long" in error
