"""The HTTP listener as a plug-in. Starlette and h11 are imported when the listener starts."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import trio

from braidlog.broker.server.connection import address_text
from braidlog.protocols.http.options import RestOptions

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.tls import TlsSettings

Serve = Callable[
    ["Broker", Sequence[socket.socket], "RestOptions", trio.Event, "TlsSettings | None"],
    Awaitable[None],
]


class RestAdapter:
    """An adapter with its own server: Starlette's routes on the HTTP/1.1 transport.

    Implements `ForwardServing`.
    """

    name = "http"
    default_address = ("127.0.0.1", 8080)
    options_type = RestOptions
    alpn_protocols = ("http/1.1",)

    async def serve(
        self,
        broker: Broker,
        sockets: Sequence[socket.socket],
        options: RestOptions,
        stopping: trio.Event,
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Serve the sockets until `stopping`, then finish running requests (`server.py`)."""
        serve = _import_server()
        await serve(broker, sockets, options, stopping, tls)

    async def serve_forwarded(self, broker: Broker, stream: trio.SocketStream) -> None:
        from braidlog.protocols.http.server import serve_forwarded

        await serve_forwarded(broker, stream)

    def prepare(self) -> None:
        """Import the server before the broker opens anything: see `Preparing`."""
        _import_server()

    def describe(self, host: str, port: int, options: RestOptions) -> str:
        """Return the console's address, and a command to copy and paste."""
        url = f"http://{address_text((host, port))}"
        command = f"curl {url}/api/v1/topics"
        return command if options.console == "off" else f"{url}/ui in a browser, or {command}"


def _import_server() -> Serve:
    from braidlog.protocols.http.server import serve

    return serve


ADAPTER = RestAdapter()
