"""Confirmation of commands that destroy data. Knows standard input and standard error only."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_USAGE, AdminError

Yes = Annotated[
    bool,
    Parameter(
        name="--yes",
        help="Do not ask. Required where standard input is no terminal.",
        negative="",
    ),
]


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees, by `--yes` or at the terminal.

    Raises AdminError: the user refused, or standard input is no terminal. A script that lost its
    terminal must not destroy data, so an unanswerable question never counts as agreement.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise AdminError("nothing was changed: without a terminal, --yes is needed", EXIT_USAGE)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise AdminError("nothing was changed", EXIT_FAILED)
