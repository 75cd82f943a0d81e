"""The command line, `braidlog`.

Runs the plain form of `serve`. All other commands are in `broker/cli/commands.py`, whose imports a
broker would keep in memory for nothing.

Exit codes: 0 done, 1 failed, 2 usage or a bad setting, 3 not reachable, 4 not found, 130
interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from braidlog.broker.cli.failures import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, fail
from braidlog.broker.cli.serving import plain_flags, serve


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Arguments are those of the process by default."""
    words = sys.argv[1:] if arguments is None else arguments
    flags = plain_flags(words)
    try:
        if flags is not None:
            return serve(flags)
        return _run_other(words)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run_other(words: Sequence[str]) -> int:
    """Run a command that prints; a reader that has enough, as `head`, is no failure."""
    from braidlog.broker.cli.commands import run_command

    if sys.stdout is None:
        return fail("standard output is closed", EXIT_FAILED)
    if sys.stdin is None:  # Closed: commands that read find the end.
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # A terminal may not know every character.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = run_command(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_output()
        return EXIT_DONE
    except OSError as error:
        _forget_output()
        place = "" if error.filename is None else f"{error.filename}: "
        return fail(f"{place}{error.strerror or error}", EXIT_FAILED)


def _forget_output() -> None:
    """Drop the rest of the output: Python would try to write the rest at its end, and fail."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.__stdout__.fileno() if sys.__stdout__ else 1)


def main() -> None:
    """Run the `braidlog` command and exit."""
    sys.exit(run())


if __name__ == "__main__":
    main()
