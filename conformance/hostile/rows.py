"""A row of the attack: a valid frame of a command, as the base of bad frames. Knows no protocol.

Each protocol has a module of rows (`rows_kafka.py` and so on). A new command is a new row there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.hostile.mutation import FrameLayout

VECTORS = Path(__file__).parent.parent / "vectors"
TOPIC = "hostile"  # Topic of most frames; the judged clients have separate topics.


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A row: its name in the report, and a valid frame.

    `wrap` makes a whole frame of `inner`: a bad `inner` gets correct checksums and lengths, so that
    the error reaches the parser behind them.
    """

    name: str
    frame: bytes
    inner: bytes = b""
    wrap: Callable[[bytes], bytes] | None = None


@dataclass(frozen=True, slots=True)
class SessionField:
    """A number, or a token, from the answer to the opening, which each frame repeats: at
    `frame_pos`, or wherever `marker` stands, if there is a marker.
    """

    answer_pos: int  # behind `after`
    frame_pos: int
    size: int = 8
    after: bytes = b""
    marker: bytes = b""

    def place_in(self, answer: bytes) -> int | None:
        """Return the position of the number; None if more bytes must come first."""
        start = answer.find(self.after)
        pos = start + len(self.after) + self.answer_pos
        return None if start < 0 or len(answer) < pos + self.size else pos

    def put_in(self, frame: bytes, number: bytes) -> bytes:
        """Return the frame with the number; a frame that is too short stays as it is."""
        if self.marker:
            return frame.replace(self.marker, number)
        return inserted(frame, self.frame_pos, number)


def inserted(frame: bytes, pos: int, number: bytes) -> bytes:
    """Return the frame with the number at `pos`; a frame that is too short stays as it is."""
    end = pos + len(number)
    return frame[:pos] + number + frame[end:] if len(frame) >= end else frame


@dataclass(frozen=True, slots=True)
class OpeningQuestion:
    """A frame behind the opening, with the session's number; the following frames repeat a number
    from the answer.

    `number_in` returns the number; None if more bytes must come first, b"" if the broker refused
    the question: the frames stay as they are.
    """

    frame: bytes
    frame_pos: int
    number_in: Callable[[bytes], bytes | None]


@dataclass(frozen=True, slots=True)
class ConnectionKind:
    """A kind of connection: its opening, and the possible commands."""

    layout: FrameLayout
    opening: Sequence[bytes]  # frames that a connection begins with
    opening_apis: Sequence[str]  # the opening frames' names in the broker's metrics
    commands: Sequence[CommandRow]
    session: SessionField | None = None
    question: OpeningQuestion | None = None
    weight: int = 1  # relative frequency of such connections
    dialect: str = ""  # heading of the frames in the report


@dataclass(frozen=True, slots=True)
class Protocol:
    """The attack on a listener."""

    name: str  # of the listener, unless `listener` names the listener
    talks: Sequence[ConnectionKind]
    counted_as: str = ""  # Name of its requests in the metrics, if not the listener's.
    listener: str = ""


def recorded(path: str) -> Iterator[list[str]]:
    """Yield the rows of a file below `conformance/vectors/`, without comments."""
    for line in (VECTORS / path).read_text().splitlines():
        if line and not line.startswith("#"):
            row = line.split("\t")
            if row[0] != "name":
                yield row
