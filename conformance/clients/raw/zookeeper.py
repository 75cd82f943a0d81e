"""ZooKeeper frames made by hand, and a blocking client: a session over one connection at a time.

Layouts: `zookeeper.jute` of release 3.4.
"""

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from conformance.clients.raw.wire import TIMEOUT_S, Wire

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL = 1, 2, 3, 4, 5, 6, 7
GET_CHILDREN, SYNC, PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 8, 9, 11, 12, 13, 14, 15
AUTH, SET_WATCHES, SET_WATCHES2, CLOSE = 100, 101, 105, -11
EVENT_XID, PING_XID, AUTH_XID = -1, -2, -4
CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4  # Events.
EPHEMERAL, SEQUENTIAL = 1, 2
ANY_VERSION: Final = -1
OK, NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY, NO_EPHEMERAL_CHILDREN = (
    0,
    -101,
    -103,
    -110,
    -111,
    -108,
)
CONNECTION_LOSS = -4
NO_PASSWORD: Final = bytes(16)
STAT: Final = struct.Struct(">qqqqiiiqiiq")
REPLY: Final = struct.Struct(">iqi")
MULTI_HEADER: Final = struct.Struct(">i?i")  # type, done, error
FAILED_PART: Final = -1  # The type of a part that failed.
CONNECTED: Final = struct.Struct(">iiqi")


@dataclass(frozen=True, slots=True)
class Stat:
    """The numbers of a node."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_length: int
    children: int
    pzxid: int


class ZooKeeperError(Exception):
    """A request was refused."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class SessionExpired(Exception):
    """The server does not know the session any more."""


def frame(body: bytes) -> bytes:
    """Return a frame: length and body."""
    return struct.pack(">i", len(body)) + body


def buffer(data: bytes | None) -> bytes:
    """Return a buffer or text; None is null."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def text(value: str) -> bytes:
    """Return a text."""
    return buffer(value.encode())


def texts(values: Sequence[str]) -> bytes:
    """Return a list of texts."""
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


OPEN: Final = struct.pack(">ii", 1, 31) + text("world") + text("anyone")


def connect_frame(
    timeout_ms: int, session_id: int = 0, password: bytes = NO_PASSWORD, zxid_seen: int = 0
) -> bytes:
    """Return the first frame of a connection."""
    head = struct.pack(">iqiq", 0, zxid_seen, timeout_ms, session_id)
    return frame(head + buffer(password) + b"\0")


def request_frame(xid: int, op: int, body: bytes = b"") -> bytes:
    """Return a request."""
    return frame(struct.pack(">ii", xid, op) + body)


def create_body(path: str, data: bytes | None, flags: int = 0, acl: bytes = OPEN) -> bytes:
    """Return the fields of `create`."""
    return text(path) + buffer(data) + acl + struct.pack(">i", flags)


def set_body(path: str, data: bytes | None, version: int = ANY_VERSION) -> bytes:
    """Return the fields of `setData`."""
    return text(path) + buffer(data) + struct.pack(">i", version)


def path_body(path: str, version: int = ANY_VERSION) -> bytes:
    """Return the fields of `delete` and `check`."""
    return text(path) + struct.pack(">i", version)


def read_body(path: str, *, watch: bool = False) -> bytes:
    """Return the fields of `exists`, `getData` and `getChildren`."""
    return text(path) + bytes([watch])


def multi_body(parts: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the fields of `multi`."""
    body = b"".join(MULTI_HEADER.pack(op, False, -1) + fields for op, fields in parts)
    return body + MULTI_HEADER.pack(-1, True, -1)


class Fields:
    """The fields of an answer, read in order."""

    def __init__(self, data: bytes) -> None:
        self.data, self.pos = data, 0

    def i32(self) -> int:
        """Return an integer."""
        self.pos += 4
        return int(struct.unpack_from(">i", self.data, self.pos - 4)[0])

    def buffer(self) -> bytes | None:
        """Return a buffer; None for null."""
        size = self.i32()
        if size < 0:
            return None
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def text(self) -> str:
        """Return a text."""
        return (self.buffer() or b"").decode()

    def stat(self) -> Stat:
        """Return the numbers of a node."""
        self.pos += STAT.size
        return Stat(*STAT.unpack_from(self.data, self.pos - STAT.size))


class ZooKeeper:
    """A client with a session. `events`: (kind, path) in order of arrival.

    After a lost connection (OSError), `connect` continues the session.
    """

    def __init__(self, timeout_ms: int = 8000, *, answer_s: float = TIMEOUT_S) -> None:
        self.timeout_ms = timeout_ms
        self.session_id, self.password = 0, NO_PASSWORD
        self.zxid = 0
        self.events: deque[tuple[int, str]] = deque()
        self._answer_s = answer_s
        self._wire: Wire | None = None
        self._xid = self._wanted = 0

    def connect(self, address: tuple[str, int]) -> None:
        """Begin the session, or continue it. Raises OSError, SessionExpired."""
        self.disconnect()
        wire = Wire(address, timeout_s=self._answer_s)
        try:
            wire.send(connect_frame(self.timeout_ms, self.session_id, self.password, self.zxid))
            answer = wire.take_frame()
        except BaseException:  # Also KeyboardInterrupt: no other code has the socket.
            wire.close()
            raise
        _, timeout_ms, session_id, size = CONNECTED.unpack_from(answer)
        if not timeout_ms:
            wire.close()
            raise SessionExpired
        self.session_id = session_id
        self.password = answer[CONNECTED.size : CONNECTED.size + size]
        self._wire = wire

    @property
    def is_connected(self) -> bool:
        """True if no request has lost the connection."""
        return self._wire is not None

    def disconnect(self) -> None:
        """Drop the connection; the session waits."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def call(self, op: int, body: bytes = b"", xid: int | None = None) -> Fields:
        """Return the answer's fields. Raises ZooKeeperError; OSError for a lost connection."""
        self.send(op, body, xid)
        return self.receive()

    def send(self, op: int, body: bytes = b"", xid: int | None = None) -> None:
        """Send a request; `receive` returns the answer. Raises OSError."""
        if self._wire is None:
            raise ConnectionError("not connected")
        self._xid += 1
        self._wanted = self._xid if xid is None else xid
        try:
            self._wire.send(request_frame(self._wanted, op, body))
        except OSError:
            self.disconnect()
            raise

    def receive(self) -> Fields:
        """Return the fields of the answer to the last request. Raises as `call`."""
        if self._wire is None:
            raise ConnectionError("not connected")
        try:
            while True:
                answer = self._wire.take_frame()
                xid, zxid, code = REPLY.unpack_from(answer)
                fields = Fields(answer[REPLY.size :])
                if xid != EVENT_XID:
                    break
                kind, _ = fields.i32(), fields.i32()
                self.events.append((kind, fields.text()))
        except OSError:
            self.disconnect()
            raise
        assert xid == self._wanted, f"xid {xid} answers {self._wanted}"
        self.zxid = max(self.zxid, zxid)
        if code:
            raise ZooKeeperError(code)
        return fields

    def ping(self) -> None:
        """Keep the session."""
        self.call(PING, xid=PING_XID)

    def create(self, path: str, data: bytes | None = b"", flags: int = 0) -> str:
        """Create a node; return its path."""
        return self.call(CREATE, create_body(path, data, flags)).text()

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Return data and numbers."""
        reader = self.call(GET_DATA, read_body(path, watch=watch))
        return reader.buffer(), reader.stat()

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Set the data."""
        return self.call(SET_DATA, set_body(path, data, version)).stat()

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node."""
        self.call(DELETE, path_body(path, version))

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return the numbers; None if absent."""
        try:
            return self.call(EXISTS, read_body(path, watch=watch)).stat()
        except ZooKeeperError as error:
            if error.code == NO_NODE:
                return None
            raise

    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """Return the names of the children, and the node's numbers."""
        reader = self.call(GET_CHILDREN2, read_body(path, watch=watch))
        return [reader.text() for _ in range(reader.i32())], reader.stat()

    def multi(self, parts: Sequence[tuple[int, bytes]]) -> list[int]:
        """Make all changes or none; return the error of each part."""
        return multi_codes(self.call(MULTI, multi_body(parts)))

    def set_watches(
        self, data: Sequence[str], absent: Sequence[str], children: Sequence[str]
    ) -> None:
        """Set the watches of a continued session."""
        head = struct.pack(">q", self.zxid)
        self.call(SET_WATCHES, head + texts(data) + texts(absent) + texts(children), xid=-8)

    def end(self) -> None:
        """End the session."""
        self.call(CLOSE)
        self.disconnect()


def multi_codes(fields: Fields) -> list[int]:
    """Return the error of each part of a transaction."""
    codes = []
    while True:
        op, is_done, code = MULTI_HEADER.unpack_from(fields.data, fields.pos)
        fields.pos += MULTI_HEADER.size
        if is_done:
            return codes
        codes.append(code)
        if op == FAILED_PART:
            fields.i32()
        elif op == CREATE:
            fields.text()
        elif op == SET_DATA:
            fields.stat()
