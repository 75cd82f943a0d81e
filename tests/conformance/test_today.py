"""Programs of today's Kafka clients: pinned versions, and the messages for failed builds."""

import json
import shutil

import pytest

from conformance.today.__main__ import outcomes
from conformance.today.programs import PROGRAMS, SOURCES
from conformance.today.scenario import HEADERS, RECORDS, ClientProgram, ScenarioFailed


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda client: f"{client.name}-{client.version}")
def test_a_missing_tool_is_a_reason_to_skip(program, monkeypatch, tmp_path):
    monkeypatch.setenv("CONFORMANCE_CLIENTS", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    ((check, outcome),) = outcomes(program, "127.0.0.1:1")
    assert check == "build"
    assert outcome.startswith("skipped: ")


def test_tool_versions_are_pinned():
    versions = {program.name: program.version for program in PROGRAMS}
    assert f"franz-go v{versions['franz']}\n" in (SOURCES / "franz/go.mod").read_text()
    assert f"sarama v{versions['sarama']}\n" in (SOURCES / "sarama/go.mod").read_text()
    package = json.loads((SOURCES / "kafkajs/package.json").read_text())
    assert package["dependencies"]["kafkajs"] == versions["kafkajs"]


@pytest.mark.parametrize("name", ["java/Today.java", "franz/main.go", "kafkajs/today.mjs"])
def test_every_program_sends_the_same_records(name):
    source = (SOURCES / name).read_text()
    for text in ("k0", "v0", "v1", "k2", "k4", "v4", "k5", "5000"):
        assert text in source
    assert len(RECORDS) == 6 and len(HEADERS) == 3


def test_a_failed_client_is_reported_with_its_last_line():
    with pytest.raises(ScenarioFailed, match="no such thing"):
        ClientProgram(["sh", "-c", "echo an Error: no such thing >&2; exit 1"], "x").call(
            "produce", "t"
        )
