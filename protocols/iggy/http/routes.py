"""The paths of Iggy's HTTP API, and the request of the handlers that each stands for.

Paths and answers: apache/iggy, `core/server/src/http` (0.11). Knows no connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
import trio

from braidlog.broker.runtime.steps import run
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.all_dialects import D5
from braidlog.protocols.iggy.commands import carry_out
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.http import bodies as b
from braidlog.protocols.iggy.http import shapes as s
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.reading import reserved
from braidlog.protocols.iggy.topic_options import topic_options

if TYPE_CHECKING:
    from contextlib import ExitStack

    from braidlog.protocols.iggy.context import IggyContext
    from braidlog.protocols.iggy.http.sessions import HttpSession, HttpSessions

POLL_BYTES: Final = 4 * 1024 * 1024  # Of an answer, before Base64 and JSON.
POLL_COPIES: Final = 4  # Memory of an answer in JSON, in copies of the messages.
SCOPES: Final = {"topic": 1, "stream": 2, "user": 3}


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; `body` is JSON unless `content_type` says otherwise."""

    status: int = 204
    body: bytes = b""
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()  # Besides those of every response.


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

    @property
    def stream(self) -> m.Name:
        """Return the stream of the path."""
        return b.name_of(self.path["stream"])

    @property
    def topic(self) -> m.Name:
        """Return the topic of the path."""
        return b.name_of(self.path["topic"])

    @property
    def group(self) -> m.Name:
        """Return the consumer group of the path."""
        return b.name_of(self.path["group"])

    @property
    def user(self) -> m.Name:
        """Return the user of the path; `me` is the caller."""
        if self.path["user"] == "me":
            return self.context.client.user_id or 0
        return b.user_of(self.path["user"])

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
    parts: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.path.strip("/").split("/")))

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


def done(make: Callable[[HttpCall], object], status: int = 204) -> Handler:
    """Return the handler of a request without an answer."""

    async def handler(call: HttpCall) -> Answer:
        await call.ask(make(call))
        return Answer(status)

    return handler


def shown(make: Callable[[HttpCall], object], shape: Callable[[list[Any]], object]) -> Handler:
    """Return the handler of a request whose records are shown."""

    async def handler(call: HttpCall) -> Answer:
        return ok(shape(await call.ask(make(call))))

    return handler


def each(shape: Callable[[Any], object]) -> Callable[[list[Any]], object]:
    """Return a function that shows each record of a list."""
    return lambda records: [shape(record) for record in records]


def first(shape: Callable[[Any], object]) -> Callable[[list[Any]], object]:
    """Return a function that shows the only record."""
    return lambda records: shape(records[0])


async def _root(call: HttpCall) -> Answer:
    return Answer(200, b"Iggy HTTP API of Braidlog", "text/plain")


async def _ping(call: HttpCall) -> Answer:
    return Answer(200, b"pong", "text/plain")


async def _login(call: HttpCall) -> Answer:
    body = b.parsed(call.body, b.Login)
    version = body.version or ""
    await call.ask(u.LoginUser(body.username, body.password, version, body.context or ""))
    return _identity(call)


async def _login_with_token(call: HttpCall) -> Answer:
    await call.ask(u.LoginWithToken(b.parsed(call.body, b.TokenBody).token))
    return _identity(call)


async def _refresh(call: HttpCall) -> Answer:
    """Return a new token for a valid token, which stays valid until its own end."""
    earlier = call.sessions.find(b.parsed(call.body, b.TokenBody).token)
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
    request = b.poll_of(call.query, call.stream, call.topic)
    room = call.held.enter_context(await run(reserved(context, POLL_BYTES * POLL_COPIES)))
    request = replace(request, max_bytes=max(min(room.size // POLL_COPIES, POLL_BYTES), 1))
    answer = await carry_out(context, request)
    return Answer(200, await s.polled_json(answer.records[0], answer.tail))


async def _send(call: HttpCall) -> Answer:
    context = call.context
    context.dialect = D5
    now_us = context.broker.now_us()
    body = b.parsed(call.body, b.SendBody)
    request = await b.sending_of(body, call.stream, call.topic, now_us)
    confirmations = [
        {
            "stream_id": sent.stream_id - 1,
            "topic_id": sent.topic_id - 1,
            "partition_id": sent.partition,
            "base_offset": sent.base_offset,
        }
        for sent in await call.ask(request)
    ]
    return ok({"confirmations": confirmations}, 201)


def _partition(call: HttpCall, default: int | None = None) -> int | None:
    is_given = bool(call.query.get("partition_id"))
    return b.number_of(call.query, "partition_id", 0) if is_given else default


def _store_offset(call: HttpCall) -> object:
    body = b.parsed(call.body, b.Offset)
    offset = b.whole(body.offset, "offset")
    consumer = b.consumer_of(body.consumer_id)
    return m.StoreConsumerOffset(consumer, call.stream, call.topic, body.partition_id, offset)


def _get_offset(call: HttpCall) -> object:
    consumer = b.consumer_of(call.query.get("consumer_id", "1"))
    return m.GetConsumerOffset(consumer, call.stream, call.topic, _partition(call))


def _offset_json(records: list[Any]) -> object:
    (info,) = records
    return {
        "partition_id": info.partition,
        "current_offset": info.current_offset,
        "stored_offset": info.stored_offset,
    }


def _delete_offset(call: HttpCall) -> object:
    consumer = b.consumer_of(call.path["consumer"])
    return m.DeleteConsumerOffset(consumer, call.stream, call.topic, _partition(call))


def _flush(call: HttpCall) -> object:
    if call.path["fsync"] not in ("fsync=true", "fsync=false"):
        raise b.refused("fsync=true or fsync=false is needed")
    partition = b.number_of(call.path, "partition", 0)
    fsync = call.path["fsync"] == "fsync=true"
    return m.FlushUnsavedBuffer(call.stream, call.topic, partition, fsync)


def _create_topic(call: HttpCall) -> object:
    body = b.parsed(call.body, b.TopicBody)
    options = b.options_of(body)
    return m.CreateTopic(call.stream, body.partitions_count, body.name, options=_checked(options))


def _update_topic(call: HttpCall) -> object:
    body = b.parsed(call.body, b.TopicBody)
    options = _checked(b.options_of(body))
    return m.UpdateTopic(call.stream, call.topic, body.name, options=options)


def _checked(options: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """Return options in their own kinds. Raises Refusal."""
    return topic_options(options)


def _create_stream(call: HttpCall) -> object:
    body = b.parsed(call.body, b.NewName)
    return m.CreateStream(body.name, options=_texts(body.options))


def _update_stream(call: HttpCall) -> object:
    body = b.parsed(call.body, b.NewName)
    return m.UpdateStream(call.stream, body.name, options=_texts(body.options))


def _texts(options: Mapping[str, str]) -> dict[str, tuple[int, bytes]] | None:
    return {key: (2, value.encode()) for key, value in options.items()} or None


def _create_user(call: HttpCall) -> object:
    body = b.parsed(call.body, b.NewUser)
    permissions = b.permissions_of(body.permissions)
    status = b.status_of(body.status) or 1
    return u.CreateUser(body.username, body.password, status, permissions)


def _update_user(call: HttpCall) -> object:
    body = b.parsed(call.body, b.UserChange)
    status = b.status_of(body.status)
    return u.UpdateUser(call.user, body.username, status, _texts(body.options))


def _update_permissions(call: HttpCall) -> object:
    body = b.parsed(call.body, b.NewPermissions)
    return u.UpdatePermissions(call.user, b.permissions_of(body.permissions))


def _change_password(call: HttpCall) -> object:
    body = b.parsed(call.body, b.NewPassword)
    return u.ChangePassword(call.user, body.current_password, body.new_password)


def _create_token(call: HttpCall) -> object:
    body = b.parsed(call.body, b.AccessTokenBody)
    return u.CreateToken(body.name, b.whole(body.expiry, "expiry"))


def _create_partitions(call: HttpCall) -> object:
    count = b.parsed(call.body, b.PartitionsBody).partitions_count
    return m.CreatePartitions(call.stream, call.topic, count)


def _delete_partitions(call: HttpCall) -> object:
    count = b.number_of(call.query, "partitions_count", 0)
    return m.DeletePartitions(call.stream, call.topic, count)


def _delete_segments(call: HttpCall) -> object:
    count = b.number_of(call.query, "segments_count", 0)
    partition = b.number_of(call.path, "partition", 0)
    return m.DeleteSegments(call.stream, call.topic, partition, count)


def _create_group(call: HttpCall) -> object:
    return m.CreateGroup(call.stream, call.topic, name=b.parsed(call.body, b.NewName).name)


def _describe_options(call: HttpCall) -> object:
    scope = SCOPES.get(call.path["scope"])
    if scope is None:
        raise b.refused(f"there are options of {', '.join(SCOPES)}")
    return m.DescribeOptions(scope)


async def _snapshot(call: HttpCall) -> Answer:
    raise Refusal(
        ErrorCode.FEATURE_UNAVAILABLE, "snapshots are not served (docs/protocols/iggy.md)"
    )


STREAM, TOPIC = "/streams/{stream}", "/streams/{stream}/topics/{topic}"
OFFSETS, GROUPS = f"{TOPIC}/consumer-offsets", f"{TOPIC}/consumer-groups"
USER, TOKENS = "/users/{user}", "/personal-access-tokens"
PARTITION = f"{TOPIC}/partitions/{{partition}}"


def _groups_rows() -> list[ApiRow]:
    get_group = lambda call: m.GetGroup(call.stream, call.topic, call.group)  # noqa: E731
    return [
        ApiRow("GET", GROUPS, shown(lambda c: m.GetGroups(c.stream, c.topic), each(s.group_json))),
        ApiRow("POST", GROUPS, shown(_create_group, s.group_details)),
        ApiRow("GET", f"{GROUPS}/{{group}}", shown(get_group, s.group_details)),
        ApiRow(
            "DELETE",
            f"{GROUPS}/{{group}}",
            done(lambda c: m.DeleteGroup(c.stream, c.topic, c.group)),
        ),
        ApiRow("GET", OFFSETS, shown(_get_offset, _offset_json)),
        ApiRow("PUT", OFFSETS, done(_store_offset)),
        ApiRow("DELETE", f"{OFFSETS}/{{consumer}}", done(_delete_offset)),
    ]


def _topics_rows() -> list[ApiRow]:
    topics = f"{STREAM}/topics"
    return [
        ApiRow("GET", "/streams", shown(lambda _: m.GetStreams(), each(s.stream_json))),
        ApiRow("POST", "/streams", shown(_create_stream, s.stream_details)),
        ApiRow("GET", STREAM, shown(lambda c: m.GetStream(c.stream), s.stream_details)),
        ApiRow("PUT", STREAM, done(_update_stream)),
        ApiRow("DELETE", STREAM, done(lambda c: m.DeleteStream(c.stream))),
        ApiRow("DELETE", f"{STREAM}/purge", done(lambda c: m.PurgeStream(c.stream))),
        ApiRow("GET", topics, shown(lambda c: m.GetTopics(c.stream), s.topics_json)),
        ApiRow("POST", topics, shown(_create_topic, s.topic_details)),
        ApiRow("GET", TOPIC, shown(lambda c: m.GetTopic(c.stream, c.topic), s.topic_details)),
        ApiRow("PUT", TOPIC, done(_update_topic)),
        ApiRow("DELETE", TOPIC, done(lambda c: m.DeleteTopic(c.stream, c.topic))),
        ApiRow("DELETE", f"{TOPIC}/purge", done(lambda c: m.PurgeTopic(c.stream, c.topic))),
        ApiRow("POST", f"{TOPIC}/partitions", done(_create_partitions, 200)),
        ApiRow("DELETE", f"{TOPIC}/partitions", done(_delete_partitions)),
        ApiRow("DELETE", PARTITION, done(_delete_segments)),
        ApiRow("GET", f"{TOPIC}/messages", _poll),
        ApiRow("POST", f"{TOPIC}/messages", _send),
        ApiRow("GET", f"{TOPIC}/messages/flush/{{partition}}/{{fsync}}", done(_flush, 200)),
    ]


def _users_rows() -> list[ApiRow]:
    return [
        ApiRow("POST", "/users/login", _login, is_public=True),
        ApiRow("POST", "/users/refresh-token", _refresh, is_public=True),
        ApiRow("DELETE", "/users/logout", _logout),
        ApiRow("POST", "/users/logout", _logout),  # Of the web UI.
        ApiRow("GET", "/users", shown(lambda _: u.GetUsers(), each(s.user_json))),
        ApiRow("POST", "/users", shown(_create_user, s.user_details)),
        ApiRow("GET", USER, shown(lambda c: u.GetUser(c.user), s.user_details)),
        ApiRow("PUT", USER, done(_update_user)),
        ApiRow("DELETE", USER, done(lambda c: u.DeleteUser(c.user))),
        ApiRow("PUT", f"{USER}/password", done(_change_password)),
        ApiRow("PUT", f"{USER}/permissions", done(_update_permissions)),
        ApiRow("POST", f"{TOKENS}/login", _login_with_token, is_public=True),
        ApiRow("GET", TOKENS, shown(lambda _: u.GetTokens(), each(s.token_json))),
        ApiRow("POST", TOKENS, shown(_create_token, first(lambda token: {"token": token.token}))),
        ApiRow("DELETE", f"{TOKENS}/{{name}}", done(lambda c: u.DeleteToken(c.path["name"]))),
    ]


def _system_rows() -> list[ApiRow]:
    get_client = lambda c: m.GetClient(b.number_of(c.path, "client", 0))  # noqa: E731
    options = lambda records: [s.option_json(option) for option in records[1:]]  # noqa: E731
    return [
        ApiRow("GET", "/", _root, is_public=True),
        ApiRow("GET", "/ping", _ping, is_public=True),
        ApiRow("GET", "/stats", shown(lambda _: m.GetStats(), first(s.stats_json))),
        ApiRow("GET", "/clients", shown(lambda _: m.GetClients(), each(s.client_json))),
        ApiRow("GET", "/clients/{client}", shown(get_client, s.client_details)),
        ApiRow("GET", "/cluster/metadata", shown(lambda _: m.GetClusterMetadata(), s.cluster_json)),
        ApiRow("GET", "/options/{scope}", shown(_describe_options, options)),
        ApiRow("POST", "/snapshot", _snapshot),
    ]


ROWS: Final = (*_system_rows(), *_users_rows(), *_topics_rows(), *_groups_rows())
DIALECT: Final = V  # Of all requests without messages.


def route(method: str, raw_path: str) -> tuple[ApiRow, dict[str, str]] | set[str]:
    """Return the row of a request with its path's values, else the methods that the path has."""
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    methods = set()
    for row in ROWS:
        values = row.match(parts)
        if values is None:
            continue
        if row.method == method:
            return row, values
        methods.add(row.method)
    return methods
