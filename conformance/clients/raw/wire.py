"""A blocking socket that sends and takes whole frames. Knows no protocol."""

import socket
import ssl
import struct
from typing import Self

TIMEOUT_S = 60.0  # A slower broker hangs.


class Wire:
    """A connection; also a context manager."""

    def __init__(
        self,
        address: tuple[str, int],
        tls: ssl.SSLContext | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self._memory = memoryview(b"")  # See `take_view`.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        self.socket.sendall(data)

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes.

        Raises:
            ConnectionError: the peer closed before.
        """
        parts = bytearray()
        while len(parts) < size:
            piece = self.socket.recv(size - len(parts))
            if not piece:
                raise ConnectionError(f"closed after {len(parts)} of {size} bytes")
            parts += piece
        return bytes(parts)

    def take_view(self, size: int) -> memoryview:
        """Return exactly `size` bytes, valid until the next call. Raises ConnectionError.

        The memory is reused: a load generator that clears fresh pages for each large answer is
        slower than the broker, which then also pays for going to sleep between two requests.
        """
        if len(self._memory) < size:
            self._memory = memoryview(bytearray(size))
        view = self._memory[:size]
        filled = 0
        while filled < size:
            got = self.socket.recv_into(view[filled:])
            if not got:
                raise ConnectionError(f"closed after {filled} of {size} bytes")
            filled += got
        return view

    def take_frame(self) -> bytes:
        """Return a frame with a leading length of 4 bytes, big endian; without the length."""
        (size,) = struct.unpack(">I", self.take(4))
        return self.take(size)

    def is_closed(self) -> bool:
        """Return True if the peer ends the connection without another byte (waits for the end)."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
