"""Rows of Iggy's HTTP API: every path with each of its methods, after a login."""

import json
import time
from collections.abc import Iterator

from braidlog.broker.access.rights import ANONYMOUS
from braidlog.protocols.iggy.http.sessions import HttpSessions
from conformance.hostile.mutation import HTTP
from conformance.hostile.rows import CommandRow, ConnectionKind, Protocol, SessionField

Row = tuple[str, str, object]

STREAM, TOPIC = "/streams/hostile", "/streams/default/topics/hostile"
HEADER = {"key": {"kind": "string", "value": "aw=="}, "value": {"kind": "bool", "value": "AQ=="}}
MESSAGE = {"id": 7, "payload": "aGVsbG8=", "user_headers": [HEADER]}
RIGHTS = {"global": {"read_servers": True}, "streams": {"0": {"topics": {"0": {}}}}}
USER = {"username": "hostile", "password": "secret", "status": "active", "permissions": RIGHTS}
TOPIC_BODY = {
    "name": "hostile-iggy-http",
    "partitions_count": 1,
    "compression_algorithm": "none",
    "message_expiry": 0,
    "max_topic_size": 0,
    "options": {"segment_size": "128 MiB"},
}
TOKEN_POS = 400  # In each frame: the head before has this size.
TOKEN_BYTES = len(HttpSessions(60.0, lambda: time.time_ns() // 1000).begin(0, ANONYMOUS, None)[0])
SESSION = SessionField(
    answer_pos=0,
    frame_pos=TOKEN_POS,
    size=TOKEN_BYTES,
    after=b'"token":"',
)


def request(method: str, target: str, body: object = None) -> bytes:
    """Return a request with room for the token at TOKEN_POS."""
    data = b"" if body is None else json.dumps(body).encode()
    line, end = f"{method} {target} HTTP/1.1\r\n", "\r\nAuthorization: Bearer "
    head = f"{line}Host: broker\r\nContent-Length: {len(data)}\r\nX-Room: "
    head += "x" * (TOKEN_POS - len(head) - len(end)) + end
    assert len(head) == TOKEN_POS, target
    return head.encode() + b"t" * TOKEN_BYTES + b"\r\n\r\n" + data


def protocol() -> Protocol:
    """Return the attack on the listener."""
    login = {"username": "iggy", "password": "iggy"}
    commands = [
        CommandRow(f"{method} {target}", request(method, target, body))
        for method, target, body in _rows()
    ]
    opening = [request("POST", "/users/login", login)]
    talk = ConnectionKind(HTTP, opening, ["POST /users/login"], commands, SESSION)
    return Protocol("iggy-http", [talk], counted_as="iggy")


def _rows() -> Iterator[Row]:
    yield from _system_rows()
    yield from _topic_rows()
    messages, offsets = f"{TOPIC}/messages", f"{TOPIC}/consumer-offsets"
    groups = f"{TOPIC}/consumer-groups"
    yield "POST", messages, {"partitioning": {"kind": "balanced"}, "messages": [MESSAGE]}
    key = {"kind": "messages_key", "value": "aw=="}
    yield "POST", messages, {"partitioning": key, "messages": [MESSAGE] * 3}
    yield "GET", f"{messages}?consumer_id=h&partition_id=0&kind=next&count=9&auto_commit=true", None
    yield "GET", f"{messages}?kind=timestamp&value=1700000000000000", None
    yield "GET", f"{messages}/flush/0/fsync=true", None
    yield "PUT", offsets, {"consumer_id": "h", "partition_id": 0, "offset": 0}
    yield "GET", f"{offsets}?consumer_id=h&partition_id=0", None
    yield "DELETE", f"{offsets}/h?partition_id=0", None
    yield "POST", groups, {"name": "hostile-http"}
    yield "GET", groups, None
    yield "GET", f"{groups}/hostile-http", None
    yield "DELETE", f"{groups}/hostile-http", None


def _system_rows() -> Iterator[Row]:
    paths = ("/", "/ping", "/stats", "/clients", "/clients/1", "/cluster/metadata")
    for path in (*paths, "/options/topic", "/users", "/users/me", "/personal-access-tokens"):
        yield "GET", path, None
    yield "POST", "/snapshot", {}
    yield "POST", "/users/login", {"username": "nobody", "password": "wrong"}
    yield "POST", "/users/refresh-token", {"token": "x.y.z"}
    yield "POST", "/users", USER
    yield "PUT", "/users/hostile", {"username": "hostile2", "status": "inactive"}
    yield "PUT", "/users/hostile/permissions", {"permissions": RIGHTS}
    yield "PUT", "/users/hostile/password", {"current_password": "a", "new_password": "secret"}
    yield "DELETE", "/users/hostile", None
    yield "POST", "/personal-access-tokens", {"name": "hostile", "expiry": 60_000_000}
    yield "POST", "/personal-access-tokens/login", {"token": "none"}
    yield "DELETE", "/personal-access-tokens/hostile", None
    yield "POST", "/users/logout", None
    yield "DELETE", "/users/logout", None
    yield "OPTIONS", "/streams", None


def _topic_rows() -> Iterator[Row]:
    topic = f"{STREAM}/topics/hostile-iggy-http"
    yield "GET", "/streams", None
    yield "POST", "/streams", {"name": "hostile", "options": {}}
    yield "GET", STREAM, None
    yield "PUT", STREAM, {"name": "hostile"}
    yield "GET", f"{STREAM}/topics", None
    yield "POST", f"{STREAM}/topics", TOPIC_BODY
    yield "GET", topic, None
    yield "PUT", topic, TOPIC_BODY
    yield "POST", f"{topic}/partitions", {"partitions_count": 1}
    yield "DELETE", f"{topic}/partitions?partitions_count=1", None
    yield "DELETE", f"{topic}/partitions/0?segments_count=1", None
    yield "DELETE", f"{topic}/purge", None
    yield "DELETE", topic, None
    yield "DELETE", f"{STREAM}/purge", None
    yield "DELETE", STREAM, None
