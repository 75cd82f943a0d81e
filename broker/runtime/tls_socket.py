"""A socket that encrypts, with a plain socket's own methods: the receiver and the outbox serve both
without a branch. Knows no certificate file and no principal.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import trio

from braidlog.broker.runtime.streams import HandshakeFailed

if TYPE_CHECKING:
    from braidlog.storage.formats.api import Buffer

# From the first byte to the end of the handshake. Slow clients on bad networks need a second or
# two; a client that has not finished by then holds a connection for nothing.
HANDSHAKE_S: Final = 10.0
# Handed to the library at a time: four records. What it did not take is kept until it does.
SEND_BYTES: Final = 64 * 1024
PLAIN_HELLO: Final = "the client does not speak TLS: this listener does"


class TlsHandshakeFailed(HandshakeFailed):
    """A client did not complete the handshake of TLS."""

    event = "tls_handshake_failed"


def handshake_reason(error: BaseException) -> str:
    """The reason of a failed handshake, for the operator."""
    reason = getattr(error, "reason", None) or str(error)
    if reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return PLAIN_HELLO
    return reason


class TlsSocket:
    """A connected socket with encrypted bytes. Never blocks: raises BlockingIOError as a plain
    socket does. Implements `LayeredSocket`.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """Take over a non-blocking socket. Raises OSError if the socket is not
        connected any more.
        """
        self._tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._sending = b""  # Bytes that the library did not accept, and that must be passed again.

    @property
    def is_encrypted(self) -> bool:
        return True

    @property
    def has_pending(self) -> bool:
        return self._tls.pending() > 0

    async def handshake(self) -> None:
        """Do the TLS handshake. Raises HandshakeFailed."""
        with trio.move_on_after(HANDSHAKE_S) as deadline:
            await self._handshake()
        if deadline.cancelled_caught:
            raise TlsHandshakeFailed(f"not done within {HANDSHAKE_S:.0f} s")

    async def _handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(self._tls)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(self._tls)
            except OSError as error:
                raise TlsHandshakeFailed(handshake_reason(error)) from error

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The client's certificate, checked; None if the client showed none."""
        return self._tls.getpeercert() or None

    def recv_into(self, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer):
            try:
                size = self._tls.recv_into(buffer[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not size:
                return filled
            filled += size
        if not filled:
            raise BlockingIOError
        return filled

    def recv(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def send(self, data: Buffer) -> int:
        sent = 0
        view = memoryview(data)
        while sent < len(view):
            # The library must get exactly the bytes that it could not send before.
            piece = self._sending or bytes(view[sent : sent + SEND_BYTES])
            try:
                size = self._tls.send(piece)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._sending = piece
                break
            self._sending = b""
            sent += size
        if not sent:
            raise BlockingIOError
        return sent

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        if self._sending:
            return self.send(self._sending)
        pieces, size = [], 0
        for buffer in buffers:
            pieces.append(buffer)
            size += len(buffer)
            if size >= SEND_BYTES:
                break
        return self.send(b"".join(pieces) if len(pieces) > 1 else pieces[0])

    def shutdown(self, how: int) -> None:
        """Send TLS's end, so that the client knows that nothing was cut off. Raises OSError."""
        try:
            self._tls.unwrap().shutdown(how)
        except ssl.SSLError:
            # The client has not answered yet, and need not (RFC 8446, section 6.1).
            socket.socket.shutdown(self._tls, how)

    def fileno(self) -> int:
        return self._tls.fileno()

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._tls.getsockopt(level, option, size)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        self._tls.setsockopt(level, option, value)

    def getpeername(self) -> tuple[str, int]:
        host, port = self._tls.getpeername()[:2]
        return str(host), int(port)

    def getsockname(self) -> tuple[str, int]:
        host, port = self._tls.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        self._tls.close()

    def __enter__(self) -> TlsSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
