"""Commands that destroy data ask first, and refuse without a terminal."""

import io
import sys

import pytest

from braidlog.broker.cli.main import run
from tests.broker.cli.test_admin import fake
from tests.broker.cli.test_progress import FakeTerminal

__all__ = ["fake"]  # A fixture.

DESTROYING = {
    ("topics", "delete", "orders"): "/api/v1/topics/public/default/orders",
    ("users", "delete", "anna"): "/api/v1/users/anna",
    ("tokens", "revoke", "anna", "laptop"): "/api/v1/users/anna/tokens/laptop",
}
COMMANDS = pytest.mark.parametrize("words", DESTROYING, ids=" ".join)


@pytest.fixture
def command(fake, monkeypatch):
    """Return a function that runs a command against the server and returns its exit code."""
    monkeypatch.setenv("BRAIDLOG_URL", fake.url)
    for path in DESTROYING.values():
        fake.answers["DELETE", path] = 204, None
    return lambda *words: run(list(words))


@COMMANDS
def test_without_a_terminal_the_command_is_refused(fake, command, capsys, monkeypatch, words):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert command(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "braidlog: nothing was changed: without a terminal, --yes is needed"
    assert fake.asked == []


@COMMANDS
@pytest.mark.parametrize("typed", ["n\n", "\n", "yesterday\n", ""])
def test_any_answer_but_yes_changes_nothing(fake, command, capsys, monkeypatch, words, typed):
    monkeypatch.setattr(sys, "stdin", FakeTerminal(typed))
    assert command(*words) == 1
    assert "nothing was changed" in capsys.readouterr().err
    assert fake.asked == []


@COMMANDS
@pytest.mark.parametrize(("typed", "option"), [("y\n", ()), ("YES\n", ()), ("", ("--yes",))])
def test_yes_confirms_the_destruction(fake, command, monkeypatch, words, typed, option):
    monkeypatch.setattr(sys, "stdin", FakeTerminal(typed) if typed else io.StringIO())
    assert command(*words, *option) == 0
    assert [(method, path) for method, path, _, _ in fake.asked] == [("DELETE", DESTROYING[words])]


def test_a_sweep_of_the_store_is_refused_before_the_store_is_touched(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    settings = (
        "shared.database=postgresql://nobody@127.0.0.1:1/x",
        f"shared.store=file://{tmp_path}",
    )
    words = [part for setting in settings for part in ("--set", setting)]
    assert run(["cluster", "sweep", *words]) == 2
    assert "--yes is needed" in capsys.readouterr().err
