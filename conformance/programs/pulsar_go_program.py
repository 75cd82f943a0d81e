"""Pulsar's Go client, version as in `pulsar_go/go.mod`: build and run."""

from pathlib import Path
from typing import Final

from conformance.programs.running import NotBuilt, build_in, lines_of, program_folder

SOURCES: Final = Path(__file__).parent / "pulsar_go"


def build() -> None:
    """Fetch its libraries and compile the program. Raises NotBuilt."""
    program = _program()
    program.parent.mkdir(parents=True, exist_ok=True)
    build_in(SOURCES, "go", "build", "-o", str(program), ".")


def _program() -> Path:
    return program_folder("pulsar-go") / "check"


def run(pulsar: str, url: str) -> list[str]:
    """Return the program's lines; `url` is not used. Raises NotBuilt."""
    program = _program()
    if not program.exists():
        raise NotBuilt("not built: python -m conformance.programs")
    return lines_of([str(program), pulsar, url])
