"""A small framed protocol for the driver's tests: u32 length, a command byte, an argument; answers
have the same frames.

E text      answer text at once R text      the same; such frames are taken in runs T n text
answer text when ticket n is durable L n         answer n bytes W           answer "woken" when the
session's event is set H           the same, also to a client that has closed its sending side P
ProtocolError("bye" framed) X           a bug Q           EndConnection("quiet") S           a task
of the connection that fails with a bug
"""

import socket
import struct
import time
from types import SimpleNamespace

import trio

from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.limits import RECEIVE_BYTES_ALL_MAX
from braidlog.broker.metrics import Metrics
from braidlog.broker.runtime.endings import EndConnection, ProtocolError
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.plain import make_poller
from braidlog.broker.runtime.receive_buffer import BufferPool
from braidlog.broker.server.connection import Connection
from braidlog.broker.server.connection_deadlines import ConnectionDeadlines
from braidlog.broker.server.listener import Listener
from braidlog.broker.server.watching import watch_connections

FRAME_BYTES_MAX = 8 << 20


def framed(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


class EchoSession:
    def __init__(self, connection):
        self.connection = connection
        self.event = trio.Event()
        self.turns = []  # number of frames in each turn
        self.frames = 0
        self.deadlines = []
        self.deadline_answer = float("inf")
        self.closed_at = None  # trio's time
        self.frame_s = 0.0  # of work for each frame

    def frame_size(self, view):
        if len(view) < 4:
            return None
        size = struct.unpack_from(">I", view)[0]
        if not 1 <= size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"frame of {size} bytes", framed(b"too large"))
        return size + 4

    def handle(self, frame):
        self.frames += 1
        end = time.thread_time() + self.frame_s
        while self.frame_s and time.thread_time() < end:
            pass
        command, argument = bytes(frame[4:5]), bytes(frame[5:])
        outbox = self.connection.outbox
        if command == b"E":
            outbox.answer([framed(argument)])
        elif command == b"T":
            ticket, _, text = argument.partition(b" ")
            outbox.answer([framed(text)], int(ticket))
        elif command == b"L":
            size = int(argument)
            outbox.answer([struct.pack(">I", size), bytearray(b"l" * size)])
        elif command == b"W":
            return self.answer_when_woken()
        elif command == b"H":
            return self.answer_half_closed_when_woken()
        elif command == b"S":
            self.connection.nursery.start_soon(self.broken_task)
        elif command == b"P":
            raise ProtocolError("asked for", framed(b"bye"), hint="send something else")
        elif command == b"Q":
            raise EndConnection("asked for", framed(b"quiet"))
        else:
            raise RuntimeError("a bug")
        return None

    async def answer_when_woken(self):
        await self.event.wait()
        self.connection.outbox.answer([framed(b"woken")])

    async def answer_half_closed_when_woken(self):
        with self.connection.answer_half_closed():
            await self.answer_when_woken()

    def handle_run(self, received, frames_max):
        pos = frames = 0
        while frames < frames_max and bytes(received[pos + 4 : pos + 5]) == b"R":
            end = pos + 4 + struct.unpack_from(">I", received, pos)[0]
            if end > len(received):
                break
            self.connection.outbox.answer([framed(bytes(received[pos + 5 : end]))])
            frames += 1
            pos = end
        self.frames += frames
        return pos, frames

    async def broken_task(self):
        raise RuntimeError("a bug in a task")

    def turn_ended(self):
        self.turns.append(self.frames)
        self.frames = 0

    def on_deadline(self, now):
        self.deadlines.append(now)
        if isinstance(self.deadline_answer, Exception):
            raise self.deadline_answer
        return self.deadline_answer

    def goodbye(self):
        self.connection.outbox.answer([framed(b"goodbye")])

    async def closed(self):
        self.closed_at = trio.current_time()

    @property
    def is_closed(self):
        return self.closed_at is not None


class EchoAdapter:
    name = "echo"

    def __init__(self):
        self.sessions = []

    def open_session(self, broker, connection, options):
        session = EchoSession(connection)
        self.sessions.append(session)
        return session


class FakeTickets:
    """The disk's side of an outbox; `reach` is a finished commit round."""

    def __init__(self):
        self.durable_ticket = 0
        self.watching = {}  # outboxes by ticket

    def watch(self, outbox, ticket):
        self.watching.setdefault(ticket, []).append(outbox)

    def reach(self, ticket):
        self.durable_ticket = ticket
        for reached in [
            waited_ticket for waited_ticket in self.watching if waited_ticket <= ticket
        ]:
            for outbox in self.watching.pop(reached):
                outbox.release()


ETHERNET_SEGMENT_BYTES = 1448


async def tcp_pair(*, send_buffer=None):
    """Return a connected pair on loopback: the broker's non-blocking socket and the client's
    stream.
    """
    with socket.socket() as listening:
        # Loopback's segments are larger than the buffers below: each would wait for TCP's timer.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, ETHERNET_SEGMENT_BYTES)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        client = await trio.open_tcp_stream(*listening.getsockname())
        server, _ = listening.accept()
    if send_buffer is not None:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, send_buffer)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.setblocking(False)
    return server, client


class EchoBench:
    """Connections of the echo protocol, driven like the broker's, without listeners or storage."""

    def __init__(self, nursery, *, input_bytes=RECEIVE_BYTES_ALL_MAX, output_bytes=64 << 20):
        self.nursery = nursery
        self.tickets = FakeTickets()
        self.pool = BufferPool(bytes_max=input_bytes)
        self.adapter = EchoAdapter()
        self.budget = OutputBudget(output_bytes)
        self.broker = SimpleNamespace(
            durability=self.tickets,
            poller=make_poller(),
            deadlines=ConnectionDeadlines(),
            buffers=self.pool,
            output=self.budget,
            metrics=Metrics(),
            seldom=ThrottledLog(),
        )
        self.listener = Listener("echo", "echo", self.adapter, None, ("127.0.0.1", 0), None)
        self.listener.bound = ("127.0.0.1", 4321)
        self.connections = []
        self.clients = []  # a stream without a reference would be closed
        self.ended = []
        nursery.start_soon(self.broker.poller.run)
        nursery.start_soon(self.broker.deadlines.run)
        nursery.start_soon(watch_connections, self.connections, self.pool, self.budget)

    async def connect(self, **options):
        """Return a client's stream; its session is `adapter.sessions[-1]`."""
        server, client = await tcp_pair(**options)
        self.clients.append(client)
        connection = Connection(self.broker, self.listener, server, len(self.connections) + 1)
        self.connections.append(connection)
        self.nursery.start_soon(self._run, connection)
        await trio.testing.wait_all_tasks_blocked()
        return client

    async def _run(self, connection):
        await connection.run()
        self.ended.append(connection)


async def receive_exactly(client, size):
    received = bytearray()
    while len(received) < size:
        piece = await client.receive_some(size - len(received))
        assert piece, f"the broker closed after {bytes(received)[:100]!r}"
        received += piece
    return bytes(received)


async def receive_frame(client):
    (size,) = struct.unpack(">I", await receive_exactly(client, 4))
    return await receive_exactly(client, size)


async def receive_all(client):
    """Return all bytes until the broker closes."""
    received = bytearray()
    while piece := await client.receive_some(65536):
        received += piece
    return bytes(received)
