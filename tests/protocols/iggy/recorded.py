"""The recorded frames of `conformance/vectors/iggy`, as typed rows."""

from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).parents[3] / "conformance" / "vectors" / "iggy"


@dataclass(frozen=True)
class Recorded:
    """A request and what the real server answered; None: it closed the connection."""

    name: str
    request: bytes
    answer: bytes | None

    @property
    def code(self) -> int:
        return int.from_bytes(self.request[4:8], "little")


@dataclass(frozen=True)
class FirstFrame:
    """What a real client sent first."""

    dialect: str
    client: str
    what: str
    request: bytes


def conversation() -> list[Recorded]:
    """All of `d2-server-0.4.300.tsv`, in order."""
    rows = []
    for name, request, answer in _rows("d2-server-0.4.300.tsv")[1:]:
        told = None if answer == "closed" else bytes.fromhex(answer)
        rows.append(Recorded(name, bytes.fromhex(request), told))
    return rows


def recorded(name: str) -> Recorded:
    """The row of that name."""
    return next(row for row in conversation() if row.name == name)


def first_frames() -> list[FirstFrame]:
    """All of `first-frames.tsv`."""
    return [
        FirstFrame(dialect, client, what, bytes.fromhex(request))
        for dialect, client, what, request in _rows("first-frames.tsv")
    ]


def _rows(name: str) -> list[list[str]]:
    lines = (VECTORS / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]
