"""The paths of Iggy's HTTP API as a table, each with the request of the handlers, the body and the
answer.

A request's fields come from the variables of the path (`VARIABLES`), from the body, and from the
row. Paths: apache/iggy, `core/server/src/http` (0.11). Knows no connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
import trio

from braidlog.broker.runtime.steps import run
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.all_dialects import D5
from braidlog.protocols.iggy.commands import carry_out
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.http import json_layouts as j
from braidlog.protocols.iggy.http import json_values as v
from braidlog.protocols.iggy.http.json_messages import SendBody, poll_of, polled_parts, sending_of
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.machine import BEFORE_LOGIN_BYTES_MAX
from braidlog.protocols.iggy.reading import reserved

if TYPE_CHECKING:
    from contextlib import ExitStack

    from braidlog.protocols.iggy.context import IggyContext
    from braidlog.protocols.iggy.http.pieces import AnswerTurns
    from braidlog.protocols.iggy.http.sessions import HttpSession, HttpSessions
    from braidlog.storage.formats.api import Buffer

POLL_BYTES: Final = 4 * 1024 * 1024  # Of an answer, before Base64 and JSON.
POLL_COPIES: Final = 4  # Memory of an answer while it is made, in copies of the messages.
# Bodies without messages: a thousand permissions have a quarter of that, and larger bodies would
# hold up other clients while they are read. Before a login as for the binary protocol.
COMMAND_BODY_BYTES_MAX: Final = 512 * 1024
PUBLIC_BODY_BYTES_MAX: Final = BEFORE_LOGIN_BYTES_MAX
SCOPES: Final = {"topic": 1, "stream": 2, "user": 3}


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; `body` is JSON unless `content_type` says otherwise."""

    status: int = 204
    body: bytes = b""
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()  # Besides those of every response.
    # The body in place of `body`: sent one after another, and removed from the list.
    pieces: list[Buffer] = field(default_factory=list)


@dataclass(slots=True)
class HttpCall:
    """A request whose client is known."""

    context: IggyContext
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    sessions: HttpSessions
    session: HttpSession | None
    held: ExitStack  # Closed when the answer is sent.
    turns: AnswerTurns

    @property
    def stream(self) -> m.Name:
        """Return the stream of the path."""
        return v.name_of(self.path["stream"])

    @property
    def topic(self) -> m.Name:
        """Return the topic of the path."""
        return v.name_of(self.path["topic"])

    async def shown(self, parts: Iterable[bytes]) -> Answer:
        """Return an answer in JSON, made in turns with other large answers."""
        return Answer(200, pieces=[*await self.turns.joined(parts)])

    async def ask(self, request: object) -> list[Any]:
        """Carry a request out, and return the records of the answer once it is durable."""
        answer = await carry_out(self.context, request)
        paused_until = trio.current_time() + answer.pause_s
        await self.context.broker.durability.reached(answer.ticket)
        if answer.pause_s > 0:
            await trio.sleep_until(paused_until)
        return answer.records


Handler = Callable[[HttpCall], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class ApiRow:
    """A method of a path."""

    method: str
    path: str
    handler: Handler
    is_public: bool = False  # Served without a login.
    takes_messages: bool = False
    parts: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.path.strip("/").split("/")))

    def body_bytes_max(self, request_bytes_max: int) -> int:
        """Return the limit of the body; `request_bytes_max` is that of all requests."""
        if self.takes_messages:
            return request_bytes_max
        largest = PUBLIC_BODY_BYTES_MAX if self.is_public else COMMAND_BODY_BYTES_MAX
        return min(largest, request_bytes_max)

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the values of the path's variables; None if the path is another."""
        if len(parts) != len(self.parts):
            return None
        values = {}
        for part, expected in zip(parts, self.parts, strict=True):
            if expected.startswith("{"):
                values[expected[1:-1]] = part
            elif part != expected:
                return None
        return values


def ok(value: object, status: int = 200) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, msgspec.json.encode(value))


Source = Callable[[HttpCall], object]


def _number(name: str) -> Source:
    return lambda call: v.number_of(call.path, name, 0)


def _queried(name: str) -> Source:
    return lambda call: v.number_of(call.query, name, 0)


def _user(call: HttpCall) -> m.Name:
    """Return the user of the path; `me` is the caller."""
    if call.path["user"] == "me":
        return call.context.client.user_id or 0
    return v.user_of(call.path["user"])


def _scope(call: HttpCall) -> int:
    scope = SCOPES.get(call.path["scope"])
    if scope is None:
        raise v.refused(f"there are options of {', '.join(SCOPES)}")
    return scope


def _fsync(call: HttpCall) -> bool:
    if call.path["fsync"] not in ("fsync=true", "fsync=false"):
        raise v.refused("fsync=true or fsync=false is needed")
    return call.path["fsync"] == "fsync=true"


def _partition(call: HttpCall) -> int | None:
    is_given = bool(call.query.get("partition_id"))
    return v.number_of(call.query, "partition_id", 0) if is_given else None


# Variables of paths: the request's field, and its value.
VARIABLES: Final[Mapping[str, tuple[str, Source]]] = {
    "stream": ("stream", lambda call: call.stream),
    "topic": ("topic", lambda call: call.topic),
    "group": ("group", lambda call: v.name_of(call.path["group"])),
    "user": ("user", _user),
    "name": ("name", lambda call: call.path["name"]),
    "partition": ("partition", _number("partition")),
    "client": ("client_id", _number("client")),
    "consumer": ("consumer", lambda call: v.consumer_of(call.path["consumer"])),
    "scope": ("scope", _scope),
    "fsync": ("fsync", _fsync),
}


def row(
    method: str,
    path: str,
    request: type[Any],
    show: Callable[[list[Any]], j.JsonRecords] | None = None,
    *,
    body: type[j.RequestBody] | None = None,
    status: int = 204,
    **sources: Source,
) -> ApiRow:
    """Return the row of a request. Without `show` the answer is empty, with `status`."""
    known = set(request.__struct_fields__)

    async def handler(call: HttpCall) -> Answer:
        values = {} if body is None else v.parsed(call.body, body).fields()
        from_path = dict(VARIABLES[variable] for variable in call.path)
        values |= {name: source(call) for name, source in (from_path | sources).items()}
        records = await call.ask(request(**{name: values[name] for name in known & values.keys()}))
        return Answer(status) if show is None else await call.shown(show(records).parts())

    return ApiRow(method, path, handler)


async def _root(call: HttpCall) -> Answer:
    return Answer(200, b"Iggy HTTP API of Braidlog", "text/plain")


async def _ping(call: HttpCall) -> Answer:
    return Answer(200, b"pong", "text/plain")


async def _login(call: HttpCall) -> Answer:
    await call.ask(u.LoginUser(**v.parsed(call.body, j.LoginBody).fields()))
    return _identity(call)


async def _login_with_token(call: HttpCall) -> Answer:
    await call.ask(u.LoginWithToken(v.parsed(call.body, j.TokenBody).token))
    return _identity(call)


async def _refresh(call: HttpCall) -> Answer:
    """Return a new token for a valid token, which stays valid until its own end."""
    earlier = call.sessions.find(v.parsed(call.body, j.TokenBody).token)
    client, caller = call.context.client, call.context.connection
    client.user_id, client.proof = earlier.user_id, earlier.proof
    caller.act_for(earlier.principal)
    if earlier.proof is not None:
        caller.act_for(call.context.broker.authentication.renewed(earlier.proof))
    return _identity(call)


def _identity(call: HttpCall) -> Answer:
    client = call.context.client
    assert client.user_id is not None, "the login succeeded"
    principal = call.context.connection.principal
    token, session = call.sessions.begin(client.user_id, principal, client.proof)
    access = {"token": token, "expiry": session.expires_s}
    return ok({"user_id": client.user_id, "access_token": access})


async def _logout(call: HttpCall) -> Answer:
    if call.session is not None:
        call.sessions.end(call.session)
    return Answer()


async def _poll(call: HttpCall) -> Answer:
    context = call.context
    context.dialect = D5  # Its messages have the fields of the JSON form.
    request = poll_of(call.query, call.stream, call.topic)
    room = call.held.enter_context(await run(reserved(context, POLL_BYTES * POLL_COPIES)))
    request.max_bytes = max(min(room.size // POLL_COPIES, POLL_BYTES), 1)
    await call.turns.wait()
    answer = await carry_out(context, request)
    shown = await call.shown(polled_parts(answer.records[0], answer.tail))
    room.keep(min(room.size, sum(map(len, shown.pieces))))  # The messages are not needed any more.
    return shown


async def _send(call: HttpCall) -> Answer:
    context = call.context
    context.dialect = D5
    now_us = context.broker.now_us()
    body = v.parsed(call.body, SendBody)
    request = await sending_of(body, call.stream, call.topic, now_us)
    confirmations = b"".join(j.each(await call.ask(request)).parts())
    return Answer(201, b'{"confirmations":%b}' % confirmations)


async def _snapshot(call: HttpCall) -> Answer:
    raise Refusal(
        ErrorCode.FEATURE_UNAVAILABLE, "snapshots are not served (docs/protocols/iggy.md)"
    )


STREAM, TOPICS, TOPIC = (
    "/streams/{stream}",
    "/streams/{stream}/topics",
    "/streams/{stream}/topics/{topic}",
)
MESSAGES, PARTITIONS = f"{TOPIC}/messages", f"{TOPIC}/partitions"
OFFSETS, GROUPS = f"{TOPIC}/consumer-offsets", f"{TOPIC}/consumer-groups"
GROUP = f"{GROUPS}/{{group}}"
USER, TOKENS = "/users/{user}", "/personal-access-tokens"

ROWS: Final = (
    ApiRow("GET", "/", _root, is_public=True),
    ApiRow("GET", "/ping", _ping, is_public=True),
    row("GET", "/stats", m.GetStats, j.details),
    row("GET", "/clients", m.GetClients, j.each),
    row("GET", "/clients/{client}", m.GetClient, j.details),
    row("GET", "/cluster/metadata", m.GetClusterMetadata, j.cluster),
    row("GET", "/options/{scope}", m.DescribeOptions, j.each),
    ApiRow("POST", "/snapshot", _snapshot),
    ApiRow("POST", "/users/login", _login, is_public=True),
    ApiRow("POST", "/users/refresh-token", _refresh, is_public=True),
    ApiRow("DELETE", "/users/logout", _logout),
    ApiRow("POST", "/users/logout", _logout),  # Of the web UI.
    row("GET", "/users", u.GetUsers, j.each),
    row("POST", "/users", u.CreateUser, j.details, body=j.NewUser),
    row("GET", USER, u.GetUser, j.details),
    row("PUT", USER, u.UpdateUser, body=j.UserChange),
    row("DELETE", USER, u.DeleteUser),
    row("PUT", f"{USER}/password", u.ChangePassword, body=j.NewPassword),
    row("PUT", f"{USER}/permissions", u.UpdatePermissions, body=j.NewPermissions),
    ApiRow("POST", f"{TOKENS}/login", _login_with_token, is_public=True),
    row("GET", TOKENS, u.GetTokens, j.each),
    row("POST", TOKENS, u.CreateToken, j.details, body=j.AccessTokenBody),
    row("DELETE", f"{TOKENS}/{{name}}", u.DeleteToken),
    row("GET", "/streams", m.GetStreams, j.each),
    row("POST", "/streams", m.CreateStream, j.details, body=j.NameBody),
    row("GET", STREAM, m.GetStream, j.details),
    row("PUT", STREAM, m.UpdateStream, body=j.NameBody),
    row("DELETE", STREAM, m.DeleteStream),
    row("DELETE", f"{STREAM}/purge", m.PurgeStream),
    row("GET", TOPICS, m.GetTopics, j.each),
    row("POST", TOPICS, m.CreateTopic, j.details, body=j.TopicBody),
    row("GET", TOPIC, m.GetTopic, j.details),
    row("PUT", TOPIC, m.UpdateTopic, body=j.TopicBody),
    row("DELETE", TOPIC, m.DeleteTopic),
    row("DELETE", f"{TOPIC}/purge", m.PurgeTopic),
    row("POST", PARTITIONS, m.CreatePartitions, body=j.PartitionsBody, status=200),
    row("DELETE", PARTITIONS, m.DeletePartitions, count=_queried("partitions_count")),
    row(
        *("DELETE", f"{PARTITIONS}/{{partition}}", m.DeleteSegments),
        count=_queried("segments_count"),
    ),
    ApiRow("GET", MESSAGES, _poll),
    ApiRow("POST", MESSAGES, _send, takes_messages=True),
    row("GET", f"{MESSAGES}/flush/{{partition}}/{{fsync}}", m.FlushUnsavedBuffer, status=200),
    row("GET", GROUPS, m.GetGroups, j.each),
    row("POST", GROUPS, m.CreateGroup, j.details, body=j.NameBody),
    row("GET", GROUP, m.GetGroup, j.details),
    row("DELETE", GROUP, m.DeleteGroup),
    row(
        *("GET", OFFSETS, m.GetConsumerOffset, j.details),
        consumer=lambda call: v.consumer_of(call.query.get("consumer_id", "1")),
        partition=_partition,
    ),
    row("PUT", OFFSETS, m.StoreConsumerOffset, body=j.OffsetBody),
    row("DELETE", f"{OFFSETS}/{{consumer}}", m.DeleteConsumerOffset, partition=_partition),
)
DIALECT: Final = V  # Of all requests without messages.


def route(method: str, raw_path: str) -> tuple[ApiRow, dict[str, str]] | set[str]:
    """Return the row of a request with its path's values, else the methods that the path has.

    Raises UnicodeDecodeError for a part that is not UTF-8: a replacement could name another thing.
    """
    parts = [unquote_to_bytes(part).decode() for part in raw_path.strip("/").split("/")]
    methods = set()
    for api_row in ROWS:
        values = api_row.match(parts)
        if values is None:
            continue
        if api_row.method == method:
            return api_row, values
        methods.add(api_row.method)
    return methods
