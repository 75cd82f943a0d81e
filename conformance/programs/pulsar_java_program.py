"""Pulsar's Java client and admin client, versions as in `pulsar_java/pom.xml`: build and run."""

from pathlib import Path
from typing import Final

from conformance.programs import maven

SOURCES: Final = Path(__file__).parent / "pulsar_java"
NAME: Final = "pulsar-java"


def build() -> None:
    """Compile the program and fetch its libraries. Raises NotBuilt."""
    maven.build(SOURCES, NAME)


def run(pulsar: str, url: str) -> list[str]:
    """The lines that it prints, `ok` or `FAILED` and the step, on the broker with that address of
    Pulsar's and that URL. Raises NotBuilt.
    """
    return maven.run(NAME, "Check", pulsar, url)
