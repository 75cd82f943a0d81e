"""Iggy's clients in other languages: pinned versions, and the messages for missing clients."""

import pytest

from conformance.clients import iggy_programs
from conformance.clients.iggy import NoClient
from conformance.clients.iggy_programs import ALL, PROGRAMS


@pytest.mark.parametrize(
    "program", [candidate for candidate in ALL if candidate.language == "rust"], ids=str
)
def test_a_program_pins_its_client(program):
    folder = PROGRAMS / program.folder
    assert f'iggy = "={program.version}"' in (folder / "Cargo.toml").read_text()
    assert not (folder / "Cargo.lock").exists()


def test_the_java_source_uses_the_version_of_its_build():
    assert "<version>${iggy.version}</version>" in (PROGRAMS / "java" / "pom.xml").read_text()


@pytest.mark.parametrize("program", ALL, ids=str)
def test_an_unbuilt_program_is_reported_with_its_build_command(program, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NoClient, match="iggy_programs"):
        iggy_programs.command_of(program)


@pytest.mark.parametrize("program", ALL, ids=str)
def test_a_missing_tool_is_named_and_no_file_is_left(program, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    tool = {"rust": "cargo", "java": "mvn"}[program.language]
    with pytest.raises(NoClient, match=f"there is no {tool}"):
        iggy_programs.build(program)
    assert list(iggy_programs.cache_folder().iterdir()) == []
