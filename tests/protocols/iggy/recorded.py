"""The recorded frames of `conformance/vectors/iggy`, as typed rows."""

from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).parents[3] / "conformance" / "vectors" / "iggy"


CLOSED = None  # As an answer: the server closed the connection.


@dataclass
class Recorded:
    """A request and the real server's answer; None: the connection was closed, b"silent": no
    answer.
    """

    name: str
    request: bytes
    answer: bytes | None

    @property
    def code(self) -> int:
        return int.from_bytes(self.request[4:8], "little")


@dataclass(frozen=True)
class FirstFrame:
    """The first bytes of a real client."""

    dialect: str
    client: str
    command: str
    request: bytes


def conversation(file: str = "d2-server-0.4.300.tsv") -> list[Recorded]:
    """Return all rows of a file, in order."""
    rows = []
    for name, request, answer in _rows(file):
        if (name, request) == ("name", "request"):
            continue
        expected = _bytes(answer) if answer != "closed" else CLOSED
        rows.append(Recorded(name, _bytes(request), expected))
    return rows


def _bytes(text: str) -> bytes:
    """Return the bytes of hex; a word in parentheses or without hex is returned as text bytes."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()


def recorded(name: str) -> Recorded:
    """Return the row of that name."""
    return next(row for row in conversation() if row.name == name)


def first_frames() -> list[FirstFrame]:
    """Return all rows of `first-frames.tsv`."""
    return [
        FirstFrame(dialect, client, command, bytes.fromhex(request))
        for dialect, client, command, request in _rows("first-frames.tsv")
    ]


def requests_of_w() -> dict[str, list[tuple[str, bytes]]]:
    """Return the commands and requests of each client of dialect W, in order."""
    requests: dict[str, list[tuple[str, bytes]]] = {}
    for client, command, request in _rows("w-requests.tsv"):
        requests.setdefault(client, []).append((command, bytes.fromhex(request)))
    return requests


def _rows(name: str) -> list[list[str]]:
    lines = (VECTORS / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]
