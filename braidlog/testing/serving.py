"""`braidlog serve --ephemeral`: a broker for tests in any language.

The broker keeps its data in memory and forgets them at the end. The ready file has the addresses of
the listeners and of the control address, which injects faults (`control.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from braidlog.broker.cli.failures import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, fail
from braidlog.broker.config import logging as logs
from braidlog.broker.config.settings import ConfigError
from braidlog.broker.process import first_error, write_ready_file
from braidlog.storage.errors import StorageError
from braidlog.testing.running import Running, Setting, run_broker


def serve_ephemeral(settings: Sequence[Setting], ready_file: str | None) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code of the process."""
    logs.configure(level="warning", log_format="auto")

    def started(running: Running) -> None:
        print("braidlog serves from memory: the data are gone at the end")
        for name, address in running.addresses.items():
            print(f"  {name:<7}  {address}")
        sys.stdout.flush()
        if ready_file is not None:
            write_ready_file(ready_file, running.addresses)

    try:
        if ready_file is not None:
            Path(ready_file).unlink(missing_ok=True)  # Of an earlier run.
        run_broker(settings, started, signals=True)
    except Exception as raised:  # A start that fails is a line; a bug is raised again.
        error = first_error(raised)
        if isinstance(error, ConfigError):
            return fail(str(error), EXIT_USAGE)
        if isinstance(error, OSError | StorageError):
            return fail(str(error), EXIT_FAILED)
        raise
    return EXIT_DONE
