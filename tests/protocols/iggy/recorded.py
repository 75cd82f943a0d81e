"""The recorded frames of `conformance/vectors/iggy`, as typed rows."""

from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).parents[3] / "conformance" / "vectors" / "iggy"


CLOSED = None  # As an answer: the server ended the connection.


@dataclass
class Recorded:
    """A request and what the real server answered; None: it closed the connection, b"silent": it
    did neither.
    """

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


def conversation(file: str = "d2-server-0.4.300.tsv") -> list[Recorded]:
    """All of a file, in order."""
    rows = []
    for name, request, answer in _rows(file):
        if (name, request) == ("name", "request"):
            continue
        told = _bytes(answer) if answer != "closed" else CLOSED
        rows.append(Recorded(name, _bytes(request), told))
    return rows


def _bytes(text: str) -> bytes:
    """Bytes in hex, or a word in parentheses or out of hex as it is."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()


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
