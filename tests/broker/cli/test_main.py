"""The command line's frame: commands, flags, exit codes."""

import subprocess
import sys

import pytest

from braidlog.broker.cli.main import run


def test_help_names_every_command(capsys):
    assert run(["--help"]) == 0
    output = capsys.readouterr().out
    for command in ("serve", "topics", "groups", "export", "log"):
        assert command in output


GROUPS = {
    "topics": ["list", "show", "create", "alter", "delete"],
    "groups": ["list", "show"],
    "log": ["verify", "dump", "repair"],
}


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_names_its_commands(capsys, group):
    assert run([group, "--help"]) == 0
    output = capsys.readouterr().out
    assert all(f" {command} " in output for command in GROUPS[group])


@pytest.mark.parametrize(
    "command",
    ["serve", "export", *(f"{group} {name}" for group in GROUPS for name in GROUPS[group])],
)
def test_help_of_every_command_shows_an_example(capsys, command):
    assert run([*command.split(), "--help"]) == 0
    assert f"Example: braidlog {command}" in capsys.readouterr().out


def test_help_of_serve_shows_its_flags(capsys):
    assert run(["serve", "--help"]) == 0
    output = capsys.readouterr().out
    for flag in ("--data-dir", "--config", "--listen", "--set", "--ready-file"):
        assert flag in output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["serve", "--bogus"], "--bogus"),
        (["nothing"], "unknown command 'nothing', there are: "),
        (
            ["topics", "nothing"],
            "unknown command 'nothing', there are: list, show, create, alter, delete",
        ),
        (["serve", "--listen", "kafka"], "--listen kafka: expected NAME=HOST:PORT"),
        (["serve", "--set", "=1"], "--set =1: expected KEY=VALUE"),
        (["serve", "--set", "log.nope=1"], "--set log.nope=1: log.nope: unknown setting"),
        (
            ["serve", "--set", "log.segmnt_bytes=1"],
            "log.segmnt_bytes: unknown setting, did you mean log.segment_bytes?",
        ),
        (["serve", "--config", "/no/such.toml"], "/no/such.toml"),
        (["topics", "show"], "topics show needs TOPIC: `braidlog topics show --help` shows an"),
        (["groups", "reset", "g", "--topic", "t"], "groups reset needs --to: "),
        (["groups", "reset", "g", "--topic"], "parameter --topic requires an argument"),
        (["--context", "prod", "topics", "list"], "--context stands before the command: "),
        (["stats", "--watch", "0"], "--watch 0: expected more than 0 seconds"),
        (["cluster", "show"], "storage.mode shared needs shared.database, which is not set"),
        (["serve", "--listen", "kafka=here"], "--listen kafka=here: listeners.kafka.listen"),
    ],
)
def test_usage_errors_are_a_single_line_and_exit_with_2(capsys, arguments, reason):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["log", "verify"], 1, "braidlog.broker.cli.log"),
        (["nothing"], 2, "unknown command 'nothing'"),
        (["topic", "list"], 2, "unknown command 'topic', did you mean 'topics', there are: "),
        (["topics", "nothing"], 2, "unknown command 'nothing'"),
    ],
)
def test_a_command_that_fails_to_import_affects_no_other(arguments, code, reason):
    program = (
        # The import of this module fails from now on.
        "import sys; sys.modules['braidlog.broker.cli.log'] = None\n"
        f"from braidlog.broker.cli.main import run; sys.exit(run({arguments!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == code
    assert reason in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.slow
def test_a_shell_completes_commands_and_options(capsys, shell):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "groups" in script and "key-separator" in script


@pytest.mark.parametrize("topic", ["contexts", "output", "exit-codes", "places", "format"])
def test_help_explains_subjects(capsys, topic):
    assert run(["help", topic]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 5


def test_help_of_a_command_is_its_help(capsys):
    assert run(["help", "groups", "reset"]) == 0
    assert "Example: braidlog groups reset" in capsys.readouterr().out
    assert run(["help"]) == 0
    assert "exit-codes" in capsys.readouterr().out
    assert run(["help", "nothing"]) == 2


def test_help_has_no_escape_codes_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["topics", "--help"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.slow
def test_closed_streams_are_a_clear_error():
    program = f"{sys.executable} -m braidlog.broker.cli.main"
    closed = subprocess.run(f"{program} config example >&-", shell=True, capture_output=True)
    assert (closed.returncode, closed.stderr) == (1, b"braidlog: standard output is closed\n")
    shell_line = f"{program} topics delete orders <&-"
    refused = subprocess.run(shell_line, shell=True, capture_output=True)
    assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
