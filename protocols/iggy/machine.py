"""Iggy's wire rules for a connection: framing, detection of the peer's dialect, commands allowed
before login.

No I/O, no clock, no broker: whole frames in, typed requests or ready-made refusals out. A frame
that begins with zeros is of dialect V. Otherwise the login shows which dialects are possible, and
the commands after the login show the right dialect. If a classic client sends another command than
a ping before login, the layout decides: the client speaks the oldest dialect, or forgot to log in.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace
from typing import Any

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import layouts_v, vsr, vsr_dialects
from braidlog.protocols.iggy.all_dialects import (
    BY_NAME,
    D0,
    D0_EXACT,
    D2,
    LATER_EXACT,
    WITH_LOGIN,
    Candidates,
    candidates_of_login,
    error_style_for,
)
from braidlog.protocols.iggy.dialects import Dialect, ErrorStyle, PayloadLayout
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fields import FieldRefused
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.options import WithoutLogin
from braidlog.storage.metadata.names import CONTROL

# Request: length of the rest, code. Reply: status, length of the payload.
HEAD = struct.Struct("<II")
U32 = struct.Struct("<I")
LENGTH_MIN = 4  # The code alone.

# A SEND may carry 10 MiB of payload; the rest is for the 24 bytes and the headers of each message.
SEND_BYTES_MAX = 32 * 1024 * 1024
# The largest other command is a user with permissions, some KB.
COMMAND_BYTES_MAX = 1024 * 1024
# Known clients log in with less than 1 KB; a login's context field may be longer.
BEFORE_LOGIN_BYTES_MAX = 16 * 1024

LOGINS = frozenset({int(CommandCode.LOGIN_USER), int(CommandCode.LOGIN_WITH_TOKEN)})
COMPRESSIONS = range(1, 3)
NUMBERED = ("stream", "topic", "group")  # Attributes of requests; the broker counts from 1.
ALL_CODES = frozenset(int(code) for code in CommandCode)


class DialectFamily(enum.Enum):
    """A peer's framing, detected from the first frame."""

    UNKNOWN = 0
    CLASSIC = 1
    VSR = 2


@dataclass(slots=True)
class IggyCommand:
    """A request to serve; V repeats `frame` in the answer."""

    code: int
    request: Any
    frame: vsr.VsrRequest | None = None


@dataclass(slots=True)
class RefusedFrame:
    """A frame that needs no handler: the answer is `reply`.

    `unserved`: the frame was valid, but the command is not served. `may_be_oldest`: the frame is of
    the oldest dialect, or of a client that has to log in first.
    """

    reply: bytes
    reason: str
    unserved: bool = False
    may_be_oldest: bool = False


# The state that another broker needs to continue a conversation: framing, dialects by name (the
# likeliest first), whether errors have text, whether absent things are errors, the session of V,
# and whether the client has logged in.
Standing = tuple[int, list[str], bool, bool, int, bool]


class IggyMachine:
    """The wire rules of a connection.

    The session sets `logged_in` and `session`, because only the broker can check a login.
    """

    def __init__(self, *, without_login: WithoutLogin = WithoutLogin.NOBODY) -> None:
        """`without_login`: the clients served in the oldest dialect, which has no login."""
        self.logged_in = False
        self.session = 0  # Of V: the session number in the answer to the login.
        self.dialect: Dialect = D2
        self.error_style = ErrorStyle()
        self._without_login = without_login
        self._candidates: Candidates = ()
        self._family = DialectFamily.UNKNOWN

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole size of the next frame; None while the first bytes are missing.

        Raises ProtocolError, without waiting for the whole frame, if the frame is too long or not
        Iggy at all (HTTP, TLS).
        """
        if len(view) < U32.size:
            return None
        (length,) = U32.unpack_from(view)
        if self._family is DialectFamily.UNKNOWN:
            self._family = DialectFamily.CLASSIC if length else DialectFamily.VSR
        if self._family is DialectFamily.VSR:
            return vsr.frame_size(view, vsr.HEADER_BYTES + self._longest)
        if length < LENGTH_MIN:
            raise ProtocolError(f"frame length {length}")
        if length > self._longest:  # Too long for any code; the code may never arrive.
            raise self._too_long(length)
        if len(view) < HEAD.size:
            return None
        _, code = HEAD.unpack_from(view)
        if length > self._length_max(code):
            raise self._too_long(length)
        return U32.size + int(length)

    def decode(self, frame: memoryview) -> IggyCommand | RefusedFrame:
        """Decode a whole frame. The request's views are valid only as long as the frame.

        Raises ProtocolError for a frame at which the oldest dialect's server closes the connection.
        """
        if self._family is DialectFamily.VSR:
            return self._decode_vsr(frame)
        _, code = HEAD.unpack_from(frame)
        payload = frame[HEAD.size :]
        try:
            if code in LOGINS:
                self._recognise(code, payload)
            elif code == CommandCode.PING and self.dialect is not D0:
                return IggyCommand(code, D2.requests[code].read(payload))
            elif not self.logged_in:
                return self._without(code, payload)
            return self._read(code, payload)
        except FieldRefused as error:
            return RefusedFrame(self._failure(error.code), error.reason)
        except ProtocolError as error:
            if self.dialect.behaviour.closes:
                raise
            return RefusedFrame(
                self._failure(ErrorCode.INVALID_COMMAND, error.reason), error.reason
            )

    def standing(self) -> Standing:
        """Return the state that `resume` needs to continue at another broker."""
        names = [dialect.name for dialect in self._candidates]
        error_style = self.error_style
        family = self._family.value
        return (
            family,
            names,
            error_style.error_text,
            error_style.absent_is_error,
            self.session,
            self.logged_in,
        )

    def resume(self, standing: Standing) -> None:
        """Continue from the state of another broker's machine. Raises ProtocolError for a state of
        another version.
        """
        family, names, error_text, absent_is_error, self.session, self.logged_in = standing
        try:
            self._family = DialectFamily(family)
            self._candidates = tuple(_ALL_BY_NAME[name] for name in names)
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"a dialect that is not known here: {error}") from error
        self.error_style = ErrorStyle(error_text=error_text, absent_is_error=absent_is_error)
        if self._candidates:
            self.dialect = self._candidates[0]

    def encode(
        self, command: IggyCommand, records: list[Any], tail_bytes: int = 0, commit: int = 0
    ) -> bytes:
        """Return head and records of a successful answer; `tail_bytes` more follow separately.
        `commit` is the number of the catalogue's last change.
        """
        payload = b"" if command.code in self.dialect.silent else self.dialect.write(records)
        if command.frame is not None:
            return vsr.success(command.frame, payload, tail_bytes, commit)
        return HEAD.pack(0, len(payload) + tail_bytes) + payload

    def error(
        self, command: IggyCommand, code: ErrorCode, text: str = "", commit: int = 0
    ) -> bytes:
        """Return an error answer; `commit` as in `encode`."""
        if command.frame is None:
            return self._failure(code, text)
        if command.code == CommandCode.LOGIN_USER and code in EVICTIONS:
            return vsr.eviction(command.frame, EVICTIONS[code])
        return vsr.failure(command.frame, layouts_v.error_number(command.code, code), commit)

    # Both framings.

    @property
    def _longest(self) -> int:
        everybody = self._without_login is WithoutLogin.EVERYBODY
        unbounded = self.logged_in or everybody or self.dialect is D0
        return SEND_BYTES_MAX if unbounded else BEFORE_LOGIN_BYTES_MAX

    # The classic framing.

    def _length_max(self, code: int) -> int:
        if code not in ALL_CODES and not self.logged_in:
            # A TLS hello reads as an unknown code with a length below the limit.
            return 0 if self._without_login is WithoutLogin.NOBODY else BEFORE_LOGIN_BYTES_MAX
        return (
            self._longest
            if code == CommandCode.SEND_MESSAGES
            else min(COMMAND_BYTES_MAX, self._longest)
        )

    def _too_long(self, length: int) -> ProtocolError:
        return ProtocolError(f"frame of {length} bytes", self._failure(ErrorCode.INVALID_COMMAND))

    def _failure(self, code: ErrorCode, text: str = "") -> bytes:
        """Return an error answer. The text is only for clients that read and need an error text."""
        number = self.dialect.error_number(code)
        if not self.error_style.error_text:
            return HEAD.pack(number, 0)
        payload = (text or code.name.lower().replace("_", " ")).encode()
        return HEAD.pack(number, U32.size + len(payload)) + U32.pack(len(payload)) + payload

    def _recognise(self, code: int, payload: memoryview) -> None:
        """Set the possible dialects from a login. Raises ProtocolError for any other command."""
        if code == CommandCode.LOGIN_USER:
            self._candidates, self.error_style = candidates_of_login(payload)
        else:
            self._candidates, self.error_style = WITH_LOGIN, ErrorStyle()
        self.dialect = self._candidates[0]

    def _without(self, code: int, payload: memoryview) -> IggyCommand | RefusedFrame:
        """Decode a command before any login: in the oldest dialect, if the layout fits."""
        without_login = self._without_login
        if without_login is WithoutLogin.NOBODY or self._candidates not in ((), (D0,)):
            return self._not_logged_in(code)  # Also after a logout or a failed login.
        if self.dialect is not D0 and _is_later(code, payload):
            return self._not_logged_in(code)  # A later dialect, which must log in first.
        if (
            self.dialect is not D0
            and without_login is WithoutLogin.CERTAIN
            and _may_be_later(code, payload)
        ):
            return replace(self._not_logged_in(code), may_be_oldest=True)
        self.dialect, self.error_style = D0, ErrorStyle(absent_is_error=True)
        self._candidates = (D0,)
        return self._read(code, payload)

    def _not_logged_in(self, code: int) -> RefusedFrame:
        if code not in ALL_CODES:
            reason = f"command {code} does not exist"
            return RefusedFrame(self._failure(ErrorCode.INVALID_COMMAND, reason), reason)
        reason = f"command {code} before login"
        return RefusedFrame(self._failure(ErrorCode.UNAUTHENTICATED, reason), reason)

    def _read(self, code: int, payload: memoryview) -> IggyCommand | RefusedFrame:
        """Decode a command in the likeliest dialect that fits. Raises ProtocolError."""
        candidates = self._candidates
        if len(candidates) == 1:
            layout = self.dialect.requests.get(code)
            if layout is not None:
                return IggyCommand(code, layout.read(payload))
            if self.dialect.behaviour.closes and code not in ALL_CODES:
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
                fault = fault or error.with_traceback(None)  # A traceback would hold the frame.
        if not fitting:
            if fault is not None:
                raise fault
            return self._absent(code)
        # Prefer dialects with a plausible reading. If there are none, the command is refused as
        # usual.
        meant = [candidate for candidate in fitting if _is_meant(candidate[1])] or fitting
        self._narrow_to(tuple(dialect for dialect, _ in meant))
        return IggyCommand(code, meant[0][1])

    def _narrow_to(self, fitting: Candidates) -> None:
        if fitting != self._candidates:
            self._candidates, self.dialect = fitting, fitting[0]
            self.error_style = error_style_for(self.error_style, fitting)

    def _absent(self, code: int) -> RefusedFrame:
        """Refuse a command that the dialect lacks or that is not served in the dialect."""
        if code in self.dialect.unserved:
            reason = f"command {code} of dialect {self.dialect.name} is not served"
            reply = self._failure(ErrorCode.FEATURE_UNAVAILABLE, reason)
            return RefusedFrame(reply, reason, unserved=True)
        reason = f"command {code} does not exist in dialect {self.dialect.name}"
        return RefusedFrame(self._failure(ErrorCode.INVALID_COMMAND, reason), reason)

    # Dialects V and W.

    def _decode_vsr(self, frame: memoryview) -> IggyCommand | RefusedFrame:
        if not self._candidates:
            self._candidates, self.dialect = (V,), V  # Until the login.
        dialect = self.dialect
        request = vsr.decode(frame, vsr_dialects.FRAMINGS[dialect])
        body = frame[vsr.HEADER_BYTES :]
        code = request.code
        if code == CommandCode.LOGIN_USER or (
            code == CommandCode.BIND_SESSION and not self.logged_in
        ):
            return self._login_vsr(request, body)
        if code == vsr.MISPLACED_LOGIN:
            reply = vsr.eviction(request, vsr.Reason.MALFORMED_LOGIN)
            return RefusedFrame(reply, "a login by the wrong operation")
        if code == CommandCode.PING:
            return IggyCommand(code, dialect.requests[code].read(body[:0]), request)
        if not self.logged_in:
            return _refused(request, ErrorCode.UNAUTHENTICATED, f"command {code} before login")
        if request.session != self.session:
            reason = f"session {request.session} is not this connection's"
            return _refused(request, ErrorCode.INVALID_SESSION, reason)
        if code in dialect.unserved:
            reason = f"command {code} of dialect {dialect.name} is not served"
            number = ErrorCode.FEATURE_UNAVAILABLE
            return RefusedFrame(vsr.failure(request, number), reason, unserved=True)
        layout = dialect.requests.get(code)
        if layout is None:
            reason = f"operation {request.operation} does not exist in dialect {dialect.name}"
            return _refused(request, ErrorCode.INVALID_COMMAND, reason)
        try:
            return IggyCommand(code, layout.read(body), request)
        except FieldRefused as error:
            return _refused(request, error.code, error.reason)
        except ProtocolError as error:
            return _refused(request, ErrorCode.INVALID_COMMAND, error.reason)

    def _login_vsr(self, request: vsr.VsrRequest, body: memoryview) -> IggyCommand | RefusedFrame:
        try:
            dialect = vsr_dialects.dialect_of(body)
            if dialect is None:
                reason = f"protocol version {body[:4].hex()} of Iggy is not served"
                reply = vsr.eviction(request, vsr.Reason.INCOMPATIBLE_PROTOCOL)
                return RefusedFrame(reply, reason, unserved=True)
            layout = dialect.requests.get(request.code)
            if layout is None:
                reason = f"command {request.code} does not exist in dialect {dialect.name}"
                return _refused(request, ErrorCode.INVALID_COMMAND, reason)
            self._candidates, self.dialect = (dialect,), dialect
            request.framing = vsr_dialects.FRAMINGS[dialect]
            return IggyCommand(request.code, layout.read(body), request)
        except ProtocolError as error:
            if request.code == CommandCode.BIND_SESSION:
                return _refused(request, ErrorCode.INVALID_COMMAND, error.reason)
            return RefusedFrame(vsr.eviction(request, vsr.Reason.MALFORMED_LOGIN), error.reason)


_ALL_BY_NAME = {**BY_NAME, **vsr_dialects.VSR_BY_NAME}
# V's reports of a refused login.
EVICTIONS = {
    ErrorCode.INVALID_CREDENTIALS: vsr.Reason.INVALID_CREDENTIALS,
    ErrorCode.INVALID_TOKEN: vsr.Reason.INVALID_TOKEN,
    ErrorCode.TOKEN_EXPIRED: vsr.Reason.INVALID_TOKEN,
    ErrorCode.USER_INACTIVE: vsr.Reason.USER_INACTIVE,
    ErrorCode.INVALID_SESSION: vsr.Reason.SESSION_ERROR,
}


def _fits(layout: PayloadLayout | None, payload: memoryview) -> bool:
    """Return True if a payload has that layout; a field may still be refused."""
    try:
        if layout is not None:
            layout.read(payload)
    except FieldRefused:
        return True
    except ProtocolError:
        return False
    return layout is not None


def _is_meant(request: object) -> bool:
    """Return True if a client can mean that request. If a frame fits two dialects, the wrong
    reading has control characters in a name, a compression that does not exist, or number 0 where
    the dialect counts from 1.
    """
    name, compression = getattr(request, "name", None), getattr(request, "compression", None)
    if name is not None and CONTROL.search(name) is not None:
        return False
    if compression is not None and compression not in COMPRESSIONS:
        return False
    return not any(getattr(request, attribute, None) == 0 for attribute in NUMBERED)


def _is_later(code: int, payload: memoryview) -> bool:
    """Return True if a frame is of a dialect with a login, not of the oldest dialect."""
    if _fits(D0_EXACT.get(code), payload):
        return False
    return any(_fits(layouts.get(code), payload) for layouts in LATER_EXACT)


def _may_be_later(code: int, payload: memoryview) -> bool:
    """Return True if a dialect with a login has such frames, including bytes that the dialect
    ignores.
    """
    return any(_fits(dialect.requests.get(code), payload) for dialect in WITH_LOGIN)


def _refused(request: vsr.VsrRequest, code: ErrorCode, reason: str) -> RefusedFrame:
    return RefusedFrame(vsr.failure(request, layouts_v.error_number(request.code, code)), reason)
