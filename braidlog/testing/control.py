"""The control address of a broker for tests: injects and ends faults over HTTP.

`POST /faults` takes a fault as JSON, `DELETE /faults` ends all faults, `GET /addresses` tells the
addresses of the listeners. Only for loopback: the address has no login.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, cast

import h11
import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from braidlog.protocols.transport.connection import Application, HttpConnection, Settings
from braidlog.testing.faults import AnyFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braidlog.testing.running import Running

HEAD_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 64 * 1024
KEEP_ALIVE_S = 60.0
decode = msgspec.json.Decoder(AnyFault).decode


class ControlApi:
    """The routes of a running broker."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.app = Starlette(
            routes=[
                Route("/faults", self.inject, methods=["POST"]),
                Route("/faults", self.heal, methods=["DELETE"]),
                Route("/addresses", self.addresses, methods=["GET"]),
            ]
        )

    async def inject(self, request: Request) -> Response:
        """Inject the fault of the body."""
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                return _answer({"error": f"the body has more than {BODY_BYTES_MAX} bytes"}, 413)
        try:
            fault = decode(body)
        except msgspec.MsgspecError as error:
            return _answer({"error": f"not a fault: {error}"}, 400)
        try:
            return _answer(await fault.inject(self._running))
        except (ValueError, OSError) as error:
            return _answer({"error": str(error)}, 409)

    async def heal(self, _: Request) -> Response:
        """End all faults."""
        self._running.heal()
        return _answer({})

    async def addresses(self, _: Request) -> Response:
        """Return the addresses of the listeners."""
        return _answer(self._running.addresses)


async def serve_control(running: Running, listening: socket.socket) -> None:
    """Serve the control address until cancelled."""
    app = cast(Application, ControlApi(running).app)
    settings = Settings(app, _refusal, head_bytes_max=HEAD_BYTES_MAX, keep_alive_s=KEEP_ALIVE_S)

    async def serve(stream: trio.SocketStream) -> None:
        await HttpConnection(settings, stream).run()

    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    await trio.serve_listeners(serve, [listener])


def _refusal(status: int) -> Sequence[h11.Event]:
    return (
        h11.Response(status_code=status, headers=[("content-length", "0")]),
        h11.EndOfMessage(),
    )


def _answer(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
