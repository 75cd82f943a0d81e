"""Sends mutated frames of a protocol, over many short connections. Ignores the answers.

A connection sends its opening, several frames and the end of its stream, and reads until the broker
closes the connection: then the broker has handled all frames. Many connections are open at a time,
because some frames make the broker wait.
"""

import random
import re
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from conformance.hostile.mutation import mutated
from conformance.hostile.rows import OpeningQuestion, Protocol, SessionField, inserted
from conformance.server import RunningBroker

FRAMES_PER_CONNECTION = 3  # The first refused frame ends its connection.
CONNECTIONS = 64  # At the same time.
SILENCE_S = 120.0  # A connection that the broker does not close is a finding.
RECEIVE_BYTES = 1 << 18
REQUESTS = re.compile(r'^braidlog_requests_total\{api="([^"]*)",protocol="([^"]*)"\} ([0-9.e+]+)$')


@dataclass(slots=True)
class AttackResult:
    """The result of an attack."""

    frames: Counter[str] = field(default_factory=Counter)  # by the name of their row
    dialects: Counter[str] = field(default_factory=Counter)  # by dialect
    handled: Counter[str] = field(default_factory=Counter)  # by the broker's name of the command
    openings: Counter[str] = field(default_factory=Counter)  # the same, of connections' openings
    hung: int = 0  # connections that were not closed in time
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """Frames sent."""
        return self.frames.total()

    def add(self, other: "AttackResult") -> None:
        """Add the result of another attack."""
        self.frames += other.frames
        self.dialects += other.dialects
        self.handled += other.handled
        self.hung += other.hung
        self.seconds += other.seconds


def attack(broker: RunningBroker, protocol: Protocol, frames: int, seed: int | str) -> AttackResult:
    """Send `frames` frames; blocks until the broker has handled all of them."""
    sent = AttackResult()
    counted_as = protocol.counted_as or protocol.name
    before = requests(broker, counted_as)
    begun = time.monotonic()
    talks = speeches(protocol, frames, random.Random(seed), sent)
    _Attack(broker.address(protocol.listener or protocol.name), talks).run(sent)
    sent.seconds = time.monotonic() - begun
    handled = requests(broker, counted_as)
    handled.subtract(before)
    handled.subtract(sent.openings)
    sent.handled = +handled
    return sent


def requests(broker: RunningBroker, protocol: str) -> Counter[str]:
    """Requests that reached a handler so far, by command."""
    matches = (REQUESTS.match(line) for line in broker.metrics_lines())
    return Counter(
        {match[1]: int(float(match[3])) for match in matches if match and match[2] == protocol}
    )


@dataclass(slots=True)
class _Speech:
    """The bytes of a connection, and the numbers that must be inserted first."""

    opening: bytes
    frames: list[bytes]
    session: SessionField | None
    question: OpeningQuestion | None


def speeches(
    protocol: Protocol, frames: int, chance: random.Random, sent: AttackResult
) -> Iterator[_Speech]:
    """Yield the bytes of each connection."""
    left = frames
    weights = [talk.weight for talk in protocol.talks]
    while left > 0:
        (talk,) = chance.choices(protocol.talks, weights)
        rows = chance.choices(talk.commands, k=min(FRAMES_PER_CONNECTION, left))
        left -= len(rows)
        sent.dialects[talk.dialect] += len(rows)
        for row in rows:
            sent.frames[row.name] += 1
        sent.openings.update(talk.opening_apis)
        bad = [mutated(chance, row, talk.layout) for row in rows]
        yield _Speech(b"".join(talk.opening), bad, talk.session, talk.question)


def _numbered(stream: socket.socket, speech: _Speech, session: SessionField) -> bytes:
    """Send the opening and the question, and insert the numbers from the answers into the
    frames.
    """
    stream.settimeout(SILENCE_S)
    stream.sendall(speech.opening)
    answer, frames, question = b"", speech.frames, speech.question
    while (pos := session.place_in(answer)) is None:
        answer += _received(stream)
    number = answer[pos : pos + session.size]
    frames = [session.put_in(frame, number) for frame in frames]
    if question is not None:
        stream.sendall(session.put_in(question.frame, number))
        while (number := question.number_in(answer)) is None:
            answer += _received(stream)
        frames = [inserted(frame, question.frame_pos, number) for frame in frames]
    return b"".join(frames)


def _received(stream: socket.socket) -> bytes:
    piece = stream.recv(RECEIVE_BYTES)
    assert piece, "the broker refused the opening"
    return piece


class _AttackedConnection:
    """A connection: its unsent bytes, and the deadline for the broker's close."""

    __slots__ = ("deadline", "is_open", "stream", "unsent")

    def __init__(self, address: tuple[str, int], speech: _Speech) -> None:
        self.stream = socket.create_connection(address)
        if speech.session is not None:
            data = _numbered(self.stream, speech, speech.session)
        else:
            data = b"".join((speech.opening, *speech.frames))
        self.stream.setblocking(False)
        self.unsent = memoryview(data)
        self.deadline = time.monotonic() + SILENCE_S
        self.is_open = True

    def send(self) -> bool:
        """Send as much as possible; return True when all bytes and the end of the
        stream are sent.
        """
        try:
            self.unsent = self.unsent[self.stream.send(self.unsent) :]
            if self.unsent:
                return False
            self.stream.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return False
        except OSError:
            pass  # Reset: the broker closed with unread bytes.
        return True

    def receive(self) -> bool:
        """Discard received bytes; False at the end of the stream."""
        try:
            return bool(self.stream.recv(RECEIVE_BYTES))
        except BlockingIOError:
            return True
        except OSError:
            return False


class _Attack:
    """The connections of an attack."""

    def __init__(self, address: tuple[str, int], speeches: Iterator[_Speech]) -> None:
        self._address = address
        self._speeches = speeches
        self._selector = selectors.DefaultSelector()
        self._open = 0
        self._oldest: deque[_AttackedConnection] = deque()

    def run(self, sent: AttackResult) -> None:
        """Talk to the broker until all frames are sent and every connection is closed."""
        with self._selector:
            while self._begin() or self._open:
                for key, _ in self._selector.select(timeout=1.0):
                    self._go_on(key.data)
                sent.hung += self._end_silent()

    def _begin(self) -> bool:
        """Open connections; return True if more may follow."""
        while self._open < CONNECTIONS:
            speech = next(self._speeches, None)
            if speech is None:
                return False
            connection = _AttackedConnection(self._address, speech)
            events = selectors.EVENT_READ
            if not connection.send():
                events |= selectors.EVENT_WRITE
            self._selector.register(connection.stream, events, connection)
            self._oldest.append(connection)
            self._open += 1
        return True

    def _go_on(self, connection: _AttackedConnection) -> None:
        if connection.unsent and connection.send():
            self._selector.modify(connection.stream, selectors.EVENT_READ, connection)
        if not connection.receive():
            self._end(connection)

    def _end(self, connection: _AttackedConnection) -> None:
        self._selector.unregister(connection.stream)
        connection.stream.close()
        connection.is_open = False
        self._open -= 1

    def _end_silent(self) -> int:
        """Close connections that the broker did not close in time; return their number."""
        ended, now = 0, time.monotonic()
        while self._oldest and (not self._oldest[0].is_open or self._oldest[0].deadline < now):
            connection = self._oldest.popleft()
            if connection.is_open:
                self._end(connection)
                ended += 1
        return ended
