"""The commands about groups, schemas and the state of a running broker."""

import json
from itertools import count

import httpx
import pytest

from braidlog.broker.cli import watching
from braidlog.broker.cli.main import run
from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire
from conformance.server import RunningBroker
from tests.protocols.kafka.frames import message_set
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow

NUMBERS = count()


@pytest.fixture(scope="module")
def broker():
    with RunningBroker() as running:
        yield running


@pytest.fixture
def topic(broker, monkeypatch, capsys):
    """Return a new topic with three messages in partition 0 of two."""
    monkeypatch.setenv("BRAIDLOG_URL", broker.url)
    name = f"topic-{next(NUMBERS)}"
    assert run(["topics", "create", name, "--partitions", "2"]) == 0
    assert run(["produce", name, "a", "b", "c", "-p", "0"]) == 0
    capsys.readouterr()
    return name


def lines_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("to", "positions"),
    [("earliest", [0, 0]), ("latest", [3, 0]), ("1", [1, 0]), ("-1", [2, 0]), ("1d", [0, 0])],
)
def test_a_group_is_moved_to_a_place(topic, capsys, to, positions):
    move = ["groups", "reset", "g", "--topic", topic, "--to", to, "--output", "ndjson"]
    assert run([*move, "--dry-run"]) == 0
    assert [line["new_position"] for line in lines_of(capsys)] == positions
    assert run(["groups", "show", "g", "--topic", topic]) == 4
    assert run([*move, "--yes"]) == 0
    capsys.readouterr()
    assert run(["groups", "show", "g", "--topic", topic, "--output", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert [partition["position"] for partition in shown["partitions"]] == positions


def test_a_group_is_deleted_on_one_topic_or_all(topic, capsys):
    assert run(["topics", "create", f"{topic}-b"]) == 0
    for name in (topic, f"{topic}-b"):
        assert run(["groups", "reset", "gone", "--topic", name, "--to", "0", "--yes"]) == 0
    assert run(["groups", "delete", "gone", "--topic", topic, "--yes"]) == 0
    assert run(["groups", "show", "gone"]) == 0
    assert run(["groups", "delete", "gone"]) == 2  # Without a terminal, `--yes` is needed.
    assert run(["groups", "delete", "gone", "--yes"]) == 0
    assert run(["groups", "delete", "gone", "--yes"]) == 4


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--topic", "nothere", "--to", "0"], 4),
        (["--topic", "{topic}", "--to", "soon"], 2),
        (["--topic", "{topic}", "--to", "0", "-p", "7"], 4),
        (["--topic", "{topic}"], 2),
        (["--topic", "{topic}", "--to", "0"], 2),
    ],
)
def test_a_mistaken_reset_changes_nothing(topic, capsys, options, code):
    assert (
        run(["groups", "reset", "g", *(argument.format(topic=topic) for argument in options)])
        == code
    )
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert run(["groups", "show", "g"]) in (0, 4)


def test_schemas_are_registered_listed_and_checked(topic, tmp_path, capsys):
    file = tmp_path / "order.avsc"
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    file.write_text(json.dumps(schema))
    options = [topic, "--type", "avro", "--file", str(file), "--output", "ndjson"]
    assert run(["schemas", "put", *options]) == 0
    assert lines_of(capsys) == [{"version": 0}]
    assert run(["schemas", "check", *options]) == 0
    schema["fields"][0]["type"] = "string"
    file.write_text(json.dumps(schema))
    capsys.readouterr()
    assert run(["schemas", "check", *options]) == 1
    assert lines_of(capsys)[0]["compatibility"] is False
    assert run(["schemas", "put", *options]) == 1
    capsys.readouterr()
    assert run(["schemas", "list", topic, "--output", "json"]) == 0
    assert [schema["version"] for schema in json.loads(capsys.readouterr().out)] == [0]
    assert run(["schemas", "show", topic, "--version", "7"]) == 4
    file.write_text("no json")
    assert run(["schemas", "put", *options]) == 2
    assert run(["schemas", "put", topic, "--type", "avro", "--file", "/no/such"]) == 4
    assert run(["schemas", "list", "nothere"]) == 4


def test_connections_stats_and_health_show_the_broker(broker, topic, capsys):
    assert run(["connections", "--output", "json"]) == 0
    (own,) = json.loads(capsys.readouterr().out)
    assert own["protocol"] == "http"
    assert run(["connections", "--writes-to", topic, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["connections", "--writes-to", "nothing"]) == 4
    assert run(["stats", "--output", "ndjson"]) == 0
    (stats,) = lines_of(capsys)
    assert stats["protocols"]["http"]["records_in"] >= 3
    assert run(["stats"]) == 0
    assert "records_in" in capsys.readouterr().out
    assert run(["health", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["ready"] is True
    assert run(["stats", "--watch", "0"]) == 2


def test_stats_show_refused_requests(broker, topic, capsys):
    assert run(["topics", "show", "no-such-topic"]) == 4
    capsys.readouterr()
    assert run(["stats"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "refused since the start protocol error requests" in shown
    assert "http topic_not_found" in shown and "durability" in shown and "synced" in shown


def test_writers_of_every_protocol_are_listed(broker, topic, capsys):
    client = httpx.Client(base_url=broker.url, timeout=HANG_S)
    kafka = KafkaWire(broker.address("kafka"))
    pulsar = PulsarWire(broker.address("pulsar"))
    iggy = IggyWire(broker.address("iggy"))
    with client, kafka, pulsar, iggy:
        sent = {"messages": [{"payload": "x"}]}
        assert client.post(f"/topics/public/default/{topic}", json=sent).status_code == 200
        assert kafka.produce(topic, message_set(b"x"))[0] == 0
        pulsar.open_producer(f"{topic}-partition-0")
        iggy.send_messages(topic, [(1, [], b"x")])
        assert run(["connections", "--writes-to", topic, "--output", "json"]) == 0
    writers = json.loads(capsys.readouterr().out)
    assert sorted(writer["protocol"] for writer in writers) == ["http", "iggy", "kafka", "pulsar"]


def test_watching_shows_rates_until_interrupted(topic, capsys, monkeypatch):
    looks = count()

    def sleep(seconds):
        assert seconds == 5
        if next(looks):
            raise KeyboardInterrupt
        assert run(["produce", topic, "x"]) == 0

    monkeypatch.setattr(watching.time, "sleep", sleep)
    assert run(["stats", "--watch", "5", "--output", "ndjson"]) == 130
    first, second = lines_of_text(capsys.readouterr().out)
    assert "records_in_per_s" not in first["protocols"]["http"]
    assert second["protocols"]["http"]["records_in_per_s"] >= 1


def lines_of_text(text):
    return [json.loads(line) for line in text.splitlines() if line]
