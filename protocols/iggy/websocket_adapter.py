"""The Iggy listener for clients over WebSocket: the same sessions, frames in binary messages."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from braidlog.broker.server.connection import address_text
from braidlog.protocols.iggy.adapter import ADAPTER, IggyAdapter
from braidlog.protocols.iggy.context import TRANSPORT_WEBSOCKET
from braidlog.protocols.iggy.options import IggyOptions

if TYPE_CHECKING:
    from braidlog.broker.runtime.streams import LayeredSocket
    from braidlog.broker.runtime.tls_socket import TlsSocket


class IggyWebSocketOptions(IggyOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of an Iggy listener for WebSocket."""

    # Origins of web pages whose scripts may connect, as `http://localhost:5173`; `*` is all.
    allowed_origins: tuple[str, ...] = ()


class IggyWebSocketAdapter(IggyAdapter):
    """As `IggyAdapter`; frames travel in the messages of a WebSocket, at any path."""

    name = "iggy-websocket"
    default_address = ("127.0.0.1", 8092)
    options_type = IggyWebSocketOptions
    alpn_protocols = ("http/1.1",)
    transport = TRANSPORT_WEBSOCKET

    async def open_stream(
        self, stream: socket.socket | TlsSocket, options: IggyWebSocketOptions
    ) -> LayeredSocket:
        """Accept the WebSocket of a new connection. Raises UpgradeFailed, OSError."""
        from braidlog.protocols.transport.websocket_stream import open_websocket

        return await open_websocket(stream, options.allowed_origins)

    def prepare(self) -> None:
        """Import the transport before the broker opens anything: see `Preparing`."""
        import braidlog.protocols.transport.websocket_stream  # noqa: F401

    def describe(self, host: str, port: int, options: IggyOptions) -> str:
        """Return instructions to connect, to copy and paste; no password is shown."""
        address = address_text((host, port))
        return f'apache-iggy: "iggy+ws://{options.username}:PASSWORD@{address}"'


ADAPTER_WEBSOCKET = IggyWebSocketAdapter(ADAPTER.states)
