"""Receives for a connection and passes whole frames to the session, turn by turn, in plain calls.

A turn is a receive and all work that follows: frames handled in order, answers sent once at the
end. A turn runs in plain calls until something has to be awaited, so that the driver needs a task
only for turns that really wait. Knows no task and no protocol.
"""

from __future__ import annotations

import enum
import re
import socket
import time
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

import trio

from braidlog.broker.limits import (
    RECEIVE_MEMORY_S,
    STALL_BYTES,
    TURN_FRAMES_MAX,
    TURN_S_MAX,
    TURN_S_MIN,
)
from braidlog.broker.runtime.endings import EndConnection, ProtocolError
from braidlog.broker.runtime.outbox import Outbox
from braidlog.broker.runtime.receive_buffer import BufferPool, OutOfBuffers, ReceiveBuffer
from braidlog.broker.runtime.sessions import Session, takes_runs
from braidlog.broker.runtime.streams import Stream

if TYPE_CHECKING:
    from braidlog.broker.access.quotas import Allowance
    from braidlog.broker.runtime.poller import Poller
    from braidlog.storage.formats.api import Buffer

Waiting = Coroutine[Any, Any, None]
# Begin of a TLS record with a handshake of any version (RFC 8446, 5.1).
TLS_HANDSHAKE = b"\x16\x03"
TLS_CLIENT_HELLO = 1
HTTP_REQUEST = re.compile(rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) [/*h]|CONNECT |PRI \* ")
HTTP_HINT = "the client speaks HTTP: that is served by another listener (listeners.http)"
TLS_HINT = "the client speaks TLS: this listener does not (listeners.NAME.tls)"


class _Stage(enum.Enum):
    """The place at which a turn continues after a wait."""

    RECEIVING = "receiving"
    SERVING = "serving"
    SETTLING = "settling"  # The turn is over.
    ENDING = "ending"  # With an error.


# Enum attribute access is as slow as a call, so cache the members.
_RECEIVING, _SERVING, _SETTLING, _ENDING = _Stage


class Receiver:
    """The receiving half of a connection.

    Guarantees: a frame is passed to the session only after the frame before was handled, and the
    receiver receives only if there is room for answers. `begin_turn` never waits, `finish_turn`
    does.
    """

    def __init__(
        self, sock: Stream, pool: BufferPool, outbox: Outbox, session: Session, poller: Poller
    ) -> None:
        self._now = trio.lowlevel.current_clock().current_time
        self.heard_at = self._now()  # time of the last bytes received, in trio's seconds
        self.at_end = False  # the peer has closed its side
        self._allowance: Allowance | None = None  # limit of the client's principal
        self._stopped = False  # receive and handle nothing more
        self.begun = 0  # frames given to the session
        self.done = 0  # frames that the session has handled
        self._sock = sock
        self._layer = None if isinstance(sock, socket.socket) else sock
        self._pool = pool
        self._inlet = ReceiveBuffer(pool)
        self._outbox = outbox
        self._session = session
        self._poller = poller
        self._handle_run = session.handle_run if takes_runs(session) else None
        self._frames_left = False  # the last turn left whole frames
        self.is_in_frame = False  # received bytes are not handled
        self._emptied = True  # the last receive emptied the socket
        self._received = 0  # bytes
        self._stage = _SETTLING
        self._left = 0  # frames that this turn may still pass to the session
        # of this turn, once a frame was passed to the session
        self._clock: _TurnClock | None = None
        self._error: EndConnection | None = None  # the reason to end the connection
        # frames, and bytes in both directions, already counted in the allowance
        self._spent = (0, 0)
        # Received bytes and begun frames at the last progress, and the time of that progress.
        self._progress = (0, 0)
        self._progress_at = self.heard_at

    @property
    def held_bytes(self) -> int:
        """Memory of received bytes that are not handled."""
        return self._inlet.held_bytes

    @property
    def has_more(self) -> bool:
        """True if another turn has work although the socket may have no bytes."""
        return self._frames_left or not (self._emptied or self.at_end)

    def stalled_s(self, now: float, *, receiving: bool) -> float:
        """Return the seconds for which almost no bytes of an unfinished frame have arrived;
        progress is noticed only in this call. `receiving` is True if the connection would receive
        bytes.
        """
        received, begun = self._progress
        moves = self._received - received >= STALL_BYTES or self.begun != begun
        if moves or not (receiving and len(self._inlet)):
            self._progress = (self._received, self.begun)
            self._progress_at = now
        return now - self._progress_at

    def close(self) -> None:
        """Return the memory."""
        self._inlet.close()

    def limit(self, allowance: Allowance | None) -> None:
        """Count requests and bytes in this allowance from now on."""
        self._allowance = allowance

    def stop(self) -> None:
        """Receive and handle nothing more."""
        self._stopped = True

    def begin_turn(self) -> Waiting | None:
        """Run the next turn up to the first wait, and return that wait (for `finish_turn`), or None
        at the end of the turn.

        Raises the errors of handlers.
        """
        self._stage = _RECEIVING
        return self._go_on()

    async def finish_turn(self, waiting: Waiting | None) -> None:
        """Await the turn's waits, up to the end of the turn. Raises the errors of handlers."""
        while waiting is not None:
            try:
                await _sending_before_waits(waiting, self._outbox)
            except EndConnection as error:
                self._error = error
            except BaseException:  # Also cancelled: earlier answers are sent first.
                self._outbox.flush()
                raise
            if self._stage is _RECEIVING and self._stopped:
                return
            self._clock = None  # Hundreds may have waited for the same, and go on together.
            waiting = self._go_on()

    def _go_on(self) -> Waiting | None:  # hot: see make bench
        """Run up to the next wait or the end of the turn, and send all output together there.
        Within a pass, the output of an ended turn is sent soon after: sending wakes the client,
        which would take the processor, or at least the caches, from connections that are still to
        be served.
        """
        outbox = self._outbox
        outbox.gathering = True
        try:
            if self._error is not None:
                return self._end(self._error)
            if self._stage is _RECEIVING:
                return self._receive_and_serve()
            return self._serve() if self._stage is _SERVING else None
        finally:
            outbox.gathering = False
            if self._poller.in_pass and self._stage is _SETTLING:
                self._poller.call_soon(outbox.flush)
            else:
                outbox.flush()

    def _receive_and_serve(self) -> Waiting | None:
        if not self._frames_left:
            try:
                received = self._receive()
            except OutOfBuffers as error:
                return self._memory(error)
            if not received:
                return None
            if not self.begun:
                self._refuse_foreign()
        self._stage = _SERVING
        self._left, self._clock = TURN_FRAMES_MAX, None
        return self._serve()

    def _serve(self) -> Waiting | None:
        """Pass frames to the session, up to a frame that waits, and end the turn."""
        try:
            waiting = self._hand_over()
        except EndConnection as error:
            return self._end(error)
        if waiting is not None:
            return waiting
        self._stage = _SETTLING
        waiting, outbox = self._session.turn_ended(), self._outbox
        if waiting is not None or not outbox.has_room:
            return self._wait_for_room(waiting)
        if not self._frames_left:
            self._inlet.rest()
        if self._allowance is not None:
            pause_s = self._spend(self._allowance)
            if pause_s > 0:
                return trio.sleep(pause_s)
        return None

    async def _wait_for_room(self, ending: Waiting | None) -> None:
        """Wait at the end of a turn, for output that the session held back and for room."""
        outbox = self._outbox
        if ending is not None:
            await ending
        if not self._frames_left:
            self._inlet.rest()
        if outbox.over_limit:
            outbox.flush()
            if outbox.over_limit:
                await outbox.drained()
        if not outbox.has_answers_room:
            await outbox.answers_room()
        if self._allowance is not None:
            pause_s = self._spend(self._allowance)
            if pause_s > 0:
                await trio.sleep(pause_s)

    def _end(self, error: EndConnection) -> Waiting | None:
        """End the connection, as a frame or its wait demands, after output that the session held
        back.

        Raises the error.
        """
        is_serving, self._stage = self._stage is _SERVING, _ENDING
        self._error = None
        waiting = self._session.turn_ended() if is_serving else None
        if waiting is None:
            raise error
        self._error = error
        return waiting

    def _refuse_foreign(self) -> None:
        """Refuse TLS and HTTP. Raises ProtocolError, with the protocol's own farewell."""
        received = self._inlet.filled()
        if _greets_with_tls(received):
            reason, hint = "a TLS handshake", TLS_HINT
        elif HTTP_REQUEST.match(received):
            reason, hint = "an HTTP request", HTTP_HINT
        else:
            return
        farewell = b""
        try:
            self._session.frame_size(received)
        except ProtocolError as error:
            farewell = error.reply
        raise ProtocolError(reason, farewell, hint=hint)

    def _spend(self, allowance: Allowance) -> float:
        """Count the cost of the turn; return the seconds for which to receive nothing."""
        frames, size = self._spent
        self._spent = self.begun, self._received + self._outbox.sent_bytes
        return allowance.spend(self.begun - frames, self._spent[1] - size)

    def _receive(self) -> bool:
        """Receive the socket's bytes; return False if there are none. Raises
        OutOfBuffers, OSError.
        """
        room = self._inlet.room()
        try:
            size = self._sock.recv_into(room)
        except BlockingIOError:
            self._emptied = self._layer is None or not self._layer.has_pending
            self._inlet.rest()
            return False
        self._emptied = size < len(room) and (self._layer is None or not self._layer.has_pending)
        if not size:
            self.at_end = True
            self._inlet.rest()  # Thousands of clients may end together.
            return False
        self.heard_at = self._now()
        if not self.is_in_frame:  # Nobody looked for stalls while nothing could stall.
            self.is_in_frame, self._progress_at = True, self.heard_at
        self._inlet.received(size)
        self._received += size
        return True

    async def _memory(self, error: OutOfBuffers) -> None:
        """Receive nothing until other connections have returned memory. Raises EndConnection if
        they do not.
        """
        with trio.move_on_after(RECEIVE_MEMORY_S):
            await self._pool.freed()
            return
        raise EndConnection(f"no memory to receive into: {error}")

    def _hand_over(self) -> Waiting | None:  # hot: see make bench
        """Pass the received whole frames to the session, as many as a turn allows, up to a frame
        that has to be awaited.
        """
        inlet, outbox = self._inlet, self._outbox
        frame_size, handle = self._session.frame_size, self._session.handle
        handle_run = self._handle_run
        self._frames_left = False
        while True:
            is_first = self._left == TURN_FRAMES_MAX
            if not is_first:
                self.done = self.begun
            filled = inlet.filled()
            if not filled:
                self.is_in_frame = False
                return None
            if not is_first:
                if outbox.over_limit:
                    outbox.flush()
                    if outbox.over_limit:
                        return outbox.drained()
                if self._stopped:  # No client will read the answers.
                    return None
                if self._is_turn_over():
                    self._frames_left = True
                    return None
            size = frames = 0
            if handle_run is not None:
                size, frames = handle_run(filled, self._left)
            if frames:
                inlet.consume(size)
                self._left -= frames
                self.begun += frames
                continue
            needed = frame_size(filled)
            if needed is None or needed > len(filled):
                inlet.expect(needed or 0)
                return None
            inlet.consume(needed)
            self.begun += 1
            self._left -= 1
            waiting = handle(filled[:needed])
            if waiting is not None:
                return waiting

    def _is_turn_over(self) -> bool:
        if self._left <= 0:
            return True
        if self._clock is None:
            poller = self._poller
            self._clock = _TurnClock(poller.turn_s if poller.in_pass else TURN_S_MIN)
        return self._clock.is_over()


def _greets_with_tls(received: Buffer) -> bool:
    """Return True if a connection begins with a TLS hello. No protocol's first frame looks like
    this: as a length, these bytes are far above any limit.
    """
    return received[:2] == TLS_HANDSHAKE and len(received) > 5 and received[5] == TLS_CLIENT_HELLO


class _TurnClock:
    """Tells when a turn has taken about one to two times its limit of processor time.

    Wall time is quick to read, and says when to read processor time, which is not.
    """

    __slots__ = ("_ask_at", "_begun", "_turn_s")

    def __init__(self, turn_s: float) -> None:
        self._turn_s = turn_s
        self._ask_at = time.perf_counter() + turn_s
        # Of a short turn, processor time is read from its beginning on.
        self._begun: float | None = None if turn_s == TURN_S_MAX else time.thread_time()

    def is_over(self) -> bool:
        """Return True if others should have their turn."""
        now = time.perf_counter()
        if now < self._ask_at:
            return False
        self._ask_at = now + self._turn_s
        used = time.thread_time()
        if self._begun is None:
            self._begun = used
        return used - self._begun >= self._turn_s / 2


@types.coroutine
def _sending_before_waits(waiting: Waiting, outbox: Outbox) -> Generator[Any, Any, None]:
    """Await a coroutine that puts answers into the outbox. The answers are sent as soon as the
    coroutine really waits; answers after the last wait are sent with those of the rest of the turn.
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
            argument = None  # An error's traceback holds this frame: avoid a cycle.
            outbox.gathering = False
        outbox.flush()
        try:
            argument = yield awaited
            resume = waiting.send
        # The coroutine gets the error, as if it had awaited directly.
        except BaseException as error:
            argument = error
            resume = waiting.throw
