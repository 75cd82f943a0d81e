"""Receives for one connection and hands whole frames to its session, turn by turn, in plain calls.

A turn is one receive with everything that follows from it: frames handled in order, answers sent
once at the end. It is a generator of what has to be awaited, so that whoever drives it needs a task
only for those turns in which something really waits. Knows no task and no protocol.
"""

from __future__ import annotations

import time
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

import trio

from broker.limits import RECEIVE_MEMORY_S, STALL_BYTES, TURN_FRAMES_MAX, TURN_S_MAX
from broker.server.endings import EndConnection, ProtocolError
from broker.server.outbox import Outbox
from broker.server.receive_buffer import BufferPool, OutOfBuffers, ReceiveBuffer
from broker.server.sessions import Session, takes_runs
from broker.server.tls import Stream

if TYPE_CHECKING:
    from broker.access.quotas import Allowance
    from storage.codecs.api import Buffer

Waiting = Coroutine[Any, Any, None]
# What begins a TLS record with a handshake of any version, and the message in it (RFC 8446, 5.1).
TLS_HANDSHAKE = b"\x16\x03"
TLS_CLIENT_HELLO = 1
TLS_HINT = "the client speaks TLS: this listener does not (listeners.NAME.tls)"


class Turn:
    """A turn under way. Its output leaves together when it ends, or before it waits."""

    __slots__ = ("_outbox", "_steps")

    def __init__(self, steps: Generator[Waiting, None, None], outbox: Outbox) -> None:
        self._steps = steps
        self._outbox = outbox

    def advance(self, error: EndConnection | None = None) -> Waiting | None:  # hot: see make bench
        """Go on to what must be awaited next; None when the turn is over. `error` is what became
        of the last wait. Raises what handlers raise.
        """
        outbox = self._outbox
        outbox.gathering = True
        try:
            if error is not None:
                return self._steps.throw(error)
            return next(self._steps, None)
        except StopIteration:
            return None
        finally:
            outbox.gathering = False
            outbox.flush()

    async def finish(self, waiting: Waiting | None) -> None:
        """Await what the turn waits for, up to its end. Raises what handlers raise."""
        while waiting is not None:
            error: EndConnection | None = None
            try:
                await _sending_before_waits(waiting, self._outbox)
            except EndConnection as ending:
                error = ending
            except BaseException:  # Cancelled too: what was answered leaves first.
                self._outbox.flush()
                raise
            waiting = self.advance(error)


class Receiver:
    """The receiving half of one connection."""

    def __init__(self, sock: Stream, pool: BufferPool, outbox: Outbox, session: Session) -> None:
        self.heard_at = trio.current_time()  # time of the last bytes received, in trio's seconds
        self.at_end = False  # the peer has closed its side
        self.allowance: Allowance | None = None  # what limits the client's principal
        self.stopped = False  # receive nothing more, and handle nothing more of what is there
        self.begun = 0  # frames given to the session
        self.done = 0  # of which it has handled so many
        self._sock = sock
        self._pool = pool
        self._inlet = ReceiveBuffer(pool)
        self._outbox = outbox
        self._session = session
        self._handle_run = session.handle_run if takes_runs(session) else None
        self._frames_left = False  # the last turn left whole frames
        self._emptied = True  # the last receive took all that the socket had
        self._received = 0  # bytes
        self._spent = (0, 0)  # frames, and bytes either way, that the allowance knows of
        # What was received and begun when something last moved, and when that was seen.
        self._progress = (0, 0)
        self._progress_at = self.heard_at

    @property
    def held_bytes(self) -> int:
        """Memory for what was received and is not handled."""
        return self._inlet.held_bytes

    @property
    def has_more(self) -> bool:
        """Whether another turn has something to do though the socket may have nothing."""
        return self._frames_left or not (self._emptied or self.at_end)

    def stalled_s(self, now: float, *, receiving: bool) -> float:
        """For how long next to nothing of a frame that has begun has come in, as far as was seen
        by those who asked; `receiving` tells whether anything would be received.
        """
        received, begun = self._progress
        moves = self._received - received >= STALL_BYTES or self.begun != begun
        if moves or not (receiving and len(self._inlet)):
            self._progress = (self._received, self.begun)
            self._progress_at = now
        return now - self._progress_at

    def close(self) -> None:
        """Give the memory back."""
        self._inlet.close()

    def turn(self) -> Turn:
        """The next turn, not begun."""
        return Turn(self._steps(), self._outbox)

    def _steps(self) -> Generator[Waiting, None, None]:  # hot: see make bench
        if not self._frames_left:
            while True:
                try:
                    received = self._receive()
                    break
                except OutOfBuffers as error:
                    yield self._memory(error)
                    if self.stopped:
                        return
            if not received:
                return
            if not self.begun and _greets_with_tls(self._inlet.filled()):
                self._refuse_tls()
        session, outbox = self._session, self._outbox
        try:
            yield from self._hand_over()
        except EndConnection:
            ending = session.turn_ended()
            if ending is not None:
                yield ending
            raise
        ending = session.turn_ended()
        if ending is not None:
            yield ending
        if not self._frames_left:
            self._inlet.rest()
        if outbox.over_limit:
            outbox.flush()
            if outbox.over_limit:
                yield outbox.drained()
        if not outbox.has_answers_room:
            yield outbox.answers_room()
        if self.allowance is not None:
            pause_s = self._spend(self.allowance)
            if pause_s > 0:
                yield trio.sleep(pause_s)

    def _refuse_tls(self) -> None:
        """Raises ProtocolError, with the protocol's own farewell."""
        farewell = b""
        try:
            self._session.frame_size(self._inlet.filled())
        except ProtocolError as error:
            farewell = error.reply
        raise ProtocolError("a TLS handshake", farewell, hint=TLS_HINT)

    def _spend(self, allowance: Allowance) -> float:
        """Count what the turn has cost; for how many seconds to receive nothing."""
        frames, size = self._spent
        self._spent = self.begun, self._received + self._outbox.sent_bytes
        return allowance.spend(self.begun - frames, self._spent[1] - size)

    def _receive(self) -> bool:
        """Take what the socket has; False for nothing. Raises OutOfBuffers, OSError."""
        room = self._inlet.room()
        try:
            size = self._sock.recv_into(room)
        except BlockingIOError:
            self._emptied = True
            self._inlet.rest()
            return False
        self._emptied = size < len(room)
        if not size:
            self.at_end = True
            return False
        self.heard_at = trio.current_time()
        self._inlet.received(size)
        self._received += size
        return True

    async def _memory(self, error: OutOfBuffers) -> None:
        """Receive nothing until others have given memory back. Raises EndConnection if they do
        not.
        """
        with trio.move_on_after(RECEIVE_MEMORY_S):
            await self._pool.freed()
            return
        raise EndConnection(f"no memory to receive into: {error}")

    def _hand_over(self) -> Generator[Waiting, None, None]:  # hot: see make bench
        """Hand over the whole frames received, as many as one turn may take."""
        inlet, outbox = self._inlet, self._outbox
        frame_size, handle = self._session.frame_size, self._session.handle
        handle_run = self._handle_run
        left = TURN_FRAMES_MAX
        clock: _TurnClock | None = None
        self._frames_left = False
        while left > 0:
            filled = inlet.filled()
            if not filled:
                return
            if left < TURN_FRAMES_MAX:
                clock = clock or _TurnClock()
                if clock.is_over():
                    break
            size = frames = 0
            if handle_run is not None:
                size, frames = handle_run(filled, left)
            if frames:
                inlet.consume(size)
                left -= frames
                self.done = self.begun = self.begun + frames
            else:
                needed = frame_size(filled)
                if needed is None or needed > len(filled):
                    inlet.expect(needed or 0)
                    return
                inlet.consume(needed)
                self.begun += 1
                waiting = handle(filled[:needed])
                if waiting is not None:
                    yield waiting
                self.done = self.begun
                left -= 1
            if outbox.over_limit:
                outbox.flush()
                if outbox.over_limit:
                    yield outbox.drained()
            if self.stopped:  # Nobody will read the answers.
                return
        self._frames_left = True


def _greets_with_tls(received: Buffer) -> bool:
    """Whether a connection begins with a TLS hello. No protocol's first frame looks like it: as a
    length these bytes are far above what any of them takes.
    """
    return received[:2] == TLS_HANDSHAKE and len(received) > 5 and received[5] == TLS_CLIENT_HELLO


class _TurnClock:
    """Tells when a turn has taken TURN_S_MAX of the processor, or up to twice as much.

    The wall's clock is quick to ask, and says when to ask the processor's, which is not.
    """

    __slots__ = ("_ask_at", "_begun")

    def __init__(self) -> None:
        self._ask_at = time.perf_counter() + TURN_S_MAX
        self._begun: float | None = None

    def is_over(self) -> bool:
        """Whether others are to have their turn."""
        now = time.perf_counter()
        if now < self._ask_at:
            return False
        self._ask_at = now + TURN_S_MAX
        used = time.thread_time()
        if self._begun is None:
            self._begun = used
        return used - self._begun >= TURN_S_MAX / 2


@types.coroutine
def _sending_before_waits(waiting: Waiting, outbox: Outbox) -> Generator[Any, Any, None]:
    """Await what puts answers into the outbox; they leave as soon as it really waits for
    something, and at its end only with those of the rest of the turn.
    """
    resume: Any = waiting.send
    argument: Any = None
    while True:
        outbox.gathering = True
        try:
            awaited = resume(argument)
        except StopIteration:
            return
        finally:
            argument = None  # An error's traceback holds this frame: no circle.
            outbox.gathering = False
        outbox.flush()
        try:
            argument = yield awaited
            resume = waiting.send
        except BaseException as error:  # The coroutine gets it, as if it had awaited itself.
            argument = error
            resume = waiting.throw
