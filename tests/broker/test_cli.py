"""The command line's frame: commands, flags, exit codes."""

import pytest

from broker.cli import run


def test_help_names_every_command(capsys):
    assert run(["--help"]) == 0
    output = capsys.readouterr().out
    for command in ("serve", "topics", "groups", "export", "log"):
        assert command in output


@pytest.mark.parametrize("command", ["serve", "topics", "groups", "export", "log"])
def test_help_of_every_command_works(capsys, command):
    assert run([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_help_of_serve_shows_its_flags_and_an_example(capsys):
    assert run(["serve", "--help"]) == 0
    output = capsys.readouterr().out
    for flag in ("--data-dir", "--config", "--listen", "--set", "--ready-file", "Example"):
        assert flag in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--bogus"], "--bogus"),
        (["nothing"], "nothing"),
        (["serve", "--listen", "kafka"], "--listen kafka: NAME=HOST:PORT is wanted"),
        (["serve", "--set", "=1"], "--set =1: KEY=VALUE is wanted"),
        (["serve", "--set", "log.nope=1"], "--set log.nope=1: log.nope: unknown setting"),
        (["serve", "--config", "/no/such.toml"], "/no/such.toml"),
        (["serve", "--listen", "kafka=here"], "--listen kafka=here: listeners.kafka.listen"),
    ],
)
def test_usage_errors_are_one_line_and_exit_with_2(capsys, arguments, said):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
