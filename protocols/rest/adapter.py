"""The HTTP listener as a plug-in. Imports neither Starlette nor Hypercorn: `server.py` does, once
it
serves.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import trio

from broker.server.connection import address_text

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.server.tls import TlsSettings

MIB = 1024 * 1024

Serve = Callable[
    ["Broker", Sequence[socket.socket], "RestOptions", trio.Event, "TlsSettings | None"],
    Awaitable[None],
]


class RestOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of an HTTP listener."""

    # A body of the management API, whose own are a few hundred bytes.
    request_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = MIB
    # A body with messages. Two records of the largest size fit, in base64 one.
    produce_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = 10 * MIB
    auto_create_topics: bool = False  # Whether producing makes a topic that is not there.
    # From the head of a request to the end of its body: a slower client is told so and let go.
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    disk_free_bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 64 * MIB  # Not ready below this.


class RestAdapter:
    """Brings its own server: Starlette's routes on Hypercorn's trio worker."""

    name = "http"
    default_address = ("127.0.0.1", 8080)
    options_type = RestOptions
    alpn_protocols = ("h2", "http/1.1")

    async def serve(
        self,
        broker: Broker,
        sockets: Sequence[socket.socket],
        options: RestOptions,
        stopping: trio.Event,
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Serve the sockets until `stopping`; running requests are answered first, see
        `server.py`.
        """
        serve = _import_server()
        await serve(broker, sockets, options, stopping, tls)

    def prepare(self) -> None:
        """Import the server, before anything is opened: see `Preparing`."""
        _import_server()

    def describe(self, host: str, port: int, options: RestOptions) -> str:
        """A line to copy and paste."""
        return f"curl http://{address_text((host, port))}/api/v1/topics"


def _import_server() -> Serve:
    from protocols.rest.server import serve

    return serve


ADAPTER = RestAdapter()
