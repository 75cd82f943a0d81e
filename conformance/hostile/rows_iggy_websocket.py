"""Rows of Iggy over WebSocket: the commands of four dialects in binary messages, and frames of each
other kind. Mutations hit the frame around a command, or the command in a correct frame.
"""

import struct
from dataclasses import replace

from conformance.hostile import rows_iggy
from conformance.hostile.mutation import HTTP
from conformance.hostile.rows import CommandRow, ConnectionKind, Protocol, SessionField

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MASK = b"\x11\x22\x33\x44"
CLEAR = bytes(4)  # A mask that changes nothing: frames of V and W get their session later.
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
DIALECTS = ("D2", "D5", "V", "W")
# Behind the opening's HTTP answer; commands of V and W have a frame's head of 4 bytes, and a mask.
SESSION = replace(
    rows_iggy.V_SESSION,
    answer_pos=rows_iggy.V_SESSION.answer_pos + 4,
    frame_pos=rows_iggy.V_SESSION.frame_pos + 8,
    after=b"\r\n\r\n",
)


def masked(opcode: int, payload: bytes, *, final: bool = True, mask: bytes = MASK) -> bytes:
    """Return a client's frame."""
    first, size = opcode | 0x80 * final, len(payload)
    if size <= 125:
        head = struct.pack(">BB", first, 0x80 | size)
    elif size <= 0xFFFF:
        head = struct.pack(">BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, size)
    key = mask * (size // 4 + 1)
    return head + mask + bytes(byte ^ other for byte, other in zip(payload, key, strict=False))


def binary(payload: bytes) -> bytes:
    """Return a binary message of a single frame."""
    return masked(BINARY, payload)


def clear(payload: bytes) -> bytes:
    """Return a binary message of a single frame, whose bytes are those of the payload."""
    return masked(BINARY, payload, mask=CLEAR)


def in_two(payload: bytes) -> bytes:
    """Return a binary message in two frames, with a ping between."""
    cut = len(payload) // 2
    first = masked(BINARY, payload[:cut], final=False)
    return first + masked(PING, b"between") + masked(CONTINUATION, payload[cut:])


def protocol() -> Protocol:
    """Return the attack on the WebSocket listener."""
    talks = [
        ConnectionKind(
            HTTP,
            [UPGRADE, *map(binary, talk.opening)],
            talk.opening_apis,
            [*(_wrapped(row, talk.session) for row in talk.commands), *_frames()],
            SESSION if talk.session else None,
            dialect=talk.dialect,
        )
        for talk in rows_iggy.protocol().talks
        if talk.dialect in DIALECTS and talk.opening
    ]
    openings = [CommandRow("opening request", UPGRADE)]
    talks.append(ConnectionKind(HTTP, [], [], openings, dialect="opening"))
    return Protocol("iggy-websocket", talks, counted_as="iggy")


def _wrapped(row: CommandRow, session: SessionField | None) -> CommandRow:
    wrap = clear if session else in_two if len(row.frame) % 2 else binary
    return CommandRow(row.name, wrap(row.frame), row.frame, wrap)


def _frames() -> list[CommandRow]:
    ping = struct.pack("<II", 4, 1)
    return [
        CommandRow("ping frame", masked(PING, b"hello") + binary(ping)),
        CommandRow("pong frame", masked(PONG, b"") + binary(ping)),
        CommandRow("close frame", masked(CLOSE, b"\x03\xe8bye")),
        CommandRow("text message", masked(TEXT, ping)),
        CommandRow("empty frames", masked(BINARY, b"", final=False) + masked(CONTINUATION, ping)),
        CommandRow("long frame", struct.pack(">BBQ", 0x82, 0xFF, 1 << 40) + MASK + ping),
    ]
