"""An open HTTP connection in lists: address, user, library and traffic. Knows no route.

The user and library are those of the connection's last request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from braidlog.broker.access.rights import ANONYMOUS, Principal
from braidlog.broker.server.connection import LIBRARY_MAX, address_text
from braidlog.broker.server.tcp_info import tcp_silent_s, tcp_traffic
from braidlog.broker.server.written_topics import WrittenTopics

if TYPE_CHECKING:
    from starlette.types import Scope

    from braidlog.protocols.transport.connection import Stream

CLIENT: Final = "braidlog.client"  # The scope's entry with the HttpClient.
USER_AGENT: Final = b"user-agent"


class HttpClient:
    """A client of an HTTP listener, from its connection to the end.

    Implements `ListedConnection`.
    """

    def __init__(self, number: int, listener_name: str, stream: Stream) -> None:
        inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        self.id = number
        self.protocol = listener_name  # The adapters with a server have a single listener each.
        self.listener_name = listener_name
        self.is_encrypted = isinstance(stream, trio.SSLStream)
        self.principal: Principal = ANONYMOUS
        self.is_open = True
        self.written_topics = WrittenTopics()
        self._socket = inner.socket
        self._headers: list[tuple[bytes, bytes]] = []  # Of the last request.
        self.peer = address_text(self._socket.getpeername())

    @property
    def local(self) -> tuple[str, int]:
        """Return the broker's address of the connection. Raises OSError."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def note(self, principal: Principal, scope: Scope) -> None:
        """Note the principal and headers of a request."""
        self.principal = principal
        self._headers = scope["headers"]

    @property
    def library(self) -> str:
        """The `User-Agent` of the last request; "" without it."""
        values = (value for name, value in self._headers if name == USER_AGENT)
        return next(values, b"").decode("ascii", "replace").replace("\ufffd", "?")[:LIBRARY_MAX]

    @property
    def heard_at(self) -> float:
        return trio.current_time() - tcp_silent_s(self._socket)

    def traffic(self) -> tuple[int, int]:
        return tcp_traffic(self._socket)
