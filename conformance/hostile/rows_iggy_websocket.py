"""Rows of Iggy over WebSocket: the commands of two dialects in binary messages, and frames of each
other kind. Mutations hit the frame around a command, or the command in a correct frame.
"""

import struct

from conformance.hostile import rows_iggy
from conformance.hostile.mutation import HTTP
from conformance.hostile.rows import CommandRow, ConnectionKind, Protocol

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MASK = b"\x11\x22\x33\x44"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
DIALECTS = ("D2", "D5")


def masked(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """Return a client's frame."""
    first, size = opcode | 0x80 * final, len(payload)
    if size <= 125:
        head = struct.pack(">BB", first, 0x80 | size)
    elif size <= 0xFFFF:
        head = struct.pack(">BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, size)
    key = MASK * (size // 4 + 1)
    return head + MASK + bytes(byte ^ mask for byte, mask in zip(payload, key, strict=False))


def binary(payload: bytes) -> bytes:
    """Return a binary message of a single frame."""
    return masked(BINARY, payload)


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
            [*map(_wrapped, talk.commands), *_frames()],
            dialect=talk.dialect,
        )
        for talk in rows_iggy.protocol().talks
        if talk.dialect in DIALECTS and talk.opening
    ]
    openings = [CommandRow("opening request", UPGRADE)]
    talks.append(ConnectionKind(HTTP, [], [], openings, dialect="opening"))
    return Protocol("iggy-websocket", talks, counted_as="iggy")


def _wrapped(row: CommandRow) -> CommandRow:
    wrap = in_two if len(row.frame) % 2 else binary
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
