"""All commands, as cyclopts reads them. Exit codes are those of `main.py`.

A command is imported at its first use: `--help` needs no broker and no server.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnknownCommandError

from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_USAGE, AdminError, fail
from braidlog.broker.cli.serving import ServeFlags
from braidlog.broker.cli.serving import serve as serve_with

HELP_FLAGS = frozenset({"--help", "-h"})


def _version() -> str:
    from importlib import metadata

    return metadata.version("braidlog")


app = App(
    name="braidlog",
    help="A message broker with one log for clients of Kafka (0.8 to 4), Pulsar, Iggy and HTTP.",
    version=_version,
)
app.command("braidlog.broker.cli.admin:topics", help="List, show, create, alter and delete topics.")
app.command(
    "braidlog.broker.cli.admin:groups", help="List, show, move and delete groups (subscriptions)."
)
app.command("braidlog.broker.cli.produce:produce", help="Store messages in a topic.")
app.command("braidlog.broker.cli.consume:consume", help="Print the messages of a topic.")
app.command(
    "braidlog.broker.cli.consume:tail", help="Print the last messages of topics, and new messages."
)
app.command(
    "braidlog.broker.cli.produce:import_",
    name="import",
    help="Store the lines of `consume --output ndjson` again.",
)
app.command(
    "braidlog.broker.cli.export:export",
    help="""Write a topic to Parquet with Spark: what is new since the last export to this folder.

    Example: braidlog export orders --to ./parquet --data-dir ./data
    """,
)
app.command("braidlog.broker.cli.schemas:schemas", help="List, show, register, check schemas.")
app.command("braidlog.broker.cli.watching:connections", help="List the open connections.")
app.command("braidlog.broker.cli.watching:stats", help="Show totals and rates by protocol.")
app.command("braidlog.broker.cli.watching:health", help="Show if the broker accepts work.")
app.command("braidlog.broker.cli.config:config", help="Show and check the settings of a broker.")
app.command("braidlog.broker.cli.bench:bench", help="Measure produce and consume over HTTP.")
app.command("braidlog.broker.cli.users:users", help="List, make, change and remove users.")
app.command("braidlog.broker.cli.users:tokens", help="Make, show and revoke access tokens.")
app.command(
    "braidlog.broker.cli.users:permissions", help="Grant, revoke, list and test permissions."
)
app.command("braidlog.broker.cli.log:log", help="Verify, dump and repair a data directory.")
app.command(
    "braidlog.broker.cli.cluster:cluster", help="Make, show and check a cluster's shared store."
)


@app.command
def serve(
    *,
    data_dir: Annotated[str | None, Parameter(help="Where everything is stored.")] = None,
    config: Annotated[str | None, Parameter(help="Settings, a TOML file.")] = None,
    listen: Annotated[
        list[str] | None,
        Parameter(
            negative=(), help="NAME=HOST:PORT (port 0: any free one) or NAME=off. Repeatable."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        Parameter(
            name="--set", negative=(), help="KEY=VALUE, as log.segment_bytes=128MiB. Repeatable."
        ),
    ] = None,
    ready_file: Annotated[
        str | None, Parameter(help="Written once every listener accepts: pid and addresses, JSON.")
    ] = None,
    ephemeral: Annotated[
        bool,
        Parameter(negative=(), help="For tests: data in memory, free ports, faults on demand."),
    ] = False,
) -> int:
    """Run the broker until SIGTERM or SIGINT.

    Example: braidlog serve --data-dir ./data --listen kafka=127.0.0.1:9092 --listen http=off
    """
    flags = ServeFlags(data_dir, config, listen or [], set_ or [], ready_file, ephemeral)
    return serve_with(flags)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"]) -> int:
    """Print a shell's completion of all commands and options.

    Example: braidlog completion bash > ~/.local/share/bash-completion/completions/braidlog
    """
    print(app.generate_completion(shell=shell))
    return 0


@app.command(name="help")
def help_(*topic: str) -> int:
    """Show the help of a command, or of a subject: contexts, output, exit-codes, places, format.

    Example: braidlog help groups reset
    """
    from braidlog.broker.cli.help_topics import TOPICS

    if len(topic) == 1 and topic[0] in TOPICS:
        print(TOPICS[topic[0]], end="")
        return 0
    code = run_command([*topic, "--help"])
    if not topic:
        print(f"Further subjects of `braidlog help`: {', '.join(TOPICS)}")
    return code


def run_command(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Raises KeyboardInterrupt."""
    if HELP_FLAGS.intersection(arguments):
        from rich.console import Console

        app.console = Console(color_system=None, highlight=False)  # No escape codes.
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except UnknownCommandError as error:
        return fail(_unknown_command(error), EXIT_USAGE)
    except MissingArgumentError as error:
        return fail(_missing_argument(error), EXIT_USAGE)
    except CycloptsError as error:
        return fail(str(error), EXIT_USAGE)
    except ImportError as error:  # Raised by the command's own module.
        return fail(str(error.__cause__ or error), EXIT_FAILED)
    try:
        return command(*bound.args, **bound.kwargs) or 0
    except AdminError as error:
        return fail(str(error), error.exit_code)


def _unknown_command(error: UnknownCommandError) -> str:
    """Return cyclopts' text, but without importing every other command for the text."""
    command = (error.unused_tokens or [""])[0]
    if command.startswith("-"):
        return f"{command} stands before the command: options follow a command, as `topics list`"
    names = [name for name in error.app or () if not name.startswith("-")]
    near = get_close_matches(command, names, 1)
    meant = f", did you mean {near[0]!r}" if near else ""
    return f"unknown command {command!r}{meant}, there are: {', '.join(names)}"


def _missing_argument(error: MissingArgumentError) -> str:
    """Return a text that names an argument by its place, and an option by its name."""
    argument, command = error.argument, " ".join(error.command_chain or ())
    if argument is None or error.keyword is not None or argument.tokens:
        return str(error)  # An option without its value.
    is_option = argument.field_info.is_keyword_only
    name = argument.name if is_option else argument.name.lstrip("-").upper()
    return f"{command} needs {name}: `braidlog {command} --help` shows an example"
