"""The note of an import's progress in a file, so that a later import goes on after an interruption.

The note is written after each group of lines that the broker has stored. An import that is killed
between the two stores that group again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_USAGE, AdminError


class ImportNote:
    """The number of stored lines of a file and a topic, in a file; nothing without a path."""

    def __init__(self, path: str | None, file: str, topic: str) -> None:
        """Read the note, if any. Raises AdminError for another import's note."""
        self._path = None if path is None else Path(path)
        self._names = {"file": file, "topic": topic}
        self.lines = self._read()

    def _read(self) -> int:
        if self._path is None:
            return 0
        try:
            note = json.loads(self._path.read_text())
            names, lines = {name: note[name] for name in self._names}, int(note["lines"])
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise AdminError(f"{self._path}: {error.strerror}", EXIT_USAGE) from error
        except (ValueError, KeyError, TypeError) as error:
            raise AdminError(f"{self._path}: no note of an import", EXIT_USAGE) from error
        if names != self._names:
            text = f"{self._path}: the note of an import of {names['file']} to {names['topic']}"
            raise AdminError(text, EXIT_USAGE)
        return lines

    def write(self, lines: int) -> None:
        """Note that so many lines are stored. Raises AdminError."""
        self.lines = lines
        if self._path is None:
            return
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(json.dumps({**self._names, "lines": lines}) + "\n")
            os.replace(new, self._path)
        except OSError as error:
            raise AdminError(f"{self._path}: {error.strerror}", EXIT_FAILED) from error

    def remove(self) -> None:
        """Remove the note of a finished import. Raises AdminError."""
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                raise AdminError(f"{self._path}: {error.strerror}", EXIT_FAILED) from error
