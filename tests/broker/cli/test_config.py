"""The settings in force with their sources, their check, and the example file."""

import json
import re

import pytest

from braidlog.broker.cli.client import AdminClient
from braidlog.broker.cli.main import run
from braidlog.broker.config.settings import Config, load
from conformance.server import RunningBroker


def test_each_setting_is_shown_with_its_source(tmp_path, capsys, monkeypatch):
    file = tmp_path / "braidlog.toml"
    file.write_text("[log]\nsegment_bytes = '64MiB'\n[listeners.iggy]\nlisten = 'off'\n")
    monkeypatch.setenv("BRAIDLOG_TOPICS__NUM_PARTITIONS", "3")
    options = ["--config", str(file), "--set", "log.durability=written", "--output", "ndjson"]
    assert run(["config", "show", *options]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    shown = {row["setting"]: (row["value"], row["source"]) for row in rows}
    assert shown["log.segment_bytes"] == (64 * 2**20, str(file))
    variable = "environment BRAIDLOG_TOPICS__NUM_PARTITIONS"
    assert shown["topics.num_partitions"] == (3, variable)
    assert shown["log.durability"] == ("written", "--set log.durability=written")
    assert shown["log.segment_ms"] == (604_800_000, "default")
    assert shown["listeners.iggy.listen"] == ("off", str(file))
    assert shown["listeners.kafka.listen"] == ("127.0.0.1:9092", "default")
    assert "listeners.http.produce_bytes_max" in shown


def test_a_running_broker_shows_its_settings_and_the_clusters(tmp_path, capsys):
    others = dict.fromkeys(("kafka", "pulsar", "iggy", "zookeeper"), "off")
    with RunningBroker(tmp_path, listen=others, settings=["topics.num_partitions=3"]) as broker:
        client = AdminClient(broker.url)
        client.send("PUT", "/admin/v2/clusters/far", {"serviceUrl": "http://far:8080"})
        client.receive()
        assert run(["config", "show", "--url", broker.url, "--output", "ndjson"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        shown = {row["setting"]: (row["value"], row["source"]) for row in rows}
        assert shown["topics.num_partitions"] == (3, "--set topics.num_partitions=3")
        described, source = shown["pulsar_clusters.far"]
        assert described["serviceUrl"] == "http://far:8080" and source == "Pulsar's admin API"
        assert run(["config", "show", "--url", broker.url]) == 0
        assert "http://far:8080" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("log.segment_byts=1", "log.segment_byts: unknown setting"),
        ("listeners.kafka.nope=1", "nope"),
        ("listeners.nope.listen=127.0.0.1:1", "no protocol named 'nope'"),
        ("listeners.http.listen=0.0.0.0:1", "can be reached from other machines"),
        ("nothing", "expected KEY=VALUE"),
    ],
)
def test_a_bad_setting_is_a_usage_error_with_its_place(capsys, setting, reason):
    assert run(["config", "check", "--set", setting]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_good_settings_pass_the_check(capsys):
    assert run(["config", "check"]) == 0
    assert "kafka" in capsys.readouterr().out


def test_the_example_is_a_file_with_the_defaults(tmp_path, capsys):
    assert run(["config", "example"]) == 0
    text = re.sub(r"^# (?=\[|\w+ = )", "", capsys.readouterr().out, flags=re.MULTILINE)
    file = tmp_path / "all.toml"
    file.write_text(text)
    settings = load(file=str(file), environment={})
    for name in Config.__struct_fields__:
        if name not in ("origins", "listeners"):
            assert getattr(settings, name) == getattr(Config(), name), name
    assert len(settings.listeners) == 4
    assert run(["config", "check", "--config", str(file)]) == 0
