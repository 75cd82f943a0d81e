"""The command line, `braidlog`.

Runs the plain form of `serve`. All other commands are in `broker/cli/commands.py`, whose imports a
broker would keep in memory for nothing.

Exit codes: 0 done, 1 failed, 2 usage or a bad setting, 3 not reachable, 4 not found, 130
interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from braidlog.broker.cli.serving import plain_flags, serve

EXIT_INTERRUPTED = 130


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Arguments are those of the process by default."""
    given = sys.argv[1:] if arguments is None else arguments
    flags = plain_flags(given)
    try:
        if flags is not None:
            return serve(flags)
        from braidlog.broker.cli.commands import run_command

        return run_command(given)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def main() -> None:
    """Run the `braidlog` command and exit."""
    sys.exit(run())


if __name__ == "__main__":
    main()
