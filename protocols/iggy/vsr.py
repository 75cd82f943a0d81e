"""The framing of Iggy's newest dialect ("V", crate 0.11, VSR): enough of it to refuse its clients
readably.

Every frame has a 256-byte header; the first 48 bytes, checksums, are zero, which tells it from a
classic frame, whose length is never below 4. Knows no broker. Layouts: apache/iggy-website,
`content/docs/binary-protocol`, protocol 0.11.0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from broker.server.adapters import ProtocolError

HEADER_BYTES = 256
CHECKSUMS_BYTES = 48
SIZE_POS, COMMAND_POS, CLIENT_POS, REQUEST_POS, OPERATION_POS, CODE_POS = 48, 60, 128, 168, 176, 196
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

# No frame before or during a login is larger, and nothing else is served.
FRAME_BYTES_MAX = 64 * 1024

COMMAND_REQUEST, COMMAND_REPLY, COMMAND_EVICTION = 5, 8, 13
OPERATION_REGISTER, OPERATION_NON_REPLICATED = 1, 2
CODE_PING = 1
REPLY_CLIENT_POS, REPLY_REQUEST_POS, REPLY_OPERATION_POS, REPLY_STATUS_POS = 160, 200, 208, 216
ACCEPTED_MAX_POS, ACCEPTED_MIN_POS, REASON_POS = 144, 148, 255
REASON_INCOMPATIBLE_PROTOCOL = 14
NO_VERSION = 1  # 0.0.1, which nobody speaks: clients take a window of zeros for a damaged frame.


@dataclass(slots=True)
class VsrRequest:
    """What is needed of a request to answer it; `code` is the command of a non-replicated
    operation, else 0.
    """

    client: bytes
    number: int
    operation: int
    code: int

    @property
    def is_ping(self) -> bool:
        """Clients ping before they log in."""
        return self.operation == OPERATION_NON_REPLICATED and self.code == CODE_PING


def frame_size(view: memoryview) -> int | None:
    """Whole size of the frame; None while its size field is missing.

    Raises ProtocolError if this is no V frame.
    """
    if any(view[:CHECKSUMS_BYTES]):
        raise ProtocolError("neither a classic length nor a V header")
    if len(view) <= COMMAND_POS:
        return None
    (size,) = U32.unpack_from(view, SIZE_POS)
    if view[COMMAND_POS] != COMMAND_REQUEST or not HEADER_BYTES <= size <= FRAME_BYTES_MAX:
        raise ProtocolError(f"V frame of {size} bytes with command {view[COMMAND_POS]}")
    return int(size)


def decode(frame: memoryview) -> VsrRequest:
    """The header of a whole frame."""
    operation = frame[OPERATION_POS]
    is_command = operation == OPERATION_NON_REPLICATED
    return VsrRequest(
        client=bytes(frame[CLIENT_POS : CLIENT_POS + 16]),
        number=U64.unpack_from(frame, REQUEST_POS)[0],
        operation=operation,
        code=U32.unpack_from(frame, CODE_POS)[0] if is_command else 0,
    )


def reply(request: VsrRequest, status: int) -> bytes:
    """An answer without a body."""
    frame = bytearray(HEADER_BYTES)
    U32.pack_into(frame, SIZE_POS, HEADER_BYTES)
    frame[COMMAND_POS] = COMMAND_REPLY
    frame[REPLY_CLIENT_POS : REPLY_CLIENT_POS + 16] = request.client
    U64.pack_into(frame, REPLY_REQUEST_POS, request.number)
    frame[REPLY_OPERATION_POS] = request.operation
    U32.pack_into(frame, REPLY_STATUS_POS, status)
    return bytes(frame)


def eviction(request: VsrRequest) -> bytes:
    """The end of a session: no version of this protocol is served."""
    frame = bytearray(HEADER_BYTES)
    U32.pack_into(frame, SIZE_POS, HEADER_BYTES)
    frame[COMMAND_POS] = COMMAND_EVICTION
    frame[CLIENT_POS : CLIENT_POS + 16] = request.client
    U32.pack_into(frame, ACCEPTED_MAX_POS, NO_VERSION)
    U32.pack_into(frame, ACCEPTED_MIN_POS, NO_VERSION)
    frame[REASON_POS] = REASON_INCOMPATIBLE_PROTOCOL
    return bytes(frame)
