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
    """Return the program's lines, `ok` or `FAILED` and the step. Raises NotBuilt.

    `pulsar` is the address of the broker's Pulsar listener, `url` the broker's HTTP URL.
    """
    return maven.run(NAME, "Check", pulsar, url)
