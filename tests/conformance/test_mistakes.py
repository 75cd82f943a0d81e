"""Mistakes of operators end with a clear line: the table of `conformance.mistakes`.

The program makes every mistake in a process of its own; here, those without a broker's start run in
this process.
"""

import pytest

from braidlog.broker.cli.main import run
from conformance.mistakes import MISTAKES, CommandResult, prepared, words_of

HERE = [mistake for mistake in MISTAKES if not mistake.command.startswith("serve --data-dir")]


@pytest.fixture(scope="module")
def places():
    """Return the places that the commands name."""
    with prepared() as prepared_places:
        yield prepared_places


@pytest.mark.slow
def test_every_mistake_ends_with_a_line_that_names_it(places, capsys, monkeypatch):
    monkeypatch.setenv("HOME", places["dir"])
    faults = []
    for mistake in HERE:
        code = run(words_of(mistake.command, places))
        output = "".join(capsys.readouterr())
        fault = CommandResult(code, output).fault(mistake, places)
        if fault:
            faults.append(f"{mistake.command}: {fault}: {output}")
    assert not faults, "\n".join(faults)


def test_there_are_sixty_mistakes():
    assert len(MISTAKES) >= 60 and len({mistake.command for mistake in MISTAKES}) == len(MISTAKES)


def test_a_traceback_is_a_fault():
    mistake = next(mistake for mistake in MISTAKES if mistake.command == "topics list --bogus")
    assert CommandResult(2, "no such option: --bogus").fault(mistake, {}) == ""
    assert CommandResult(2, "Traceback: --bogus").fault(mistake, {}) == "a traceback"
    assert CommandResult(1, "--bogus").fault(mistake, {}) == "exit code 1, expected 2"
    assert CommandResult(2, "something").fault(mistake, {}) == "no '--bogus'"
