"""The layer around every request of Iggy's HTTP API: login, limits, bodies and errors.

Knows no path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import h11
import msgspec
import structlog
import trio

from braidlog.broker import errors
from braidlog.broker.access.acting import work_for
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy.context import (
    PROTOCOL,
    TRANSPORT_HTTP,
    ConnectedClient,
    IggyContext,
    ListenerState,
)
from braidlog.protocols.iggy.errors import ErrorCode, Refusal, wire_code
from braidlog.protocols.iggy.http.caller import HttpCaller
from braidlog.protocols.iggy.http.http_forwarding import (
    REQUEST_BYTES_MAX,
    DistantClient,
    ForwardedAnswer,
    ForwardedRequest,
    receive_message,
    receive_size,
    send_message,
    serve_or_forward,
)
from braidlog.protocols.iggy.http.pieces import PIECE_BYTES, AnswerTurns
from braidlog.protocols.iggy.http.routes import DIALECT, Answer, ApiRow, HttpCall, route
from braidlog.protocols.iggy.http.sessions import HttpSession, HttpSessions
from braidlog.protocols.iggy.names import is_known
from braidlog.protocols.iggy.sending import CutMessages
from braidlog.protocols.transport.clients import CLIENT

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.iggy.http.options import IggyHttpOptions

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

log = structlog.get_logger()

REQUESTS_MAX: Final = 256  # That run at once; a request above the limit gets 429.
BODY_BYTES_ALL_MAX: Final = 64 * 1024 * 1024  # Of all running requests together.
QUERY_FIELDS_MAX: Final = 32
RETRY_AFTER_S: Final = 1
REASON_CHARACTERS_MAX: Final = 1000  # Of an error: a reason may repeat a client's name.
METHODS: Final = "GET, POST, PUT, DELETE, OPTIONS"

NOT_FOUND: Final = frozenset(
    {
        *(ErrorCode.STREAM_ID_NOT_FOUND, ErrorCode.STREAM_NAME_NOT_FOUND),
        *(ErrorCode.TOPIC_ID_NOT_FOUND, ErrorCode.TOPIC_NAME_NOT_FOUND),
        *(ErrorCode.PARTITION_NOT_FOUND, ErrorCode.CLIENT_NOT_FOUND, ErrorCode.RESOURCE_NOT_FOUND),
        *(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_NAME_NOT_FOUND),
        *(ErrorCode.GROUP_MEMBER_NOT_FOUND, ErrorCode.CONSUMER_OFFSET_NOT_FOUND),
    }
)
STATUSES: Final = {
    **dict.fromkeys(NOT_FOUND, 404),
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.INVALID_TOKEN: 401,
    ErrorCode.UNAUTHORIZED: 403,
    ErrorCode.NOT_PRIMARY: 503,
    ErrorCode.DISCONNECTED: 503,
    ErrorCode.CONNECTION_CLOSED: 502,
}
FIELDS: Final = {
    ErrorCode.STREAM_ID_NOT_FOUND: "stream_id",
    ErrorCode.INVALID_STREAM_ID: "stream_id",
    ErrorCode.TOPIC_ID_NOT_FOUND: "topic_id",
    ErrorCode.INVALID_TOPIC_ID: "topic_id",
    ErrorCode.PARTITION_NOT_FOUND: "partition_id",
    ErrorCode.CLIENT_NOT_FOUND: "client_id",
    ErrorCode.INVALID_STREAM_NAME: "name",
    ErrorCode.STREAM_NAME_ALREADY_EXISTS: "name",
    ErrorCode.INVALID_TOPIC_NAME: "name",
    ErrorCode.TOPIC_NAME_ALREADY_EXISTS: "name",
    ErrorCode.GROUP_NAME_ALREADY_EXISTS: "name",
    ErrorCode.TOKEN_ALREADY_EXISTS: "name",
    ErrorCode.INVALID_OFFSET: "offset",
    ErrorCode.USER_ALREADY_EXISTS: "username",
}


class HttpRefusal(Exception):
    """A request that HTTP's own rules or limits refuse."""

    def __init__(self, status: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = [*headers]


class IggyHttp:
    """The ASGI application of a listener."""

    def __init__(
        self,
        broker: Broker,
        options: IggyHttpOptions,
        shared: ListenerState,
        *,
        loopback: bool,
        body_bytes_all_max: int = BODY_BYTES_ALL_MAX,
        turns: AnswerTurns | None = None,
    ) -> None:
        """`shared` is the state that the listeners of all transports share; `turns` is for
        tests.
        """
        self._broker = broker
        self._options = options
        self._shared = shared
        self._loopback = loopback
        self._sessions = HttpSessions(options.token_expiry_s, broker.now_us)
        self._running = 0
        self._body_bytes, self._body_bytes_all_max = 0, body_bytes_all_max
        self._turns = turns or AnswerTurns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. A bug is logged, and ends only this request."""
        headers = dict(scope["headers"])
        origin = self._allowed_origin(headers)
        client = scope[CLIENT]
        caller = HttpCaller(self._broker, client, loopback=self._loopback)
        work_for(caller)
        self._running += 1
        with ExitStack() as held:
            held.callback(self._leave)
            try:
                answer = await _outcome(self._answer(scope, headers, caller, receive, held))
            except errors.NotOwner:
                reason = "no broker of the cluster owns the topic now: ask again"
                answer = _refused(ErrorCode.NOT_PRIMARY, reason)
            client.note(caller.principal, scope)
            await _send(send, answer, [*answer.headers, *_cors(origin)])

    async def serve_forwarded(self, stream: trio.SocketStream) -> None:
        """Answer the request of a client of another broker. Raises OSError,
        trio.BrokenResourceError.
        """
        self._running += 1
        with ExitStack() as held:
            held.callback(self._leave)
            size = await receive_size(stream, REQUEST_BYTES_MAX)
            request = await receive_message(stream, size, ForwardedRequest)
            try:
                serve = self._serve_for_another(request, stream, size, held)
                answer = await _outcome(serve)
            except errors.NotOwner:
                await send_message(stream, ForwardedAnswer(is_moved=True))
                return
            body = answer.body or b"".join(answer.pieces)
            fields = answer.status, body, answer.content_type, [*answer.headers]
            await send_message(stream, ForwardedAnswer(False, *fields))

    async def _serve_for_another(
        self, request: ForwardedRequest, stream: trio.SocketStream, size: int, held: ExitStack
    ) -> Answer:
        """Serve a request that another broker has forwarded. Raises as `_serve`."""
        if self._running > REQUESTS_MAX:
            raise _later(429, f"{REQUESTS_MAX} requests are running already")
        self._hold(size, held)
        local = stream.socket.getsockname()
        client = DistantClient(
            request.client_id, request.peer, request.is_encrypted, (str(local[0]), int(local[1]))
        )
        caller = HttpCaller(self._broker, client, loopback=False)
        caller.act_for(request.principal)
        work_for(caller)
        context = self._context(caller, client.id)
        context.client.user_id = request.user_id
        row = route(request.method, request.path)
        if isinstance(row, set):
            raise HttpRefusal(404, "there is no such path at the owner of the topic")
        query, body = request.query, request.body
        call = HttpCall(context, row[1], query, body, self._sessions, None, held, self._turns)
        is_about_topic = "topic" in call.path
        if is_about_topic and not is_known(self._broker, m.GetTopic(call.stream, call.topic)):
            await self._broker.peers.follow()  # The other broker may have a newer catalogue.
        self._count(row[0])
        return await row[0].handler(call)

    def _leave(self) -> None:
        self._running -= 1

    async def _answer(
        self,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        caller: HttpCaller,
        receive: Receive,
        held: ExitStack,
    ) -> Answer:
        """Return the answer to a request. Raises HttpRefusal, and the errors of the handler."""
        await self._broker.poller.give_way()
        if self._running > REQUESTS_MAX:
            raise _later(429, f"{REQUESTS_MAX} requests are running already")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        target = scope["raw_path"].decode("ascii", "replace")
        try:
            row = route(method, target)
        except UnicodeDecodeError:
            raise HttpRefusal(400, "the path is not UTF-8") from None
        if isinstance(row, set):
            if method == "OPTIONS" and row:
                return Answer()
            if row:
                allowed = ", ".join(sorted(row))
                raise HttpRefusal(405, f"{method}: only {allowed} here", [("allow", allowed)])
            raise HttpRefusal(404, "there is no such path")
        return await self._serve(scope, headers, caller, receive, held, *row)

    async def _serve(
        self,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        caller: HttpCaller,
        receive: Receive,
        held: ExitStack,
        row: ApiRow,
        path: Mapping[str, str],
    ) -> Answer:
        client = scope[CLIENT]
        context = self._context(caller, client.id)
        session = None if row.is_public else self._session(headers, caller, context)
        caller.spend(_content_length(headers) or 0)
        limit = row.body_bytes_max(self._options.request_bytes_max)
        body = await self._body(headers, receive, held, limit)
        query, sessions = _query(scope), self._sessions
        call = HttpCall(context, path, query, body, sessions, session, held, self._turns)
        self._count(row)
        target = scope["raw_path"].decode("ascii", "replace")
        return await serve_or_forward(
            call, row, target, (client.id, caller.peer, caller.is_encrypted)
        )

    def _context(self, caller: HttpCaller, client_id: int) -> IggyContext:
        client = ConnectedClient(client_id, caller.peer, TRANSPORT_HTTP)
        context = IggyContext(self._broker, caller, self._options, self._shared, client)
        context.dialect = DIALECT
        return context

    def _count(self, row: ApiRow) -> None:
        number = self._broker.metrics.number
        number("braidlog_requests", "iggy", f"{row.method} {row.path}").inc()

    def _session(
        self, headers: Mapping[bytes, bytes], caller: HttpCaller, context: IggyContext
    ) -> HttpSession:
        """Act for the user of the request's token. Raises NotAuthenticated, Refusal."""
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal(ErrorCode.UNAUTHENTICATED, "a token of POST /users/login is needed")
        session = self._sessions.find(token.strip())
        principal, proof = session.principal, session.proof
        if proof is not None:
            if proof.has_expired(self._broker.now_us()):
                raise Refusal(ErrorCode.UNAUTHENTICATED, "the access token has expired")
            principal = self._broker.authentication.renewed(proof)
        caller.act_for(principal)
        context.client.user_id, context.client.proof = session.user_id, proof
        return session

    async def _body(
        self, headers: Mapping[bytes, bytes], receive: Receive, held: ExitStack, limit: int
    ) -> bytes:
        """Return the request's body, of at most `limit` bytes. Raises HttpRefusal."""
        announced = _content_length(headers)
        if announced is not None and announced > limit:
            raise HttpRefusal(413, f"the body may have {limit} bytes")
        pieces, size = [], 0
        with trio.move_on_after(self._options.request_timeout_s):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise HttpRefusal(400, "the client left within its request")
                piece = message["body"]
                size += len(piece)
                if size > limit:
                    raise HttpRefusal(413, f"the body may have {limit} bytes")
                self._hold(len(piece), held)
                pieces.append(piece)
                if not message["more_body"]:
                    return b"".join(pieces)
        raise HttpRefusal(408, "the body took too long", [("connection", "close")])

    def _hold(self, size: int, held: ExitStack) -> None:
        """Count bytes of a body until the request has ended. Raises HttpRefusal."""
        if not size:
            return
        if self._body_bytes + size > self._body_bytes_all_max:
            raise _later(503, "too many large requests are running")
        self._body_bytes += size
        held.callback(self._release, size)

    def _release(self, size: int) -> None:
        self._body_bytes -= size

    def _allowed_origin(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the origin of the page that asks, if its scripts may read the answer."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = self._options.allowed_origins
        return origin if origin and ("*" in allowed or origin in allowed) else None


async def _outcome(serve: Awaitable[Answer]) -> Answer:
    """Return the answer of a request; errors become answers. A bug is logged. Raises NotOwner."""
    try:
        return await serve
    except HttpRefusal as error:
        return _refusal(error)
    except Refusal as error:
        return _refused(error.code, str(error))
    except errors.NotAuthenticated as error:
        return _refused(ErrorCode.UNAUTHENTICATED, str(error))
    except errors.NotAuthorized:
        return _refused(ErrorCode.UNAUTHORIZED, "")
    except errors.NotOwner:
        raise
    except errors.LimitExceeded as error:
        return _refusal(_later(429, str(error)))
    except (errors.StorageFull, errors.StorageFailed, errors.Conflict) as error:
        return _refusal(_later(503, str(error)))
    except errors.BrokerError as error:
        return _refused(wire_code(error), str(error))
    except CutMessages as error:
        return _refused(ErrorCode.INVALID_FORMAT, str(error))
    except Exception:  # A bug ends this request and nothing else.
        log.exception("request_failed", protocol=PROTOCOL)
        return _error(500, ErrorCode.ERROR, "error", "internal error")


def raw_refusal(status: int) -> Sequence[h11.Event]:
    """Return the answer to a client that sent bytes which are no valid request."""
    answer = _error(status, status, "", "this is not HTTP, or breaks its rules")
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("connection", "close"),
    ]
    response = h11.Response(status_code=status, headers=headers)
    return (response, h11.Data(answer.body), h11.EndOfMessage())


def _refused(code: ErrorCode, reason: str) -> Answer:
    name = code.name.lower()
    return _error(STATUSES.get(code, 400), code, name, reason or name.replace("_", " "))


def _refusal(error: HttpRefusal) -> Answer:
    answer = _error(error.status, error.status, "", str(error))
    return replace(answer, headers=error.headers)


def _error(status: int, number: int, code: str, reason: str) -> Answer:
    """Return an error in Iggy's form."""
    name = code or TEXTS.get(status, "bad_request")
    known = number in ErrorCode.__members__.values()
    body = {
        "id": int(number),
        "code": name,
        "reason": reason[:REASON_CHARACTERS_MAX],
        "field": FIELDS.get(ErrorCode(number)) if code and known else None,
    }
    return Answer(status, msgspec.json.encode(body))


TEXTS: Final = {
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "payload_too_large",
    429: "too_many_requests",
    431: "request_header_fields_too_large",
    503: "service_unavailable",
}


def _later(status: int, reason: str) -> HttpRefusal:
    return HttpRefusal(status, reason, [("retry-after", str(RETRY_AFTER_S))])


def _content_length(headers: Mapping[bytes, bytes]) -> int | None:
    text = headers.get(b"content-length", b"")
    return int(text) if text.isdigit() else None  # h11 has checked the number.


def _query(scope: Scope) -> dict[str, str]:
    """Return the fields of the query. Raises HttpRefusal."""
    text = scope["query_string"].decode("latin-1")
    try:
        fields = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except UnicodeDecodeError:
        raise HttpRefusal(400, "the query is not UTF-8") from None
    except ValueError:
        raise HttpRefusal(400, f"a query has at most {QUERY_FIELDS_MAX} fields") from None
    return dict(fields)


def _cors(origin: str | None) -> list[tuple[str, str]]:
    """Return the headers that let a page's scripts read the answer (Fetch standard, CORS)."""
    if origin is None:
        return []
    return [
        ("access-control-allow-origin", origin),
        ("access-control-allow-methods", METHODS),
        ("access-control-allow-headers", "authorization, content-type"),
        ("access-control-max-age", "600"),
        ("vary", "origin"),
    ]


async def _send(send: Send, answer: Answer, extra: Iterable[tuple[str, str]]) -> None:
    """Send an answer, a large body in pieces; each piece is in memory until it is sent."""
    body, pieces = memoryview(answer.body), answer.pieces
    pieces += [body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES)]
    headers = [(name.encode(), value.encode("latin-1")) for name, value in extra]
    size = sum(map(len, pieces))
    if size:
        headers.append((b"content-type", answer.content_type.encode()))
    if answer.status != 204:
        headers.append((b"content-length", str(size).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    pieces.reverse()
    while len(pieces) > 1:
        await send({"type": "http.response.body", "body": pieces.pop(), "more_body": True})
    last = pieces.pop() if pieces else b""
    await send({"type": "http.response.body", "body": last, "more_body": False})
