"""Pulsar's Rust client, version as in `pulsar_rust/Cargo.toml`: build and run."""

import os
import shutil
from pathlib import Path
from typing import Final

from conformance.programs.running import NotBuilt, build_in, lines_of, program_folder

SOURCES: Final = Path(__file__).parent / "pulsar_rust"


def build() -> None:
    """Fetch its libraries and compile the program. Raises NotBuilt."""
    if "PROTOC" not in os.environ and shutil.which("protoc") is None:
        raise NotBuilt("protoc is not installed, and PROTOC names none")
    folder = program_folder("pulsar-rust")
    copied = folder / "source"  # Cargo writes a lock file beside the source.
    shutil.copytree(SOURCES, copied, dirs_exist_ok=True)
    build_in(copied, "cargo", "build", "--quiet", "--target-dir", str(folder))


def run(pulsar: str, url: str) -> list[str]:
    """Return the program's lines; `url` is not used. Raises NotBuilt."""
    program = program_folder("pulsar-rust") / "debug" / "pulsar-rust"
    if not program.exists():
        raise NotBuilt("not built: python -m conformance.programs rust")
    return lines_of([str(program), pulsar])
