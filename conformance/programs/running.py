"""Programs of other languages that check a broker step by step: where they are built, and how one
is run. Knows no language.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

BUILD_S = 900  # Some 60 MB of libraries the first time.
RUN_S = 300


class NotBuilt(Exception):
    """The program is not there; the text says how to get it."""


def program_folder(name: str) -> Path:
    """Where a program is built: outside the tree, kept from one run to the next."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "braidlog" / name


def build_in(place: Path, tool: str, *arguments: str) -> None:
    """Run a tool of the language in the folder of the sources. Raises NotBuilt."""
    command = shutil.which(tool)
    if command is None:
        raise NotBuilt(f"{tool} is not installed")
    try:
        built = subprocess.run(
            [command, *arguments], cwd=place, timeout=BUILD_S, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{tool} took too long") from None
    if built.returncode:
        raise NotBuilt(f"{tool}: {(built.stdout + built.stderr)[-2000:]}")


def lines_of(command: Sequence[str]) -> list[str]:
    """The lines that it prints, `ok` or `FAILED` and the step; of one that broke off, its last
    words too.
    """
    done = subprocess.run(command, timeout=RUN_S, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return [*lines, *done.stderr.splitlines()[-5:]] if done.returncode or not lines else lines
