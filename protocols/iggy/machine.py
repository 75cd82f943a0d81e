"""Iggy's wire rules for one connection: framing, which dialect the peer speaks, what may be sent
before login.

No I/O, no clock, no broker: whole frames in, typed requests or ready-made refusals out. A frame
that begins with zeros is of dialect V; else a login says which dialects are possible, and what is
sent after it which of them it is. A classic client that does anything but ping before it logs in is
of the oldest dialect, or has forgotten to: the former's frames have that dialect's layout.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Any

from broker.server.endings import ProtocolError
from protocols.iggy import layouts_v, vsr
from protocols.iggy.all_dialects import (
    BY_NAME,
    D0,
    D0_EXACT,
    D2,
    WITH_LOGIN,
    Candidates,
    candidates_of_login,
    settled_manners,
)
from protocols.iggy.dialects import Dialect, Layout, Manners
from protocols.iggy.errors import ErrorCode
from protocols.iggy.fields import FieldRefused
from protocols.iggy.layouts_v import V
from protocols.iggy.messages import Code
from storage.metadata.names import CONTROL

# Request: length of what follows it, code. Reply: status, length of the payload.
HEAD = struct.Struct("<II")
U32 = struct.Struct("<I")
LENGTH_MIN = 4  # The code alone.

# A SEND may carry 10 MiB of payload; the rest is for the 24 bytes and the headers that every
# message has besides.
SEND_BYTES_MAX = 32 * 1024 * 1024
# The largest other command is a user with its permissions, some KB.
COMMAND_BYTES_MAX = 1024 * 1024
# A login is below 1 KB; its context may be longer than the known clients'.
BEFORE_LOGIN_BYTES_MAX = 16 * 1024

LOGINS = frozenset({int(Code.LOGIN_USER), int(Code.LOGIN_WITH_TOKEN)})
COMPRESSIONS = range(1, 3)
ALL_CODES = frozenset(int(code) for code in Code)


class Family(enum.Enum):
    """How a peer's frames are framed: its first one shows it."""

    UNKNOWN = 0
    CLASSIC = 1
    VSR = 2


@dataclass(slots=True)
class Command:
    """A request that may be carried out; `frame` is what V repeats in the answer."""

    code: int
    request: Any
    frame: vsr.VsrRequest | None = None


@dataclass(slots=True)
class Refused:
    """A frame that gets `reply`, and nothing else; `unserved` tells that it is our fault."""

    reply: bytes
    reason: str
    unserved: bool = False


# What another broker must know to go on with a conversation: framing, dialects by name (the
# likeliest first), whether errors have text and what is absent is an error, the session of V, and
# whether the client has logged in.
Standing = tuple[int, list[str], bool, bool, int, bool]


class IggyMachine:
    """One connection's rules.

    `logged_in` and `session` are set by the session, for only the broker knows who may log in.
    """

    def __init__(self, *, without_login: bool = False) -> None:
        """`without_login`: the oldest dialect, which has no login, is served."""
        self.logged_in = False
        self.session = 0  # Of V: the number that a login was answered with.
        self.dialect: Dialect = D2
        self.manners = Manners()
        self._without_login = without_login
        self._candidates: Candidates = ()
        self._family = Family.UNKNOWN

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next frame; None while its first bytes are missing.

        Raises ProtocolError for what is too long or no Iggy at all (HTTP, TLS), before it is waited
        for.
        """
        if len(view) < U32.size:
            return None
        (length,) = U32.unpack_from(view)
        if self._family is Family.UNKNOWN:
            self._family = Family.CLASSIC if length else Family.VSR
        if self._family is Family.VSR:
            return vsr.frame_size(view, vsr.HEADER_BYTES + self._longest)
        if length < LENGTH_MIN:
            raise ProtocolError(f"frame length {length}")
        if length > self._longest:  # Whatever its code, which may never come.
            raise self._too_long(length)
        if len(view) < HEAD.size:
            return None
        _, code = HEAD.unpack_from(view)
        if length > self._length_max(code):
            raise self._too_long(length)
        return U32.size + int(length)

    def decode(self, frame: memoryview) -> Command | Refused:
        """What a whole frame asks for. Its views die with the frame.

        Raises ProtocolError for a frame that the oldest dialect's server hangs up on.
        """
        if self._family is Family.VSR:
            return self._decode_vsr(frame)
        _, code = HEAD.unpack_from(frame)
        payload = frame[HEAD.size :]
        try:
            if code in LOGINS:
                self._recognise(code, payload)
            elif code == Code.PING and self.dialect is not D0:
                return Command(code, D2.requests[code].read(payload))
            elif not self.logged_in:
                return self._without(code, payload)
            return self._read(code, payload)
        except FieldRefused as error:
            return Refused(self._failure(error.code), error.reason)
        except ProtocolError as error:
            if self.dialect.habits.closes:
                raise
            return Refused(self._failure(ErrorCode.INVALID_COMMAND, error.reason), error.reason)

    def standing(self) -> Standing:
        """What `resume` goes on from at another broker."""
        names = [dialect.name for dialect in self._candidates]
        manners = self.manners
        family = self._family.value
        return (
            family,
            names,
            manners.error_text,
            manners.absent_is_error,
            self.session,
            self.logged_in,
        )

    def resume(self, standing: Standing) -> None:
        """Go on where another broker's machine is. Raises ProtocolError for one of another
        version.
        """
        family, names, error_text, absent_is_error, self.session, self.logged_in = standing
        try:
            self._family = Family(family)
            self._candidates = tuple(BY_NAME[name] for name in names)
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"a dialect that is not known here: {error}") from error
        self.manners = Manners(error_text=error_text, absent_is_error=absent_is_error)
        if self._family is Family.VSR:
            self.dialect = V
        elif self._candidates:
            self.dialect = self._candidates[0]

    def encode(self, command: Command, records: list[Any], tail_bytes: int = 0) -> bytes:
        """Head and records of an answer that succeeds; `tail_bytes` more follow from elsewhere."""
        payload = b"" if command.code in self.dialect.silent else self.dialect.write(records)
        if command.frame is not None:
            return vsr.success(command.frame, payload, tail_bytes)
        return HEAD.pack(0, len(payload) + tail_bytes) + payload

    def error(self, command: Command, code: ErrorCode, text: str = "") -> bytes:
        """An answer that fails."""
        if command.frame is None:
            return self._failure(code, text)
        if command.code == Code.LOGIN_USER and code in EVICTIONS:
            return vsr.eviction(command.frame, EVICTIONS[code])
        return vsr.failure(command.frame, layouts_v.error_number(command.code, code))

    # Both framings.

    @property
    def _longest(self) -> int:
        unbounded = self.logged_in or self._without_login
        return SEND_BYTES_MAX if unbounded else BEFORE_LOGIN_BYTES_MAX

    # The classic framing.

    def _length_max(self, code: int) -> int:
        if code not in ALL_CODES and not self.logged_in:
            # What begins like a TLS hello is a code that nobody knows and a length below the limit.
            return BEFORE_LOGIN_BYTES_MAX if self._without_login else 0
        return (
            self._longest if code == Code.SEND_MESSAGES else min(COMMAND_BYTES_MAX, self._longest)
        )

    def _too_long(self, length: int) -> ProtocolError:
        return ProtocolError(f"frame of {length} bytes", self._failure(ErrorCode.INVALID_COMMAND))

    def _failure(self, code: ErrorCode, text: str = "") -> bytes:
        """An answer that fails. The text goes to those clients only that read one, and cannot do
        without.
        """
        number = self.dialect.error_number(code)
        if not self.manners.error_text:
            return HEAD.pack(number, 0)
        payload = (text or code.name.lower().replace("_", " ")).encode()
        return HEAD.pack(number, U32.size + len(payload)) + U32.pack(len(payload)) + payload

    def _recognise(self, code: int, payload: memoryview) -> None:
        """What a login tells of the dialect. Raises ProtocolError if it is none."""
        if code == Code.LOGIN_USER:
            self._candidates, self.manners = candidates_of_login(payload)
        else:
            self._candidates, self.manners = WITH_LOGIN, Manners()
        self.dialect = self._candidates[0]

    def _without(self, code: int, payload: memoryview) -> Command | Refused:
        """A command before any login: the oldest dialect's, if it has its layout."""
        if not self._without_login or self._candidates not in ((), (D0,)):
            return self._not_logged_in(code)  # Also after a logout, or a login that failed.
        if self.dialect is not D0 and _is_later(code, payload):
            return self._not_logged_in(code)  # Not yet, or not again.
        self.dialect, self.manners = D0, Manners(absent_is_error=True)
        self._candidates = (D0,)
        return self._read(code, payload)

    def _not_logged_in(self, code: int) -> Refused:
        if code not in ALL_CODES:
            reason = f"command {code} does not exist"
            return Refused(self._failure(ErrorCode.INVALID_COMMAND, reason), reason)
        reason = f"command {code} before login"
        return Refused(self._failure(ErrorCode.UNAUTHENTICATED, reason), reason)

    def _read(self, code: int, payload: memoryview) -> Command | Refused:
        """A command as the likeliest dialect has it that can have sent it. Raises ProtocolError."""
        candidates = self._candidates
        if len(candidates) == 1:
            layout = self.dialect.requests.get(code)
            if layout is not None:
                return Command(code, layout.read(payload))
            if self.dialect.habits.closes and code not in ALL_CODES:
                raise ProtocolError(f"command {code} does not exist")
            return self._absent(code)
        fault, fitting = None, list[tuple[Dialect, object]]()
        for dialect in candidates:
            layout = dialect.requests.get(code)
            if layout is None:
                continue
            try:
                fitting.append((dialect, layout.read(payload)))
            except ProtocolError as error:
                fault = fault or error.with_traceback(None)  # Which holds this frame, and it.
        if not fitting:
            if fault is not None:
                raise fault
            return self._absent(code)
        # What no client means is rather another dialect's; else it is refused as ever.
        meant = [found for found in fitting if _is_meant(found[1])] or fitting
        self._settle(tuple(dialect for dialect, _ in meant))
        return Command(code, meant[0][1])

    def _settle(self, fitting: Candidates) -> None:
        if fitting != self._candidates:
            self._candidates, self.dialect = fitting, fitting[0]
            self.manners = settled_manners(self.manners, fitting)

    def _absent(self, code: int) -> Refused:
        """A command that the dialect has not, or that is not served in it."""
        if code in self.dialect.unserved:
            reason = f"command {code} of dialect {self.dialect.name} is not served"
            reply = self._failure(ErrorCode.FEATURE_UNAVAILABLE, reason)
            return Refused(reply, reason, unserved=True)
        reason = f"command {code} does not exist in dialect {self.dialect.name}"
        return Refused(self._failure(ErrorCode.INVALID_COMMAND, reason), reason)

    # Dialect V.

    def _decode_vsr(self, frame: memoryview) -> Command | Refused:
        request = vsr.decode(frame)
        self.dialect = V
        body = frame[vsr.HEADER_BYTES :]
        code = request.code
        if code == Code.LOGIN_USER:
            return self._login_vsr(request, body)
        if code == vsr.MISPLACED_LOGIN:
            reply = vsr.eviction(request, vsr.Reason.MALFORMED_LOGIN)
            return Refused(reply, "a login by the wrong operation")
        if code == Code.PING:
            return Command(code, V.requests[code].read(body[:0]), request)
        if not self.logged_in:
            return _refused(request, ErrorCode.UNAUTHENTICATED, f"command {code} before login")
        if request.session != self.session:
            reason = f"session {request.session} is not this connection's"
            return _refused(request, ErrorCode.INVALID_SESSION, reason)
        if code in V.unserved:
            reason = f"command {code} of dialect V is not served"
            number = ErrorCode.FEATURE_UNAVAILABLE
            return Refused(vsr.failure(request, number), reason, unserved=True)
        layout = V.requests.get(code)
        if layout is None:
            reason = f"operation {request.operation} does not exist in dialect V"
            return _refused(request, ErrorCode.INVALID_COMMAND, reason)
        try:
            return Command(code, layout.read(body), request)
        except FieldRefused as error:
            return _refused(request, error.code, error.reason)
        except ProtocolError as error:
            return _refused(request, ErrorCode.INVALID_COMMAND, error.reason)

    def _login_vsr(self, request: vsr.VsrRequest, body: memoryview) -> Command | Refused:
        try:
            version = layouts_v.protocol_version(body)
            if not vsr.speaks(version):
                reason = f"protocol version {version} of dialect V is not served"
                reply = vsr.eviction(request, vsr.Reason.INCOMPATIBLE_PROTOCOL)
                return Refused(reply, reason, unserved=True)
            return Command(request.code, V.requests[request.code].read(body), request)
        except ProtocolError as error:
            return Refused(vsr.eviction(request, vsr.Reason.MALFORMED_LOGIN), error.reason)


# How V's server tells that a login was refused.
EVICTIONS = {
    ErrorCode.INVALID_CREDENTIALS: vsr.Reason.INVALID_CREDENTIALS,
    ErrorCode.INVALID_TOKEN: vsr.Reason.INVALID_TOKEN,
    ErrorCode.TOKEN_EXPIRED: vsr.Reason.INVALID_TOKEN,
    ErrorCode.USER_INACTIVE: vsr.Reason.USER_INACTIVE,
}


def _fits(layout: Layout | None, payload: memoryview) -> bool:
    """Whether a payload can be read so; a field may still be refused by itself."""
    try:
        if layout is not None:
            layout.read(payload)
    except FieldRefused:
        return True
    except ProtocolError:
        return False
    return layout is not None


def _is_meant(request: object) -> bool:
    """Whether a client can mean that: where a frame could be two dialects', the wrong reading has
    control characters in a name, or a compression that does not exist.
    """
    name, compression = getattr(request, "name", None), getattr(request, "compression", None)
    is_text = name is None or CONTROL.search(name) is None
    return is_text and (compression is None or compression in COMPRESSIONS)


def _is_later(code: int, payload: memoryview) -> bool:
    """Whether a frame is of a dialect that has a login, and not of the oldest."""
    if _fits(D0_EXACT.get(code), payload):
        return False
    return any(_fits(dialect.requests.get(code), payload) for dialect in WITH_LOGIN)


def _refused(request: vsr.VsrRequest, code: ErrorCode, reason: str) -> Refused:
    return Refused(vsr.failure(request, layouts_v.error_number(request.code, code)), reason)
