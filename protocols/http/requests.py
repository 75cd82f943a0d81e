"""The layer around every request: request id, limit of running requests, errors as JSON, metrics
and a log line.

Knows no route. Routes match the path as sent, still percent-encoded, so that a name may contain
characters that a URL cannot: `%2F` in a group's name does not end the name.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from braidlog.broker.access.acting import work_for
from braidlog.broker.access.rights import ANONYMOUS, Principal
from braidlog.broker.errors import BrokerError
from braidlog.broker.metrics import Number
from braidlog.broker.runtime.error_groups import forget_frames
from braidlog.protocols.http import errors
from braidlog.protocols.http.errors import ErrorBody, PulsarErrorBody
from braidlog.protocols.http.limits import JSON_PIECE_BYTES

if TYPE_CHECKING:
    from braidlog.broker.access.quotas import Allowance
    from braidlog.broker.broker import Broker

log = structlog.get_logger()

Handler = Callable[[Request], Awaitable[Response]]

# Limit of running requests; a request above the limit gets 429 instead of a place in an invisible
# queue. A request does not count while its client has to receive a piece of the answer, unless the
# piece is large: a few clients that do not receive would block all others.
REQUESTS_MAX = 256
# The header of a 401 answer (RFC 9110, section 11.6.1).
CHALLENGE = 'Basic realm="braidlog", charset="UTF-8", Bearer'
NOT_FOUND = 404
# The entry of a scope that is true if the listener itself looks whether a thing exists.
PROBE = "braidlog.probe"
SWITCHING = 101  # The status of an accepted WebSocket.
RETRY_AFTER_S = 1  # The header of 429 and 503 answers.
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")  # A client's own id, if valid.
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class RunningRequests:
    """Number of running requests, and of requests that wait for records."""

    waiting: Number
    count: int = 0


class Exchange:
    """A request and its outcome."""

    def __init__(self, scope: Scope, send: Send, working: RunningRequests, broker: Broker) -> None:
        self.request_id = _given_id(scope) or os.urandom(16).hex()
        path = _origin_form(scope["raw_path"].decode("ascii"))
        self.scope: Scope = {**scope, "path": path, "exchange": self}
        self.principal: Principal = ANONYMOUS
        self.at = ""  # The client's address, for the audit log.
        self.allowance: Allowance | None = None  # The principal's quota.
        # For endless answers: raises the error that would refuse the request now.
        self.check_again: Callable[[], None] = _allowed
        self.status = 0
        self.code = ""  # Code of the answer's error; "" without an error.
        self.is_frequent = False  # Like requests with messages: only failures are logged.
        self._send = send
        self._working = working
        self._stopping = broker.stopping
        self._give_way = broker.poller.give_way
        self.arrived = time.perf_counter()
        self.waited_s = 0.0  # Deliberate wait for records.
        self.at_end: list[Callable[[], None]] = []  # Called when the answer is sent or cannot be.

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the answer; add the request's id to the headers."""
        if message["type"].startswith("websocket."):
            await self._send_frame(message)
            return
        if message["type"] == "http.response.start":
            await self._give_way()
            self.status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self.request_id.encode())]
            if self._stopping.is_set():
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif self.allowance is not None:
            self.allowance.spend(0, len(message.get("body", b"")))
        if len(message.get("body", b"")) > JSON_PIECE_BYTES:
            await self._send(message)
            return
        with self.uncounted():  # The client may receive the piece arbitrarily late.
            await self._send(message)

    async def _send_frame(self, message: Message) -> None:
        """Send a message of a WebSocket, which does not count as a running request."""
        if message["type"] == "websocket.accept":
            self.status = SWITCHING
            headers = [(b"x-request-id", self.request_id.encode())]
            message = {**message, "headers": headers}
        elif self.allowance is not None:
            self.allowance.spend(0, len(message.get("text", "")))
        await self._send(message)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wrap a wait for records. The request does not count as running, and the wait not as
        working time.
        """
        began = time.perf_counter()
        working = self._working
        working.count -= 1
        working.waiting.inc()
        try:
            yield
        finally:
            working.count += 1
            working.waiting.dec()
            self.waited_s += time.perf_counter() - began

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Wrap a wait for the client: the request does not count as running meanwhile."""
        self._working.count -= 1
        try:
            yield
        finally:
            self._working.count += 1

    def forget(self) -> None:
        """Break reference cycles, which would hold the whole connection."""
        del self.scope["exchange"], self.check_again, self.at_end

    @property
    def api(self) -> str:
        """The template of the request's route: few different values, whatever clients send."""
        route = self.scope.get("route")
        method = self.scope["method"] if self.scope["method"] in METHODS else "other"
        return f"{method} {route.path}" if route is not None else "none"


def _given_id(scope: Scope) -> str:
    """Return the request id that the client sent; "" if the id is absent or invalid."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text: str = value.decode("latin-1")
            return text if REQUEST_ID.fullmatch(text) else ""
    return ""


def _allowed() -> None:
    """Do nothing: the request needed no permission."""


class Requests:
    """The outermost layer of the application: all work before and after a route."""

    def __init__(self, app: ASGIApp, broker: Broker) -> None:
        self._app = app
        self._broker = broker
        self._working = RunningRequests(broker.metrics.number("braidlog_waiting_requests", "http"))

    @property
    def working(self) -> int:
        """Number of requests that run and do not wait for records."""
        return self._working.count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. A handler's bug is logged with the request's id and ends only this
        request.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, send, self._working, self._broker)
        work_for(exchange)  # The task may serve many clients; now it serves this request.
        self._working.count += 1
        try:
            try:
                await self._broker.poller.give_way()
                app = self._app if self._working.count <= REQUESTS_MAX else _too_busy(exchange)
                await app(exchange.scope, receive, exchange.send)
            finally:
                self._working.count -= 1
                for act in exchange.at_end:
                    act()
            # Requests that wait here do not count as running: hundreds may have ended together.
            await self._broker.poller.give_way()
        except Exception:  # A bug ends this request and nothing else.
            log.exception("request_failed", protocol="http", request_id=exchange.request_id)
        finally:
            self._record(exchange)
            exchange.forget()

    def _record(self, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.arrived - exchange.waited_s
        numbers, api = self._broker.metrics, exchange.api
        numbers.number("braidlog_requests", "http", api).inc()
        numbers.requests(api, "http").observe(seconds)
        if exchange.code and not (exchange.scope.get(PROBE) and exchange.status == NOT_FOUND):
            numbers.number("braidlog_errors", "http", exchange.code).inc()
        is_usual = exchange.is_frequent and not exchange.code
        is_quiet = is_usual or exchange.scope["method"] in READING
        tell = log.debug if is_quiet else log.info
        tell(
            "request_served",
            protocol="http",
            request_id=exchange.request_id,
            api=api,
            path=exchange.scope["path"],
            status=exchange.status,
            ms=round(seconds * 1000, 1),
        )


def _origin_form(target: str) -> str:
    """Return the path of a request's target.

    An absolute target (RFC 9112, section 3.2.2), which any client may send and proxies do send,
    loses its host.
    """
    if target.startswith("/"):
        return target
    _, has_scheme, rest = target.partition("://")
    _, slash, path = rest.partition("/")
    return f"{slash}{path}" or "/" if has_scheme else target


def json_response(body: msgspec.Struct, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def refuse(exchange: Exchange, wire: errors.WireCode, message: str) -> Response:
    """Return the answer for an error; every error has this form, or Pulsar's on Pulsar's paths."""
    exchange.code = wire.code
    body: msgspec.Struct = ErrorBody(wire.number, wire.code, message, message)
    if exchange.scope["path"].startswith(errors.PULSAR_PATHS):
        body = PulsarErrorBody(message)
    headers = {}
    if wire.status in (429, 503):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    elif wire.status == 401:
        headers["WWW-Authenticate"] = CHALLENGE
    return Response(msgspec.json.encode(body), wire.status, headers, "application/json")


def _too_busy(exchange: Exchange) -> ASGIApp:
    return refuse(exchange, errors.TOO_BUSY, f"{REQUESTS_MAX} requests are running already")


async def on_refused(request: Request, error: Exception) -> Response:
    """Answer with one of the listener's own refusals."""
    assert isinstance(error, errors.RequestRefused)
    return refuse(request.scope["exchange"], error.wire, error.message)


async def on_broker_error(request: Request, error: Exception) -> Response:
    """Answer with an error of the broker, by the table of wire codes."""
    assert isinstance(error, BrokerError)
    return refuse(request.scope["exchange"], errors.wire_code(error), str(error))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer a refusal of Starlette's routing: an unknown path, or a method that the path does not
    have.
    """
    assert isinstance(error, HTTPException)
    exchange: Exchange = request.scope["exchange"]
    if error.status_code == errors.METHOD_NOT_ALLOWED.status:
        allowed = (error.headers or {}).get("Allow", "")
        if request.method == "OPTIONS":  # The client asks for the allowed methods.
            return Response(status_code=204, headers={"Allow": f"{allowed}, OPTIONS"})
        message = f"{request.method} is not possible here, only {allowed}"
        response = refuse(exchange, errors.METHOD_NOT_ALLOWED, message)
        response.headers["Allow"] = allowed
        return response
    if request.method == "OPTIONS" and request.scope["path"] == "*":
        return Response(status_code=204, headers={"Allow": ", ".join(METHODS)})
    return refuse(exchange, errors.NO_SUCH_PATH, f"no such path: {request.scope['path']}")


async def on_bug(request: Request, _: Exception) -> Response:
    """Answer with an internal error and the request id of the log entry."""
    exchange: Exchange = request.scope["exchange"]
    message = f"internal error, in the broker's log as request {exchange.request_id}"
    return refuse(exchange, errors.INTERNAL, message)


class _Unsent(Response):
    """An answer that is not sent, as the client has left."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send nothing."""


async def on_left(request: Request, error: Exception) -> Response:
    """Answer nothing: the client left while its request waited."""
    exchange: Exchange = request.scope["exchange"]
    log.debug("client_left", protocol="http", request_id=exchange.request_id)
    forget_frames([error])
    return _Unsent()


ERROR_HANDLERS = {
    ClientDisconnect: on_left,
    errors.RequestRefused: on_refused,
    BrokerError: on_broker_error,
    HTTPException: on_http_error,
    Exception: on_bug,
}
