"""The listener of Iggy's HTTP API as seen by `broker/`."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import trio

from braidlog.broker.config.settings import is_loopback
from braidlog.broker.server.connection import address_text
from braidlog.protocols.iggy.adapter import ADAPTER, States, state_of
from braidlog.protocols.iggy.http.options import IggyHttpOptions
from braidlog.protocols.iggy.root import make_root

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.tls import TlsSettings
    from braidlog.protocols.iggy.http.app import IggyHttp
    from braidlog.protocols.transport.connection import Application


class IggyHttpAdapter:
    """See `braidlog.broker.server.adapters.ServingAdapter`."""

    name = "iggy-http"
    default_address = ("127.0.0.1", 3000)
    options_type = IggyHttpOptions
    alpn_protocols = ("http/1.1",)

    def __init__(self, states: States) -> None:
        """Take the state of each broker, which the listeners of all transports share."""
        self.states = states
        self._apps: dict[Broker, IggyHttp] = {}  # Of listeners that serve.

    async def serve(
        self,
        broker: Broker,
        sockets: Sequence[socket.socket],
        options: IggyHttpOptions,
        stopping: trio.Event,
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Serve the sockets until `stopping`, then finish running requests."""
        from braidlog.protocols.iggy.http.app import IggyHttp, raw_refusal
        from braidlog.protocols.transport.serving import HttpListener, listed

        loopback = all(is_loopback(listening.getsockname()[0]) for listening in sockets)
        app = IggyHttp(broker, options, state_of(self.states, broker), loopback=loopback)
        served = cast("Application", app)
        with listed(self._apps, broker, app):
            await HttpListener(broker, self.name, served, raw_refusal, tls).run(sockets, stopping)

    async def serve_forwarded(self, broker: Broker, stream: trio.SocketStream) -> None:
        """Serve the request that another broker forwards for a client."""
        app = self._apps.get(broker)
        if app is not None:
            await app.serve_forwarded(stream)

    async def start(self, broker: Broker, options: IggyHttpOptions, *, loopback: bool) -> None:
        if not loopback and options.password_file is None:
            await make_root(broker, options.username)

    def check(self, options: IggyHttpOptions, *, loopback: bool) -> None:
        """Check the options. Raises ValueError with a line for the operator."""
        options.check()

    def prepare(self) -> None:
        """Import the server before the broker opens anything: see `Preparing`."""
        import braidlog.protocols.iggy.http.app
        import braidlog.protocols.transport.serving  # noqa: F401

    def describe(self, host: str, port: int, options: IggyHttpOptions) -> str:
        """Return a command to copy and paste."""
        return f"curl http://{address_text((host, port))}/ping"


ADAPTER_HTTP = IggyHttpAdapter(ADAPTER.states)
