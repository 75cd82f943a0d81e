"""Connected sockets as the receiver and the outbox see them: plain, or below a layer that changes
the bytes on the wire. Knows no layer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from braidlog.storage.formats.api import Buffer


class HandshakeFailed(Exception):
    """A client did not complete the handshake of a layer; the text says why, for the operator."""

    event = "handshake_failed"  # In the log.


class LayeredSocket(Protocol):
    """A socket below a layer, with a plain socket's own methods. Never blocks: raises
    BlockingIOError as a plain socket does.
    """

    @property
    def is_encrypted(self) -> bool:
        """True if only the peer can read the bytes on the wire."""

    @property
    def has_pending(self) -> bool:
        """True if `recv_into` has bytes, or the end, without a readable descriptor."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the received bytes; return 0 at the end of the stream.

        Raises BlockingIOError if there are no bytes, OSError.
        """

    def recv(self, size: int, /) -> bytes:
        """Return up to `size` bytes. Raises BlockingIOError if there are no bytes, OSError."""

    def send(self, data: Buffer, /) -> int:
        """Send as many bytes as possible now. `data` begins with the unsent bytes of an earlier
        call, if any.

        Raises BlockingIOError if no byte can be sent, OSError.
        """

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        """Send pieces as `send`. Raises BlockingIOError, OSError."""

    def shutdown(self, how: int, /) -> None:
        """Announce the end of the stream. Raises OSError."""

    def fileno(self) -> int:
        """Return the descriptor, to wait for."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Work as a socket's method. Raises OSError."""

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None:
        """Work as a socket's method. Raises OSError."""

    def getpeername(self) -> tuple[str, int]:
        """Work as a socket's method. Raises OSError."""

    def getsockname(self) -> tuple[str, int]:
        """Work as a socket's method."""

    def close(self) -> None:
        """Close the socket at once."""

    def __enter__(self) -> object:
        """Work as a socket's method."""

    def __exit__(self, *error: object) -> None:
        """Work as a socket's method."""


Stream = socket.socket | LayeredSocket


def is_encrypted(stream: Stream) -> bool:
    """Return True if only the peer can read the bytes on the wire."""
    return not isinstance(stream, socket.socket) and stream.is_encrypted
