"""A client of the ZooKeeper listener: frames by the tables of requests and answers."""

import struct
from collections import deque

import trio

from braidlog.protocols.zookeeper import jute
from braidlog.protocols.zookeeper.acl import ADMIN, CREATE, DELETE, READ, WRITE
from braidlog.protocols.zookeeper.messages import EVENT_LAYOUT, REPLIES, REQUESTS, Op
from braidlog.storage.metadata.node_records import Acl

OPEN = (Acl(READ | WRITE | CREATE | DELETE | ADMIN, "world", "anyone"),)
EPHEMERAL, SEQUENTIAL = 1, 2
NO_PASSWORD = bytes(16)


def frame(body):
    return struct.pack(">i", len(body)) + body


def connect_frame(timeout_ms=8000, session_id=0, password=NO_PASSWORD, zxid_seen=0):
    head = struct.pack(">iqiq", 0, zxid_seen, timeout_ms, session_id)
    return frame(head + jute.buffer(password) + b"\0")


def request_frame(xid, op, *fields):
    return frame(struct.pack(">ii", xid, op) + jute.write(REQUESTS[op], fields))


def multi_frame(xid, *parts):
    body = struct.pack(">ii", xid, Op.MULTI)
    for op, *fields in parts:
        body += jute.MULTI_HEADER.pack(op, False, -1) + jute.write(REQUESTS[op], fields)
    return frame(body + jute.MULTI_HEADER.pack(-1, True, -1))


class Refused(Exception):
    def __init__(self, code):
        super().__init__(str(int(code)))
        self.code = code


class RawZooKeeper:
    """A session on a connection; `events` are (type, path), in order."""

    def __init__(self, stream):
        self.stream = stream
        self.events = deque()
        self.zxid = 0
        self.session_id, self.password, self.timeout_ms = 0, NO_PASSWORD, 0
        self._xid = 0
        self._data = bytearray()

    async def connect(self, **fields):
        await self.stream.send_all(connect_frame(**fields))
        answer = jute.JuteReader(memoryview(await self.receive()))
        _, self.timeout_ms, self.session_id = answer.unpack(struct.Struct(">iiq"))
        self.password = answer.buffer()
        return self

    async def receive(self):
        """Return the body of the next frame; b"" at the end."""
        while len(self._data) < 4 or len(self._data) < 4 + self._size:
            received = await self.stream.receive_some(65536)
            if not received:
                return b""
            self._data += received
        size = self._size
        body = bytes(self._data[4 : 4 + size])
        del self._data[: 4 + size]
        return body

    @property
    def _size(self):
        return struct.unpack_from(">i", self._data)[0]

    async def answer(self):
        """Return xid, error and a reader of the next answer; events are put aside."""
        while True:
            body = await self.receive()
            if not body:
                raise trio.EndOfChannel
            reader = jute.JuteReader(memoryview(body))
            xid, zxid, code = reader.unpack(struct.Struct(">iqi"))
            if xid != -1:
                self.zxid = zxid if zxid > 0 else self.zxid
                return xid, code, reader
            kind, _, path = jute.read(reader, EVENT_LAYOUT)
            self.events.append((kind, path))

    async def call(self, op, *fields):
        """Return the values of the answer, or the value if the answer has one. Raises Refused."""
        self._xid += 1
        await self.stream.send_all(request_frame(self._xid, op, *fields))
        xid, code, reader = await self.answer()
        assert op == Op.PING or xid == self._xid
        if code:
            raise Refused(code)
        values = jute.read(reader, REPLIES[op])
        assert not reader.left
        return values[0] if len(values) == 1 else values

    async def create(self, path, data=b"", flags=0, acl=OPEN):
        return await self.call(Op.CREATE, path, data, acl, flags)

    async def get(self, path, *, watch=False):
        return (await self.call(Op.GET_DATA, path, watch))[0]

    async def set(self, path, data, version=-1):
        return await self.call(Op.SET_DATA, path, data, version)

    async def delete(self, path, version=-1):
        return await self.call(Op.DELETE, path, version)

    async def exists(self, path, *, watch=False):
        """Return the numbers of a node, None if absent."""
        try:
            return await self.call(Op.EXISTS, path, watch)
        except Refused as refused:
            assert refused.code == -101
            return None

    async def children(self, path, *, watch=False):
        return await self.call(Op.GET_CHILDREN, path, watch)

    async def code(self, op, *fields):
        """Return the error of a call."""
        try:
            await self.call(op, *fields)
        except Refused as refused:
            return refused.code
        return 0
