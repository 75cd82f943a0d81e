"""Calls of the HTTP API from within the listener: the console's only way to the broker.

A call runs through the listener's whole application, like a request from a client: the same
routes, rights, limits, audit log, and forwarding to other brokers of a cluster. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec
import trio

from braidlog.protocols.http.errors import ErrorBody
from braidlog.protocols.http.requests import PROBE
from braidlog.protocols.transport.messages import WHOLE_BODY

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message

T = TypeVar("T")

# Entries of the browser's request that belong to this request alone.
OWN_ENTRIES = ("exchange", "app", "route", "endpoint", "path_params", "router", WHOLE_BODY)
# Headers of the browser's request that a call keeps. The browser's own credentials are among them:
# a console behind a proxy that adds them needs no sign-in.
KEPT_HEADERS = frozenset({b"host", b"authorization", b"user-agent"})


class ApiError(Exception):
    """An error answer of the API, with its status and stable code."""

    def __init__(self, status: int, code: str, message: str, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.body = body


class InnerApi:
    """Calls of the API on behalf of a browser's request, one after the other.

    `authorization` is the Authorization header of the signed-in user, None without a sign-in.
    """

    def __init__(self, app: ASGIApp, request: Request, authorization: str | None) -> None:
        self._app = app
        self._request = request
        headers = [pair for pair in request.headers.raw if pair[0] in KEPT_HEADERS]
        if authorization is not None:
            headers = [pair for pair in headers if pair[0] != b"authorization"]
            headers.append((b"authorization", authorization.encode()))
        headers.append((b"x-request-id", request.scope["exchange"].request_id.encode()))
        self._headers = headers
        self._is_lasting = False

    def lasting(self) -> InnerApi:
        """Return the API for an answer without end, which watches the browser itself."""
        other = copy(self)
        other._is_lasting = True
        return other

    async def get(self, path: str, into: type[T], **query: object) -> T:
        """Return the answer to a GET. Parameters that are None are left out. Raises ApiError."""
        return msgspec.json.decode(await self.call("GET", path, query=query), type=into)

    async def find(self, path: str, into: type[T], **query: object) -> T | None:
        """Return the answer to a GET; None if the thing does not exist. Raises ApiError."""
        try:
            body = await self.call("GET", path, query=query, is_probe=True)
            return msgspec.json.decode(body, type=into)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, object] | None = None,
        accept: str = "application/json",
        *,
        is_probe: bool = False,
    ) -> bytes:
        """Return the body of an answer; `path` is percent-encoded. The absence of the thing that a
        probe looks for does not count as a refused request. Raises ApiError.
        """
        sent = b"" if body is None else msgspec.json.encode(body)
        answer = _Answer()
        receive = _Receive(self._request, sent, is_lasting=self._is_lasting)
        scope = self._scope(method, path, query or {}, sent)
        scope[PROBE] = is_probe
        scope["headers"].append((b"accept", accept.encode()))
        await self._app(scope, receive, answer.send)
        return answer.checked()

    def _scope(
        self, method: str, path: str, query: Mapping[str, object], sent: bytes
    ) -> dict[str, Any]:
        scope = {key: value for key, value in self._request.scope.items() if key not in OWN_ENTRIES}
        headers = list(self._headers)
        if sent:
            headers.append((b"content-type", b"application/json"))
            headers.append((b"content-length", str(len(sent)).encode()))
        query_set = {name: value for name, value in query.items() if value is not None}
        return {
            **scope,
            "method": method,
            "path": path,
            "raw_path": path.encode("ascii"),
            "query_string": urlencode(query_set).encode(),
            "headers": headers,
        }


class _Receive:
    """ASGI's `receive` of a call: the call's body, then the disconnect of the browser."""

    def __init__(self, request: Request, body: bytes, *, is_lasting: bool) -> None:
        self._request = request
        self._is_lasting = is_lasting
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is None:
            if self._is_lasting:
                await trio.sleep_forever()
            return await self._request.receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Answer:
    """The answer to a call, gathered."""

    def __init__(self) -> None:
        self._status = 0
        self._pieces: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        else:
            self._pieces.append(message.get("body", b""))

    def checked(self) -> bytes:
        """Return the body of a successful answer. Raises ApiError."""
        body = b"".join(self._pieces)
        if 200 <= self._status < 300:
            return body
        if not self._status:
            raise ApiError(499, "client_left", "the client has left")
        try:
            error = msgspec.json.decode(body, type=ErrorBody)
        except msgspec.DecodeError:
            text = body.decode("utf-8", "replace")[:1000]
            raise ApiError(self._status, "", text, body) from None
        raise ApiError(self._status, error.code, error.message)
