"""Kafka's old clients, if `python -m conformance.old` has built them: a build takes minutes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.old import programs
from conformance.old.__main__ import outcomes
from conformance.old.programs import PROGRAMS, SOURCES
from conformance.server import RunningBroker
from conformance.today.programs import Program


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker")
    with RunningBroker(folder, listen={"kafka": "127.0.0.1:0"}, others=False) as running:
        yield running.addresses["kafka"]


def name_of(program: Program) -> str:
    return f"{program.name}-{program.version}"


@pytest.mark.slow
@pytest.mark.clients
@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_an_old_client_writes_reads_and_commits(address: str, program: Program) -> None:
    if not program.folder.is_dir():
        pytest.skip(f"not built here: python -m conformance.old --only {name_of(program)}")
    results = dict(outcomes(program, address, f"g-{name_of(program)}"))
    if "build" in results:
        pytest.skip(results["build"])
    assert set(results.values()) == {"ok"}, results


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_missing_tool_is_a_reason_to_skip(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CONFORMANCE_CLIENTS", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    ((check, outcome),) = outcomes(program, "127.0.0.1:1", "g")
    assert check == "build"
    assert outcome.startswith("skipped: ")


@pytest.mark.parametrize("name", ["java-0.8/Old.java", "no-kafka/old.js", "kafka-node/old.js"])
def test_every_program_sends_the_same_records(name: str) -> None:
    source = (SOURCES / name).read_text()
    for text in ("k0", "v0", "v1", "k2", "v2", "k5", "5000"):
        assert text in source


def test_npm_versions_are_pinned() -> None:
    for program in programs.PROGRAMS:
        package = SOURCES / program.name / "package.json"
        if package.exists():
            assert f'"{program.name}": "{program.version}"' in package.read_text()
