"""Pulsar's command-line tools, `pulsar-admin` and `pulsar-client`, version as in
`pulsar_admin/pom.xml` (the newest that Maven Central has): build and run.
"""

from pathlib import Path
from typing import Final

from conformance.programs import maven

SOURCES: Final = Path(__file__).parent / "pulsar_admin"
NAME: Final = "pulsar-admin"


def build() -> None:
    """Compile the program and fetch its libraries. Raises NotBuilt."""
    maven.build(SOURCES, NAME)


def run(pulsar: str, url: str) -> list[str]:
    """Return the program's lines, a line per call. Raises NotBuilt."""
    return maven.run(NAME, "org.apache.pulsar.admin.cli.Check", pulsar, url)
