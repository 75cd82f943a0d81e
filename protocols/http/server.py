"""The HTTP listener's server: its application on the HTTP transport."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import trio

from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.refusals import raw_refusal
from braidlog.protocols.transport.connection import Application
from braidlog.protocols.transport.serving import HttpListener, listed

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.tls import TlsSettings
    from braidlog.protocols.http.options import RestOptions

PROTOCOL = "http"

_LISTENERS: dict[Broker, HttpListener] = {}  # That serve.


async def serve(
    broker: Broker,
    sockets: Sequence[socket.socket],
    options: RestOptions,
    stopping: trio.Event,
    tls: TlsSettings | None = None,
) -> None:
    """Serve until `stopping` is set and running requests are answered."""
    app = make_app(broker, options, stopping)
    listener = HttpListener(broker, PROTOCOL, cast(Application, app), raw_refusal, tls)
    with listed(_LISTENERS, broker, listener):
        await listener.run(sockets, stopping, (app.consumers.keep_time, app.history.run))


async def serve_forwarded(broker: Broker, stream: trio.SocketStream) -> None:
    """Serve a connection that another broker has made for its clients."""
    listener = _LISTENERS.get(broker)
    if listener is not None:
        await listener.serve_stream(stream)
