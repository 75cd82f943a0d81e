"""What a row of the attack is: a good frame of one command, to make bad ones of. Knows no protocol.

Each protocol's rows are a module of their own (`rows_kafka.py` and so on). A new command is a new
row there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.hostile.mutation import Layout

VECTORS = Path(__file__).parent.parent / "vectors"
TOPIC = "hostile"  # What most of the frames are about; a judged client has topics of its own.


@dataclass(frozen=True, slots=True)
class Command:
    """One row: what it is called in the report, and a good frame.

    `wrap` makes a whole frame of `inner`: a bad one of these gets checksums and lengths that are
    right, so that it is found by whoever reads it behind those.
    """

    name: str
    frame: bytes
    inner: bytes = b""
    wrap: Callable[[bytes], bytes] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A number that the opening is answered with, and that each frame repeats."""

    answer_bytes: int  # of the answer, at least
    answer_pos: int
    frame_pos: int
    size: int = 8


@dataclass(frozen=True, slots=True)
class Talk:
    """How a kind of connection goes: its opening, and the commands that may follow."""

    layout: Layout
    opening: Sequence[bytes]  # frames that a connection begins with
    opening_apis: Sequence[str]  # the same as the broker's metrics call them
    commands: Sequence[Command]
    session: Session | None = None
    weight: int = 1  # how many connections go so, beside those of the others
    dialect: str = ""  # what the report counts its frames under


@dataclass(frozen=True, slots=True)
class Protocol:
    """How to attack a listener."""

    name: str  # of the listener
    talks: Sequence[Talk]


def recorded(path: str) -> Iterator[list[str]]:
    """The rows of a file below `conformance/vectors/`, without its comments."""
    for line in (VECTORS / path).read_text().splitlines():
        if line and not line.startswith("#"):
            row = line.split("\t")
            if row[0] != "name":
                yield row
