"""Iggy's wire rules for one connection: framing, which dialect the peer speaks, what may be sent
before login.

No I/O, no clock, no broker: whole frames in, typed requests or ready-made refusals out. The dialect
of a connection is fixed by its login; a classic client that does anything but ping before it is of
the oldest dialect, or has forgotten to.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Any

from broker.server.adapters import ProtocolError
from protocols.iggy import vsr
from protocols.iggy.dialects import D2, Dialect, Manners, dialect_of_login
from protocols.iggy.errors import ErrorCode
from protocols.iggy.messages import Code

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

EMPTY_OK = HEAD.pack(0, 0)


class State(enum.Enum):
    """How far a connection has come."""

    LOGGED_OUT = 0
    LOGGED_IN = 1


ALLOWED: dict[State, frozenset[int]] = {
    State.LOGGED_OUT: frozenset({Code.PING, Code.LOGIN_USER, Code.LOGIN_WITH_TOKEN}),
    State.LOGGED_IN: frozenset(Code),
}


@dataclass(slots=True)
class Command:
    """A request that may be carried out."""

    code: int
    request: Any


@dataclass(slots=True)
class Refused:
    """A frame that gets `reply`, and nothing else; `ends` the connection with it."""

    reply: bytes
    reason: str
    ends: bool = False


class IggyMachine:
    """One connection's rules.

    `state` is moved by the session, for only the broker knows who may log in.
    """

    def __init__(self) -> None:
        self.state = State.LOGGED_OUT
        # Until a login says otherwise; nothing that differs is served before it.
        self.dialect: Dialect = D2
        self.manners = Manners()
        self._vsr = False

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next frame; None while its first bytes are missing.

        Raises ProtocolError for what is too long or no Iggy at all (HTTP, TLS), before it is waited
        for.
        """
        if len(view) < U32.size:
            return None
        (length,) = U32.unpack_from(view)
        self._vsr = length == 0
        if self._vsr:
            return vsr.frame_size(view)
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
        """What a whole frame asks for. Its views die with the frame."""
        if self._vsr:
            return self._decode_vsr(frame)
        _, code = HEAD.unpack_from(frame)
        payload = frame[HEAD.size :]
        try:
            if code == Code.LOGIN_USER:
                refused = self._recognise(payload)
                if refused is not None:
                    return refused
            if code not in ALLOWED[self.state]:
                return self._out_of_place(code)
            if code in self.dialect.unserved:
                return self._refused(ErrorCode.FEATURE_UNAVAILABLE, f"command {code} is not served")
            if code not in self.dialect.requests:
                return self._refused(ErrorCode.INVALID_COMMAND, f"command {code} does not exist")
            return Command(code, self.dialect.requests[code].read(payload))
        except ProtocolError as error:
            return self._refused(ErrorCode.INVALID_COMMAND, error.reason)

    def encode(self, records: list[Any], tail_bytes: int = 0) -> bytes:
        """Head and records of an answer that succeeds; `tail_bytes` more follow from elsewhere."""
        payload = self.dialect.write(records)
        return HEAD.pack(0, len(payload) + tail_bytes) + payload

    def error(self, code: ErrorCode, text: str = "") -> bytes:
        """An answer that fails.

        The text goes to those clients only that read one, and cannot do without.
        """
        if not self.manners.error_text:
            return HEAD.pack(code, 0)
        payload = (text or code.name.lower().replace("_", " ")).encode()
        return HEAD.pack(code, U32.size + len(payload)) + U32.pack(len(payload)) + payload

    @property
    def _longest(self) -> int:
        return BEFORE_LOGIN_BYTES_MAX if self.state is State.LOGGED_OUT else SEND_BYTES_MAX

    def _length_max(self, code: int) -> int:
        if self.state is State.LOGGED_OUT:
            return BEFORE_LOGIN_BYTES_MAX if code in ALLOWED[State.LOGGED_IN] else 0
        return SEND_BYTES_MAX if code == Code.SEND_MESSAGES else COMMAND_BYTES_MAX

    def _too_long(self, length: int) -> ProtocolError:
        return ProtocolError(f"frame of {length} bytes", self.error(ErrorCode.INVALID_COMMAND))

    def _recognise(self, payload: memoryview) -> Refused | None:
        """Fix the dialect by a login; the refusal if it is one that is not served."""
        dialect, self.manners = dialect_of_login(payload)
        if dialect.served:
            self.dialect = dialect
            return None
        reason = (
            f"this client speaks dialect {dialect.name} of Iggy's protocol ({dialect.clients}); "
            f"{D2.name} is served ({D2.clients})"
        )
        return self._refused(ErrorCode.FEATURE_UNAVAILABLE, reason, ends=True)

    def _out_of_place(self, code: int) -> Refused:
        if code not in ALLOWED[State.LOGGED_IN]:
            return self._refused(ErrorCode.INVALID_COMMAND, f"command {code} does not exist")
        if code == Code.GET_CLUSTER_METADATA:
            return self._refused(
                ErrorCode.FEATURE_UNAVAILABLE, "a client of Rust crate 0.8 or later"
            )
        return self._refused(ErrorCode.UNAUTHENTICATED, f"command {code} before login")

    def _refused(self, code: ErrorCode, reason: str, *, ends: bool = False) -> Refused:
        return Refused(self.error(code, reason), reason, ends)

    def _decode_vsr(self, frame: memoryview) -> Refused:
        request = vsr.decode(frame)
        if request.is_ping:
            return Refused(vsr.reply(request, 0), "a V client's ping")
        if request.operation == vsr.OPERATION_NON_REPLICATED:
            return Refused(vsr.reply(request, ErrorCode.UNAUTHENTICATED), "V command before login")
        reason = (
            "this client speaks dialect V (protocol 0.11, apache-iggy 0.9), which is not served"
        )
        return Refused(vsr.eviction(request), reason, ends=True)
