"""Connections between brokers: a handshake, in which both prove a shared secret, and messages.

Each side sends a random number, and a keyed hash (HMAC-SHA-256) of both numbers and of the hello. A
peer without the secret fails the handshake, and a replayed hello is worthless. Nothing is
encrypted: the port belongs on a private network of the brokers. Knows no call.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import select
import socket
import struct
from typing import Final, TypeVar

import msgspec
import trio

from braidlog.storage.errors import reason_of

MAGIC: Final = b"BRAIDLNK\x01"
NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
# A hello, and every call and answer: a commit of ten thousand partitions is below a megabyte.
HELLO_BYTES_MAX: Final = 4096
MESSAGE_BYTES_MAX: Final = 16 << 20
HELLO_S: Final = 5.0  # Time for the handshake of both sides.

LENGTH = struct.Struct(">I")

T = TypeVar("T")


class LinkLost(Exception):
    """The other side has disconnected or failed the handshake; the text says which."""


class NotSent(LinkLost):
    """The other side cannot have received a whole message, so did nothing."""


class Hello(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Purpose of a connection: `kind` is `calls`, or `relay` to the listener of that name."""

    cluster: str
    session: int
    kind: str
    listener: str = ""


async def connect(address: tuple[str, int], secret: bytes, hello: Hello) -> trio.SocketStream:
    """Connect; both sides prove that they know the secret. Raises NotSent."""
    with trio.move_on_after(HELLO_S):
        stream: trio.SocketStream | None = None
        try:
            stream = await trio.open_tcp_stream(*address)
            await _introduce(stream, secret, msgspec.msgpack.encode(hello))
        except (OSError, trio.BrokenResourceError, LinkLost) as error:
            await _close(stream)
            raise NotSent(f"broker at {address[0]}:{address[1]}: {reason_of(error)}") from error
        except BaseException:  # Cancelled: no other task would close the socket.
            await _close(stream)
            raise
        return stream
    raise NotSent(f"broker at {address[0]}:{address[1]}: no answer within {HELLO_S:.0f} s")


def has_ended(stream: trio.SocketStream) -> bool:
    """Return whether the other side has ended an idle connection. The other side never sends first,
    so there is nothing else to read.
    """
    poll = select.poll()
    poll.register(stream.socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def _close(stream: trio.SocketStream | None) -> None:
    if stream is not None:
        await trio.aclose_forcefully(stream)


async def _introduce(stream: trio.SocketStream, secret: bytes, hello: bytes) -> None:
    theirs = (await receive_exactly(stream, len(MAGIC) + NONCE_BYTES))[len(MAGIC) :]
    ours = secrets.token_bytes(NONCE_BYTES)
    proof = mac(secret, b"asks", theirs, ours, hello)
    await stream.send_all(MAGIC + ours + proof + LENGTH.pack(len(hello)) + hello)
    answer = await receive_exactly(stream, MAC_BYTES)
    if not hmac.compare_digest(answer, mac(secret, b"answers", theirs, ours, hello)):
        raise LinkLost("it does not know the cluster's secret")


async def welcome(stream: trio.SocketStream, secret: bytes) -> Hello:
    """Return the hello of a peer that has proved the secret. Raises LinkLost."""
    with trio.move_on_after(HELLO_S):
        ours = secrets.token_bytes(NONCE_BYTES)
        try:
            await stream.send_all(MAGIC + ours)
            head = await receive_exactly(stream, len(MAGIC) + NONCE_BYTES + MAC_BYTES + LENGTH.size)
            theirs, proof = head[len(MAGIC) : -MAC_BYTES - LENGTH.size], head[-36:-4]
            (size,) = LENGTH.unpack(head[-LENGTH.size :])
            if head[: len(MAGIC)] != MAGIC or size > HELLO_BYTES_MAX:
                raise LinkLost("not a broker of this version")
            hello = await receive_exactly(stream, size)
            if not hmac.compare_digest(proof, mac(secret, b"asks", ours, theirs, hello)):
                raise LinkLost("it does not know the cluster's secret")
            await stream.send_all(mac(secret, b"answers", ours, theirs, hello))
            return msgspec.msgpack.decode(hello, type=Hello)
        except (OSError, trio.BrokenResourceError, msgspec.MsgspecError) as error:
            raise LinkLost(reason_of(error)) from error
    raise LinkLost(f"no hello within {HELLO_S:.0f} s")


def mac(secret: bytes, side: bytes, server: bytes, client: bytes, hello: bytes) -> bytes:
    """Return the proof of the secret."""
    return hmac.digest(secret, b"\x00".join((MAGIC, side, server, client, hello)), hashlib.sha256)


async def receive_exactly(stream: trio.SocketStream, size: int) -> bytes:
    """Read exactly `size` bytes. Raises LinkLost at the end of the stream, OSError and trio's
    errors.
    """
    data = bytearray()
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        if not piece:
            raise LinkLost("the connection has ended")
        data += piece
    return bytes(data)


async def send_message(stream: trio.SocketStream, message: object) -> None:
    """Send a message. Raises NotSent."""
    data = msgspec.msgpack.encode(message)
    try:
        await stream.send_all(LENGTH.pack(len(data)) + data)
    except (OSError, trio.BrokenResourceError) as error:
        raise NotSent(reason_of(error)) from error


async def receive_message(stream: trio.SocketStream, kind: type[T]) -> T:
    """Receive a message. Raises LinkLost, also for a malformed message."""
    try:
        (size,) = LENGTH.unpack(await receive_exactly(stream, LENGTH.size))
        if size > MESSAGE_BYTES_MAX:
            raise LinkLost(f"a message of {size} bytes")
        return msgspec.msgpack.decode(await receive_exactly(stream, size), type=kind)
    except (OSError, trio.BrokenResourceError, msgspec.MsgspecError) as error:
        raise LinkLost(reason_of(error)) from error


def listening(address: tuple[str, int]) -> trio.SocketListener:
    """Return a listener at that address. Raises OSError."""
    host, port = address
    family, kind, number, _, bound = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(bound)
        sock.listen()
    except OSError:
        sock.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
