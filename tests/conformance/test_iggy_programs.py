"""Iggy's clients in other languages: what is pinned, and what is told where one cannot be had."""

import pytest

from conformance import iggy_programs
from conformance.iggy_clients import NoClient
from conformance.iggy_programs import ALL, PROGRAMS


@pytest.mark.parametrize("program", [one for one in ALL if one.language == "rust"], ids=str)
def test_a_program_pins_its_client(program):
    folder = PROGRAMS / program.folder
    assert f'iggy = "={program.version}"' in (folder / "Cargo.toml").read_text()
    assert not (folder / "Cargo.lock").exists()


def test_the_source_for_java_takes_the_version_that_it_is_built_for():
    assert "<version>${iggy.version}</version>" in (PROGRAMS / "java" / "pom.xml").read_text()


@pytest.mark.parametrize("program", ALL, ids=str)
def test_what_was_not_built_is_told_with_how_to_build_it(program, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NoClient, match="iggy_programs"):
        iggy_programs.command_of(program)


@pytest.mark.parametrize("program", ALL, ids=str)
def test_a_tool_that_is_not_there_is_named_and_nothing_is_left(program, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    tool = {"rust": "cargo", "java": "mvn"}[program.language]
    with pytest.raises(NoClient, match=f"there is no {tool}"):
        iggy_programs.build(program)
    assert list(iggy_programs.cache_folder().iterdir()) == []
