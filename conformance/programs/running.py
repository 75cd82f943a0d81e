"""Programs of other languages that check a broker step by step: build folders and runs. Knows no
language.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

BUILD_S = 900  # The first build fetches about 60 MB of libraries.
RUN_S = 300


class NotBuilt(Exception):
    """The program is not built; the text gives the build command."""


def program_folder(name: str) -> Path:
    """Return a program's build folder: outside the tree, reused by later runs."""
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
    """Return a command's output lines, `ok` or `FAILED` and the step; for a failed program also its
    last error lines.
    """
    done = subprocess.run(command, timeout=RUN_S, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return [*lines, *done.stderr.splitlines()[-5:]] if done.returncode or not lines else lines
