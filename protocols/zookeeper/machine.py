"""Turns the bytes of a ZooKeeper connection into requests, and answers into bytes. No I/O, no
clock, no broker.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.framing import LengthPrefix
from braidlog.protocols.zookeeper import jute
from braidlog.protocols.zookeeper.jute import I32, MULTI_HEADER, STAT, JuteReader
from braidlog.protocols.zookeeper.messages import (
    ERROR,
    EVENT_LAYOUT,
    PARTS,
    REPLIES,
    REQUESTS,
    SYNC_CONNECTED,
    Connect,
    Event,
    KeeperRequest,
    Op,
    PartResult,
    Word,
    Xid,
)

REQUEST_HEADER: Final = struct.Struct(">ii")  # xid, type
REPLY_HEADER: Final = struct.Struct(">iqi")  # xid, zxid, error
# Protocol version, zxid seen, timeout, session id; then the password, and a byte from 3.4 on.
CONNECT: Final = struct.Struct(">iqiq")
CONNECTED: Final = struct.Struct(">iiq")  # protocol version, timeout, session id; the password
CONNECT_BYTES_MIN: Final = CONNECT.size + 4  # With a null password.
# A client sends 44 or 45 bytes; later releases may add fields.
CONNECT_BYTES_MAX: Final = 1024
WORDS: Final = frozenset(
    b"ruok stat srvr mntr conf cons dump wchs isro envi".split()
)  # As frame lengths these are above every limit.
NO_ZXID: Final = -1  # Of events.
PARTS_MAX: Final = 1000  # Of a `multi`: some 20 ms of work.
FIRST: Final = LengthPrefix(I32, CONNECT_BYTES_MIN, CONNECT_BYTES_MAX)


class ZooKeeperMachine:
    """Wire rules of a connection: the first frame is `Connect` or a word, all others requests."""

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max`: bytes that may follow the length (`jute.maxbuffer`)."""
        self.is_connected = False  # The first frame was decoded.
        self._prefix = LengthPrefix(I32, REQUEST_HEADER.size, frame_bytes_max)

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole size of the next frame, None until it is known. Raises ProtocolError."""
        if self.is_connected:
            return self._prefix.frame_size(view)
        if bytes(view[: I32.size]) in WORDS:
            return I32.size
        return FIRST.frame_size(view)

    def decode_first(self, frame: memoryview) -> Connect | Word:
        """Return the first frame of a connection. Raises ProtocolError."""
        self.is_connected = True
        if len(frame) == I32.size:
            return Word(bytes(frame))
        reader = JuteReader(frame, I32.size)
        _, zxid_seen, timeout_ms, session_id = reader.unpack(CONNECT)
        password = reader.buffer() or b""
        return Connect(zxid_seen, timeout_ms, session_id, password, bool(reader.left))

    def decode(self, frame: memoryview) -> KeeperRequest:
        """Return a request; of an unknown type only the header. Raises ProtocolError."""
        reader = JuteReader(frame, I32.size)
        xid, op = reader.unpack(REQUEST_HEADER)
        if op == Op.MULTI:
            return KeeperRequest(xid, op, _parts(reader))
        return KeeperRequest(xid, op, jute.read(reader, REQUESTS.get(op, ())))

    def encode_connected(
        self, session_id: int, password: bytes, timeout_ms: int, *, has_read_only: bool
    ) -> bytes:
        """Return the answer to `Connect`; a timeout of 0 refuses the session."""
        body = CONNECTED.pack(0, timeout_ms, session_id) + jute.buffer(password)
        return framed(body + (b"\0" if has_read_only else b""))

    def encode(self, xid: int, zxid: int, op: int, values: Sequence[Any]) -> bytes:
        """Return the answer to a request that succeeded."""
        header = REPLY_HEADER.pack(xid, zxid, 0)
        if op == Op.MULTI:
            return framed(header + _results(values))
        return framed(header + jute.write(REPLIES[op], values))

    def encode_around(
        self, xid: int, zxid: int, op: int, size: int, stat: Sequence[int]
    ) -> tuple[bytes, bytes]:
        """Return the beginning and the end of an answer with `size` bytes of a node's data, or of
        the list of its children; `stat` may be empty.
        """
        head = REPLY_HEADER.pack(xid, zxid, 0)
        if op == Op.GET_DATA:
            head += I32.pack(size)
        tail = STAT.pack(*stat) if stat else b""
        return I32.pack(len(head) + size + len(tail)) + head, tail

    def encode_error(self, xid: int, zxid: int, code: int) -> bytes:
        """Return the answer to a request that failed."""
        return framed(REPLY_HEADER.pack(xid, zxid, code))


@lru_cache(maxsize=1)  # A change sends the same event to every watcher in turn.
def encode_event(event: Event, path: str) -> bytes:
    """Return a watch event."""
    header = REPLY_HEADER.pack(Xid.EVENT, NO_ZXID, 0)
    return framed(header + jute.write(EVENT_LAYOUT, (event, SYNC_CONNECTED, path)))


def framed(body: bytes) -> bytes:
    """Return a frame: length and body."""
    return I32.pack(len(body)) + body


def _parts(reader: JuteReader) -> list[tuple[int, tuple[object, ...]]]:
    """Read the parts of `multi` up to the header that ends them. Raises ProtocolError."""
    parts: list[tuple[int, tuple[object, ...]]] = []
    while True:
        op, is_done, _ = reader.unpack(MULTI_HEADER)
        if is_done:
            return parts
        if op not in PARTS:
            raise ProtocolError(f"type {op} cannot be a part of multi")
        if len(parts) >= PARTS_MAX:
            raise ProtocolError(f"multi has more than {PARTS_MAX} parts")
        parts.append((op, jute.read(reader, REQUESTS[op])))


def _results(results: Sequence[PartResult]) -> bytes:
    encoded = []
    for result in results:
        encoded.append(MULTI_HEADER.pack(result.op, False, result.error))
        is_error = result.op == ERROR
        encoded.append(
            I32.pack(result.error) if is_error else jute.write(REPLIES[result.op], result.values)
        )
    return b"".join(encoded) + MULTI_HEADER.pack(ERROR, True, ERROR)
