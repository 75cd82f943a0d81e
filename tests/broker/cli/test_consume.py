"""The commands produce, consume, tail and import, with a running broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from braidlog.broker.cli.main import run
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow

NUMBERS = count()
PROGRAM = [sys.executable, "-m", "braidlog.broker.cli.main"]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(others=False, listen={"http": "127.0.0.1:0"}) as running:
        yield running


@pytest.fixture
def topic(broker, monkeypatch, capsys) -> str:
    """Return the name of a new topic of two partitions."""
    monkeypatch.setenv("BRAIDLOG_URL", broker.url)
    name = f"topic-{next(NUMBERS)}"
    assert run(["topics", "create", name, "--partitions", "2"]) == 0
    capsys.readouterr()
    return name


def lines_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def values(capsys):
    return [line["value"] for line in lines_of(capsys)]


@pytest.fixture
def numbers(topic, tmp_path, capsys) -> str:
    """Return a topic with the values 0 to 9 in partition 0."""
    file = tmp_path / "numbers"
    file.write_text("".join(f"{number}\n" for number in range(10)))
    assert run(["produce", topic, "--file", str(file), "-p", "0"]) == 0
    assert capsys.readouterr().err == "10 messages stored\n"
    return topic


def test_values_keys_and_properties_are_stored(topic, capsys):
    options = ["-k", "key", "-p", "1", "-P", "a=1=2", "-P", "b=", "--event-time", "7"]
    assert run(["produce", topic, "one", "", *options]) == 0
    assert run(["consume", topic, "--output", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["value"], first["key"], first["partition"]) == ("one", "key", 1)
    assert [(header["name"], header["value"]) for header in first["headers"]] == [
        ("a", "1=2"),
        ("b", ""),
    ]
    assert (first["event_us"], second["value"]) == (7000, "")


@pytest.mark.parametrize(
    ("options", "line", "shown"),
    [
        (["--key-separator", ":"], b"k:v:w", {"key": "k", "value": "v:w"}),
        (["--input", "base64"], b"/wA=", {"value": "/wA=", "encoding": "base64"}),
        (["--input", "json"], b"null", {"value": None}),
        (["--input", "json"], b'{"a": 1.10}', {"value": '{"a":1.10}'}),
        (["--input", "json"], b'"text"', {"value": "text"}),
        ([], b"\xff\x00\r", {"value": "/wAN", "encoding": "base64"}),
    ],
)
def test_a_line_is_read_as_the_input_says(topic, tmp_path, capsys, options, line, shown):
    file = tmp_path / "lines"
    file.write_bytes(line)  # The last line needs no line end.
    assert run(["produce", topic, "--file", str(file), *options]) == 0
    assert run(["consume", topic, "--output", "ndjson"]) == 0
    (message,) = lines_of(capsys)
    assert shown.items() <= message.items()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "3", "-n", "2"], ["3", "4"]),
        (["--from", "-2"], ["8", "9"]),
        (["--from", "latest"], []),
        (["--from", "1d"], [str(number) for number in range(10)]),
        (["--from", "9999-01-01"], []),
        (["--until", "2000-01-01T00:00:00Z"], []),
        (["--from", "99"], []),
        (["--grep", "[37]"], ["3", "7"]),
        (["-p", "1"], []),
        (["-n", "0"], []),
    ],
)
def test_a_read_begins_and_ends_where_the_user_wants(numbers, capsys, options, expected):
    assert run(["consume", numbers, "--output", "ndjson", *options]) == 0
    assert values(capsys) == expected


def test_a_template_prints_only_what_it_names(numbers, capsys):
    assert run(["consume", numbers, "-n", "2", "-f", r"%o=%v;"]) == 0
    assert capsys.readouterr().out == "0=0;1=1;"


def test_a_subscription_continues_after_acknowledged_messages(numbers, capsys):
    group = ["consume", numbers, "-s", "g1", "--output", "ndjson"]
    assert run([*group, "-n", "4"]) == 0
    assert sorted(values(capsys)) == ["0", "1", "2", "3"]
    assert run([*group, "-n", "3", "--no-ack"]) == 0
    unacknowledged = values(capsys)
    assert run(group) == 0
    assert sorted(values(capsys)) == ["4", "5", "6", "7", "8", "9"]
    assert set(unacknowledged) < {"4", "5", "6", "7", "8", "9"}


def test_an_import_keeps_every_byte_and_time(topic, tmp_path, capsys):
    headers = [
        {"name": "n", "value": "AP8=", "kind": "raw", "encoding": "base64"},
        {"name": "n", "value": "x", "kind": "string"},
    ]
    header_base64 = {"name": "/w==", "value": "", "name_encoding": "base64", "kind": 99}
    exported = [
        {"value": None, "partition": 1, "publish_us": 1, "event_us": 0},
        {"value": "", "key": "", "partition": 0, "headers": [*headers, header_base64]},
        {"value": "/w==", "encoding": "base64", "key": "gA==", "key_encoding": "base64"},
        {"value": "a\u2028\n", "sequence_id": 2**64 - 1, "producer_name": "p", "partition": 0},
    ]
    file = tmp_path / "exported"
    file.write_text("\n\n".join(map(json.dumps, exported)))
    assert run(["import", str(file), topic]) == 0
    assert run(["consume", topic, "--output", "ndjson"]) == 0
    first = capsys.readouterr().out
    file.write_text(first)
    assert run(["topics", "create", f"{topic}-copy", "--partitions", "2"]) == 0
    assert run(["import", str(file), f"{topic}-copy"]) == 0
    capsys.readouterr()
    assert run(["consume", f"{topic}-copy", "--output", "ndjson"]) == 0
    places = ("topic", "messageId", "append_us")

    def without_places(text):
        lines = [json.loads(line) for line in text.strip().split("\n")]
        return [{k: v for k, v in line.items() if k not in places} for line in lines]

    copied = without_places(capsys.readouterr().out)
    assert copied == without_places(first)
    by_value = {message["value"]: message for message in copied}
    assert by_value[""]["headers"] == [*headers, header_base64]
    assert by_value["/w=="]["key"] == "gA=="
    assert "publish_us" not in by_value[""]  # As imported; never the time of the import.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"value": "a"}\n\nno json\n', "line 3: not a JSON object"),
        (b'{"value": "a"}\n{"valu": "b"}\n', "line 2: unknown field 'valu'"),
        (b"[]\n", "line 1"),
        (b'{"value": "a", "partition": 9}\n', "line 1: public/default/"),
    ],
)
def test_a_bad_line_of_an_import_is_named(topic, tmp_path, capsys, text, reason):
    file = tmp_path / "bad"
    file.write_bytes(text)
    assert run(["import", str(file), topic]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert run(["import", str(file), topic, "--by-key"]) in (0, 1, 2)


def test_an_import_goes_on_where_it_was_interrupted(topic, tmp_path, capsys):
    lines = [json.dumps({"value": str(number), "partition": 0}) for number in range(1500)]
    file, note = tmp_path / "lines", tmp_path / "note"
    command = ["import", str(file), topic, "--resume", str(note)]
    file.write_text("\n".join([*lines[:1200], "no json", *lines[1201:]]))
    assert run(command) == 2
    assert json.loads(note.read_text())["lines"] == 1000
    file.write_text("\n".join(lines))
    assert run(["import", str(file), "other", "--resume", str(note)]) == 2
    assert f"the note of an import of {file} to {topic}" in capsys.readouterr().err
    assert run([*command, "--by-key"]) == 0
    assert capsys.readouterr().err == "500 messages stored\n" and not note.exists()
    assert run(["consume", topic, "--output", "ndjson"]) == 0
    assert sorted(values(capsys), key=int) == [str(number) for number in range(1500)]
    note.write_text("[]")
    assert run(command) == 2
    assert "no note of an import" in capsys.readouterr().err


def test_an_import_may_choose_partitions_anew(topic, tmp_path, capsys):
    file = tmp_path / "lines"
    file.write_text('{"value": "a", "partition": 7}\n')
    assert run(["import", str(file), topic, "-p", "1"]) == 0
    assert run(["import", str(file), topic, "--by-key"]) == 0
    capsys.readouterr()
    assert run(["consume", topic, "--output", "ndjson"]) == 0
    assert values(capsys) == ["a", "a"]


def test_an_export_goes_through_a_pipe_into_an_import(numbers, broker, capsys):
    run(["topics", "create", f"{numbers}-copy"])
    reading = subprocess.Popen(
        [*PROGRAM, "consume", numbers, "--output", "ndjson"], stdout=subprocess.PIPE
    )
    done = subprocess.run([*PROGRAM, "import", "-", f"{numbers}-copy"], stdin=reading.stdout)
    assert (done.returncode, reading.wait()) == (0, 0)
    capsys.readouterr()
    run(["consume", f"{numbers}-copy", "--output", "ndjson"])
    assert values(capsys) == [str(number) for number in range(10)]


def test_tail_shows_the_last_and_new_messages_until_interrupted(numbers, capsys):
    following = subprocess.Popen(
        [*PROGRAM, "tail", numbers, "-n", "1", "-f", r"%v\n"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert following.stdout is not None and following.stderr is not None
    assert following.stdout.readline() == b"9\n"
    for partition in ("0", "1"):
        run(["produce", numbers, f"new {partition}", "-p", partition])
        assert following.stdout.readline() == f"new {partition}\n".encode()
    following.send_signal(signal.SIGINT)
    assert following.wait() == 130
    assert following.stderr.read() == b"3 messages printed\n"
    following.stdout.close()
    following.stderr.close()


def test_a_reader_with_enough_is_no_failure_and_a_full_disk_is(numbers):
    command = [*PROGRAM, "consume", numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        reading.stdout.close()
        assert reading.wait() == 0
        assert reading.stderr is not None and reading.stderr.read() == b""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"braidlog: No space left on device\n")


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        ("consume nothere", 4, "no topic public/default/nothere"),
        ("consume a/b", 2, "neither a topic"),
        ("consume {topic} -p 9", 4, "no partition 9"),
        ("consume {topic} --from yesterday", 2, "--from yesterday: expected"),
        ("consume {topic} --until never", 2, "--until never: expected"),
        ("consume {topic} --format %q", 2, "no %q"),
        ("consume {topic} --grep [", 2, "no regular expression"),
        ("consume {topic} -n -1", 2, "--count"),
        ("consume {topic} -s g --from 7", 2, "groups reset"),
        ("tail", 2, "name a topic"),
        ("tail {topic} nothere", 4, "nothere"),
        ("produce nothere x", 4, "create the topic with `braidlog topics create`"),
        ("produce {topic} x -p 9", 2, "no partition 9"),
        ("produce {topic} x -P nameonly", 2, "NAME=VALUE"),
        ("produce {topic} x --input json", 1, "not JSON"),
        ("produce {topic} * --input base64", 2, "messages[0]"),
        ("produce {topic} x --schema NOPE", 2, "NOPE"),
        ("produce {topic} x --rate 0", 2, "--rate"),
        ("produce {topic} --file /no/such", 4, "/no/such: No such file"),
        ("produce {topic} --file /", 1, "Is a directory"),
        ("import /no/such {topic}", 4, "/no/such: No such file"),
        ("consume {topic} --context nope", 4, "nope"),
        ("consume {topic} --token-file /no/such", 2, "/no/such"),
    ],
)
def test_a_mistake_gets_a_line_and_its_exit_code(topic, capsys, monkeypatch, command, code, reason):
    monkeypatch.setenv("BRAIDLOG_CONTEXTS", "/no/such/contexts.toml")
    assert run(command.format(topic=topic).split()) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert reason in line


def test_a_missing_file_is_not_blamed_on_the_topic(topic, capsys):
    assert run(["produce", topic, "--file", "/no/such"]) == 4
    assert capsys.readouterr().err == "braidlog: /no/such: No such file or directory\n"
