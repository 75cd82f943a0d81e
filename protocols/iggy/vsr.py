"""The framing of Iggy's dialects V (protocol 0.11) and W (0.12): frames, replies, evictions.

Every frame has a 256-byte header; its first 48 bytes, the checksums, are zero, which tells it from
a classic frame, whose length is never below 4. Knows no broker and no body. Layouts:
apache/iggy-website, `content/docs/binary-protocol`, protocol 0.11.0; where an error goes, as a
server of 0.9.0-edge.5 answered. Of W: crate `iggy_binary_protocol` 0.11.1-edge.8.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy.messages import CommandCode

HEADER_BYTES = 256
CHECKSUMS_BYTES = 48
SIZE_POS, COMMAND_POS = 48, 60
# Of a request: client, checksum, number, operation, session, code, incarnation of the partition,
# generation of its owner in a group.
REQUEST = struct.Struct("<128x 16s 16s 8x Q B 7x Q 4x I QQ")
# Of a reply: size, command, checksum, client, operation number, commit number, number of the
# request, operation, status, whether the result is final, incarnation.
REPLY = struct.Struct("<48x I 8x B 67x 16s 16x 16s Q Q 8x Q B 7x I B 3x Q 24x")
U32 = struct.Struct("<I")
NUMBERS = struct.Struct("<QQ")
COMMITTED = 1  # The result is final.

COMMAND_REQUEST, COMMAND_REPLY, COMMAND_EVICTION = 5, 8, 13
OPERATION_REGISTER, OPERATION_NON_REPLICATED, OPERATION_LOGOUT = 1, 2, 3
OPERATION_DELETE_SEGMENTS, OPERATION_TRUNCATE = 138, 68
CLIENT_POS, CLIENT_BYTES = 128, 16
ACCEPTED_MAX_POS, ACCEPTED_MIN_POS, REASON_POS = 144, 148, 255

# 0.11.0 and 0.12.0; a login's lowest ten bits are the patch, which may differ.
V_VERSION, W_VERSION = 11 << 10, 12 << 10
PATCH_BITS = 10

RESULT_OK = bytes(4)

# The command of each operation; the non-replicated operation has the code in its header.
CODES: dict[int, int] = {
    OPERATION_REGISTER: CommandCode.LOGIN_USER,
    OPERATION_LOGOUT: CommandCode.LOGOUT_USER,
    128: CommandCode.CREATE_STREAM,
    129: CommandCode.UPDATE_STREAM,
    130: CommandCode.DELETE_STREAM,
    131: CommandCode.PURGE_STREAM,
    132: CommandCode.CREATE_TOPIC,
    133: CommandCode.UPDATE_TOPIC,
    134: CommandCode.DELETE_TOPIC,
    135: CommandCode.PURGE_TOPIC,
    136: CommandCode.CREATE_PARTITIONS,
    137: CommandCode.DELETE_PARTITIONS,
    OPERATION_DELETE_SEGMENTS: CommandCode.DELETE_SEGMENTS,
    139: CommandCode.CREATE_GROUP,
    140: CommandCode.DELETE_GROUP,
    141: CommandCode.CREATE_USER,
    142: CommandCode.UPDATE_USER,
    143: CommandCode.DELETE_USER,
    144: CommandCode.CHANGE_PASSWORD,
    145: CommandCode.UPDATE_PERMISSIONS,
    146: CommandCode.CREATE_TOKEN,
    147: CommandCode.DELETE_TOKEN,
    148: CommandCode.JOIN_GROUP,
    149: CommandCode.LEAVE_GROUP,
    160: CommandCode.SEND_MESSAGES,
    161: CommandCode.STORE_CONSUMER_OFFSET,
    162: CommandCode.DELETE_CONSUMER_OFFSET,
}
# The codes that the non-replicated operation may carry.
PLAIN_CODES = frozenset(
    {
        *(
            CommandCode.PING,
            CommandCode.GET_STATS,
            CommandCode.GET_SNAPSHOT,
            CommandCode.GET_CLUSTER_METADATA,
        ),
        *(
            CommandCode.DESCRIBE_OPTIONS,
            CommandCode.GET_ME,
            CommandCode.GET_CLIENT,
            CommandCode.GET_CLIENTS,
            CommandCode.GET_USER,
        ),
        *(
            CommandCode.GET_USERS,
            CommandCode.GET_TOKENS,
            CommandCode.POLL_MESSAGES,
            CommandCode.FLUSH_UNSAVED_BUFFER,
        ),
        *(
            CommandCode.GET_CONSUMER_OFFSET,
            CommandCode.GET_STREAM,
            CommandCode.GET_STREAMS,
            CommandCode.GET_TOPIC,
        ),
        *(
            CommandCode.GET_TOPICS,
            CommandCode.GET_GROUP,
            CommandCode.GET_GROUPS,
            CommandCode.SYNC_GROUP,
        ),
    }
)
# Before a login the dialect is not known yet: this code has the same meaning in every dialect.
EARLY_CODES = frozenset({int(CommandCode.BIND_SESSION)})
# Codes that are not a valid login when the non-replicated operation carries them.
LOGIN_CODES = frozenset({int(CommandCode.LOGIN_USER), int(CommandCode.LOGIN_WITH_TOKEN)})
MISPLACED_LOGIN = int(CommandCode.LOGIN_WITH_TOKEN)
# Operations whose replies begin with a result section: a count of errors, then the errors. A client
# does not look for the section in an answer to DELETE_SEGMENTS (`Operation::is_result_framed`).
WITH_RESULT = frozenset({OPERATION_REGISTER, *range(128, 150), 161, 162}) - {
    OPERATION_DELETE_SEGMENTS
}
# Errors that the real server puts into the result section; others are the status of an empty reply.
RESULT_ERRORS = frozenset({42, 43, 46, 48, 1009, 1012, 2010, 2013, 5000, 5004, 5006})


class Reason(enum.IntEnum):
    """Why a session ends."""

    INVALID_CREDENTIALS = 9
    INVALID_TOKEN = 10
    USER_INACTIVE = 11
    INCOMPATIBLE_PROTOCOL = 14
    SESSION_ERROR = 12
    MALFORMED_LOGIN = 15


@dataclass(frozen=True, slots=True)
class Framing:
    """A dialect's rules about headers.

    `codes` is the command of each operation, `plain_codes` the commands of the non-replicated
    operation. `commits`: a reply to another operation says that the result is final, and names the
    last change of the catalogue; all errors of operations with a result section are results.
    """

    version: int
    codes: Mapping[int, int]
    plain_codes: frozenset[int]
    with_result: frozenset[int]
    commits: bool = False
    answered_as: Mapping[int, int] = field(default_factory=dict)  # Operation of an answer.


V_FRAMING = Framing(V_VERSION, CODES, PLAIN_CODES, WITH_RESULT)

# Operations of V that dialect W has no more: `UPDATE_RESOURCE` changes streams, topics and users.
_RETIRED = frozenset({129, 131, 133, 135, 142})
W_FRAMING = Framing(
    W_VERSION,
    {
        **{operation: code for operation, code in CODES.items() if operation not in _RETIRED},
        150: CommandCode.UPDATE_RESOURCE,
    },
    (PLAIN_CODES - {CommandCode.FLUSH_UNSAVED_BUFFER})
    | {
        CommandCode.GET_METADATA_CHANGES,
        CommandCode.GET_PARTITION_ROUTE,
        CommandCode.POLL_MESSAGES_DEFERRED,
        CommandCode.WAIT_FOR_MESSAGES,
        CommandCode.CANCEL_DEFERRED_REQUEST,
        CommandCode.FETCH_MESSAGES,
    },
    frozenset({OPERATION_REGISTER, *range(128, 151), 161, 162}),
    commits=True,
    # Its client looks for a result section in the answer to the internal form only.
    answered_as={OPERATION_DELETE_SEGMENTS: OPERATION_TRUNCATE},
)


@dataclass(slots=True)
class VsrRequest:
    """The fields needed to answer a request; `code` is its command, 0 if unknown."""

    client: bytes
    checksum: bytes
    number: int
    operation: int
    session: int
    code: int
    incarnation: int
    generation: int
    framing: Framing = V_FRAMING

    @property
    def partition(self) -> int | None:
        """The lasting number of the partition that the request is for; None before W."""
        return self.incarnation if self.framing.commits else None

    @property
    def owner(self) -> int:
        """The generation of the partition's owner that the request is for; 0 if the request names
        none, and before W.
        """
        return self.generation if self.framing.commits else 0


def frame_size(view: memoryview, bytes_max: int) -> int | None:
    """Whole size of the frame; None while its size field is missing.

    Raises ProtocolError if this is not a V frame, or longer than `bytes_max`.
    """
    if bytes(view[:CHECKSUMS_BYTES]).strip(b"\0"):
        raise ProtocolError("neither a classic length nor a V header")
    if len(view) <= COMMAND_POS:
        return None
    (size,) = U32.unpack_from(view, SIZE_POS)
    if view[COMMAND_POS] != COMMAND_REQUEST or not HEADER_BYTES <= size <= bytes_max:
        raise ProtocolError(f"V frame of {size} bytes with command {view[COMMAND_POS]}")
    return int(size)


def decode(frame: memoryview, framing: Framing = V_FRAMING) -> VsrRequest:
    """Return the header of a whole frame."""
    fields = REQUEST.unpack_from(frame)
    client, checksum, number, operation, session, code, incarnation, generation = fields
    if operation != OPERATION_NON_REPLICATED:
        code = framing.codes.get(operation, 0)
    elif code in LOGIN_CODES:
        code = MISPLACED_LOGIN
    elif code not in framing.plain_codes and code not in EARLY_CODES:
        code = 0
    return VsrRequest(
        *(client, checksum, number, operation, session, code, incarnation, generation, framing)
    )


def reply(request: VsrRequest, status: int = 0, body_bytes: int = 0, commit: int = 0) -> bytes:
    """Return the header of an answer that `body_bytes` follow.

    `commit` is the number of the catalogue's last change. An answer of a dialect that commits says
    that its result is final, except for a status: a status means that nothing was done.
    """
    operation, framing = request.operation, request.framing
    is_final = framing.commits and not status and operation != OPERATION_NON_REPLICATED
    numbers = (commit, commit) if is_final else (0, 0)
    return REPLY.pack(
        HEADER_BYTES + body_bytes,
        COMMAND_REPLY,
        request.checksum,
        request.client,
        *numbers,
        request.number,
        framing.answered_as.get(operation, operation),
        status,
        COMMITTED if is_final else 0,
        request.incarnation if is_final else 0,
    )


def success(request: VsrRequest, payload: bytes, tail_bytes: int = 0, commit: int = 0) -> bytes:
    """Return an answer that succeeds; `tail_bytes` more follow from elsewhere."""
    result = RESULT_OK if request.operation in request.framing.with_result else b""
    size = len(result) + len(payload) + tail_bytes
    return b"".join((reply(request, 0, size, commit), result, payload))


def failure(request: VsrRequest, number: int, commit: int = 0) -> bytes:
    """Return an answer that fails, with the error where the real server puts it.

    A client of a dialect that commits repeats a request whose error is not a result; `commit` 0:
    the request was refused before it could be carried out.
    """
    framing = request.framing
    is_result = number in RESULT_ERRORS or bool(framing.commits and commit)
    if request.operation in framing.with_result and is_result:
        result = struct.pack("<III", 1, 0, number)
        return reply(request, 0, len(result), commit) + result
    return reply(request, number)


def eviction(request: VsrRequest, reason: Reason) -> bytes:
    """Return a frame that ends a session, or refuses to begin a session."""
    frame = bytearray(HEADER_BYTES)
    U32.pack_into(frame, SIZE_POS, HEADER_BYTES)
    frame[COMMAND_POS] = COMMAND_EVICTION
    frame[CLIENT_POS : CLIENT_POS + 16] = request.client
    if reason is Reason.INCOMPATIBLE_PROTOCOL:
        U32.pack_into(frame, ACCEPTED_MAX_POS, W_VERSION)
        U32.pack_into(frame, ACCEPTED_MIN_POS, V_VERSION)
    frame[REASON_POS] = reason
    return bytes(frame)
