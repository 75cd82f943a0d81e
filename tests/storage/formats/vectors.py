"""Recorded bytes of real clients and servers, from conformance/vectors/."""

from pathlib import Path

VECTORS = Path(__file__).parents[3] / "conformance" / "vectors"


def rows(protocol: str, name: str) -> list[list[str]]:
    """Return the columns of each row of a file, without comments."""
    lines = (VECTORS / protocol / name).read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]
