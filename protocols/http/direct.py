"""One ordinary request of HTTP/1.1, served by the task that reads its connection.

Hypercorn gives each request a task, a queue for what comes and a turn of the loop for each of them:
that costs more than a small request itself. Here nothing is read while a request runs, except what
the application asks for: the rest of its body, and whether its client has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import unquote

import trio
from hypercorn.events import RawData

from braidlog.protocols.http.http1 import Prompt, peer_leaves
from braidlog.protocols.http.ordinary import WHOLE_BODY, Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypercorn.app_wrappers import ASGIWrapper
    from hypercorn.events import Event
    from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent

    from braidlog.protocols.http.ordinary import Dates, Head

ASGI = {"spec_version": "2.1", "version": "3.0"}
LEFT: dict[str, Any] = {"type": "http.disconnect"}


class Stream(Protocol):
    """What a request needs of its connection."""

    is_encrypted: bool
    client: tuple[str, int] | None
    server: tuple[str, int] | None
    socket: trio.socket.SocketType

    async def receive(self) -> bytes:
        """What comes next; b"" if nothing more will."""

    async def send(self, event: Event) -> None:
        """Send bytes; do nothing if the client is gone."""


class DirectRequest:
    """Serves one request; `ahead` is what came after it."""

    def __init__(self, head: Head, received: bytes, stream: Stream, dates: Dates) -> None:
        """`received` is what came after the head."""
        self.ahead = received[head.body_bytes :]
        self._head = head
        self._body: bytes | None = received[: head.body_bytes]  # None once it was given
        self._left = head.body_bytes - len(self._body)  # of the body, still to come
        self._has_left = False
        self._stream = stream
        self._answer = Answer(head.method, dates, closes=head.closes)
        self._is_silent = True  # nothing has been sent

    async def serve(self, app: ASGIWrapper) -> bool:
        """Answer it; returns whether that is done and the client still there. Raises what a bug
        raises.
        """
        spawn, call_soon = trio.to_thread.run_sync, trio.from_thread.run
        receive = cast("Callable[[], Any]", self._receive)
        await app(cast("Any", self._scope()), receive, self._send, spawn, call_soon)
        self._body = None  # Nobody reads it any more.
        return self._answer.is_whole and not self._has_left

    @property
    def closes(self) -> bool:
        """Whether the connection ends after it."""
        return self._answer.closes

    @property
    def unread(self) -> int:
        """Bytes of the body that are still to come."""
        return self._left

    def take(self, received: bytes) -> bytes:
        """The part of the bytes that belongs to the body; what follows it becomes `ahead`."""
        body, self.ahead = received[: self._left], received[self._left :]
        self._left -= len(body)
        return body

    def _scope(self) -> dict[str, object]:
        head, stream = self._head, self._stream
        scope: dict[str, object] = {
            "type": "http",
            "http_version": "1.1",
            "asgi": ASGI,
            "method": head.method,
            "scheme": "https" if stream.is_encrypted else "http",
            "path": unquote(head.path.decode("ascii")),
            "raw_path": head.path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers,
            "client": stream.client,
            "server": stream.server,
            "state": {},
            "extensions": {},
        }
        if not self._left:
            scope[WHOLE_BODY] = self._body
        return scope

    async def _receive(self) -> ASGIReceiveEvent | dict[str, Any]:
        """The next piece of the body, and finally that the client has left."""
        if self._body is not None:
            body, self._body = self._body, None
            if body or not self._left:
                return {"type": "http.request", "body": body, "more_body": self._left > 0}
        if self._left:
            body = self.take(await self._stream.receive())
            self._has_left = not body
            if body:
                return {"type": "http.request", "body": body, "more_body": self._left > 0}
        await self._leaves()
        return LEFT

    async def _leaves(self) -> None:
        """Wait until the client has left. Only a little of what it sends meanwhile, its next
        requests, is read.
        """
        while not self._has_left:
            if self.ahead:
                await peer_leaves(self._stream.socket)
                self._has_left = True
            else:
                self.ahead = await self._stream.receive()
                self._has_left = not self.ahead

    async def _send(self, message: ASGISendEvent) -> None:
        for piece in self._answer.write(cast("dict[str, Any]", message)):
            await self._stream.send(Prompt(piece) if self._is_silent else RawData(piece))
            self._is_silent = False
