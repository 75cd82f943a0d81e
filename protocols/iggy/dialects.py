"""A dialect of Iggy's protocol: the layouts of commands and records, and the behaviour that clients
expect of the broker.

Iggy broke its protocol many times before 1.0. The resulting dialects have names here: D0 (crates
0.0.60 to 0.0.89), D1a (0.0.92 to 0.1.6), D1b (0.1.7 to 0.4), D2 (0.5, 0.6), D3 (0.7), D4 (0.8), D5
(0.9, 0.10), V (0.11), W (0.12). A dialect is a row of tables (`layouts.py`,
`layouts_v.py`, `layouts_w.py`), not a branch. Knows no broker and no state of a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.forms import OLDEST_FORM, MessageForm
from braidlog.protocols.iggy.partitioning import xxhash32_from_one
from braidlog.protocols.iggy.replies import OptionInfo
from braidlog.protocols.reader import LittleEndianReader


class PayloadLayout(Protocol):
    """Reader of the payload of a command."""

    def read(self, payload: memoryview) -> object:
        """Return the request. Raises ProtocolError unless the payload is exactly a
        single request.
        """


@dataclass(frozen=True, slots=True)
class RequestLayout:
    """The payload of a command: `fields` in order, each named after the attribute of the request.

    `rest`: bytes after the fields are allowed, and ignored. Implements `PayloadLayout`.
    """

    type: type[Any]
    fields: tuple[tuple[str, f.Readable], ...] = ()
    rest: bool = False

    def with_pieces(self, pieces: Mapping[f.Readable, f.Readable]) -> RequestLayout:
        """Return the same layout with some pieces replaced."""
        fields = ((name, pieces.get(piece, piece)) for name, piece in self.fields)
        return RequestLayout(self.type, tuple(fields), self.rest)

    def read(self, payload: memoryview) -> object:
        reader = LittleEndianReader(payload)
        values = {name: piece.read(reader) for name, piece in self.fields}
        if reader.left and not self.rest:
            raise ProtocolError(f"{reader.left} bytes too many in {self.type.__name__}")
        return self.type(**values)


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """A record of a reply."""

    fields: tuple[tuple[str, f.Writable], ...]

    def with_pieces(self, pieces: Mapping[f.Writable, f.Writable]) -> RecordLayout:
        """Return the same layout with some pieces replaced."""
        return RecordLayout(tuple((name, pieces.get(piece, piece)) for name, piece in self.fields))

    def followed_by(self, **fields: f.Writable) -> RecordLayout:
        """Return the same layout with more fields at the end."""
        return RecordLayout((*self.fields, *fields.items()))

    def write(self, record: object) -> bytes:
        return b"".join(piece.write(getattr(record, name)) for name, piece in self.fields)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Expectations of a dialect's clients, apart from layouts."""

    closes: bool = False  # A malformed frame ends the connection, without an answer.
    needs_partition: bool = False  # A consumer must name a partition.
    group_takes_partition: bool = True  # A group member that names a partition gets that partition.
    # A member names a partition, and may read only assigned partitions; a poll of another is empty.
    owned_only: bool = False
    # A member names the owner's generation; a partition of another owner is an error, in polls too.
    checks_owner: bool = False
    cooperative_join: bool = False  # A new member takes no more than a fair share from others.
    leave_is_checked: bool = False  # A client that is not a member cannot leave.
    number_first: bool = False  # If number and name are both taken, the error is about the number.
    users_from: int = 0  # The number of root, the first user.
    zero_polls: bool = False  # A poll of zero messages returns no messages.
    lists_missing_stream: bool = False  # A list of the topics of a missing stream is empty.
    # For GET_GROUP, a missing stream or topic is an error; a missing group is not.
    group_needs_topic: bool = False
    keeps_sessions: bool = False  # A session survives the loss of its connection for some time.
    lists_new_topics: bool = False  # Topics that a created stream already has follow its record.


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """A row of the table. `clients` names the clients of the dialect."""

    name: str
    clients: str
    requests: Mapping[int, PayloadLayout]
    records: Mapping[type[Any], RecordLayout]
    unserved: frozenset[int] = frozenset()  # Commands of the dialect that are not served here.
    silent: frozenset[int] = frozenset()  # Commands whose answers have no payload in the dialect.
    key_partition: Callable[[bytes, int], int] = xxhash32_from_one  # (key, partitions) -> index.
    form: MessageForm = OLDEST_FORM
    behaviour: Behaviour = Behaviour()
    # Names of a topic's options, and the options by scope for clients that ask.
    topic_options: frozenset[str] = frozenset()
    described: Mapping[int, Sequence[OptionInfo]] = field(default_factory=dict)
    error_numbers: Mapping[ErrorCode, int] = field(default_factory=dict)

    def write(self, records: list[Any]) -> bytes:
        """Return the payload of a reply."""
        layouts = self.records
        return b"".join(layouts[type(record)].write(record) for record in records)

    def error_number(self, code: ErrorCode) -> int:
        """Return the number of an error in this dialect."""
        return self.error_numbers.get(code, code)


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """Differences between the clients of a dialect.

    `error_text`: clients of the crate from 0.2.5 to before 0.6.60 read an error's payload, and
    panic if the payload is missing; other clients do not read the payload, and take its bytes for
    the next answer. `absent_is_error`: before 0.6.10 a missing stream, topic, group, client or
    offset was an error; since then the answer is the empty OK.
    """

    error_text: bool = False
    absent_is_error: bool = False
