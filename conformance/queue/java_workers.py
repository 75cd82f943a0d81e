"""The workers in Java: members of a share group, and Pulsar's Java consumers.

`java/pom.xml` has the clients' versions. Maven builds the program outside the tree.
"""

from pathlib import Path
from typing import Final

from conformance.programs import maven
from conformance.programs.running import program_folder

SOURCES: Final = Path(__file__).parent / "java"
NAME: Final = "queue-workers"
MAIN: Final = "QueueWorker"


def build() -> None:
    """Compile the program and fetch its libraries, if the sources are newer. Raises NotBuilt."""
    built = program_folder(NAME) / "target" / "classes" / f"{MAIN}.class"
    sources = [path for path in SOURCES.rglob("*") if path.is_file()]
    if not built.exists() or built.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        maven.build(SOURCES, NAME)


def command(kind: str, address: str, topic: str, group: str) -> list[str]:
    """Return the command of a worker. Raises NotBuilt."""
    return maven.command_of(NAME, MAIN, kind, address, topic, group)
