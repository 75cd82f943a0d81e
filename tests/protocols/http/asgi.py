"""Drives the HTTP listener's application without a server: a request in, an answer out."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import trio

from braidlog.broker.access.access import Access
from braidlog.broker.cluster.alone import Alone
from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.metrics import Metrics
from braidlog.broker.positions.members import Members
from braidlog.broker.runtime.plain import make_poller
from braidlog.broker.server.admission import Admission


@dataclass
class AsgiResponse:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def scope_of(
    method: str, path: str, headers: dict[str, str] | None = None, scheme: str = "http"
) -> dict[str, Any]:
    raw_path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": raw_path,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
    }


async def call(
    app: Any,
    method: str,
    path: str,
    body: object = None,
    *,
    headers: dict[str, str] | None = None,
    pieces: Iterable[bytes] | None = None,
    silent: bool = False,
    leave: trio.Event | None = None,
    scheme: str = "http",
) -> AsgiResponse:
    """Send a request. `body` is sent as JSON, or `pieces` unchanged; `silent` never
    ends the body.
    """
    if pieces is None:
        pieces = [] if body is None else [json.dumps(body).encode()]
    incoming = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if not silent:
        incoming.append({"type": "http.request", "body": b"", "more_body": False})
    incoming.reverse()
    answer = AsgiResponse()

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        if not incoming and leave is not None:
            await leave.wait()
            return {"type": "http.disconnect"}
        if not incoming:
            await trio.sleep_forever()
        return incoming.pop()

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await app(scope_of(method, path, headers, scheme), receive, send)
    return answer


async def has_room() -> bool:
    return True


class NoTopics:
    """A broker without topics."""

    def all(self) -> list[object]:
        return []


class BareBroker(SimpleNamespace):
    """Equal only to itself, like a broker."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def bare_broker(data_dir: str = "/") -> Any:
    """Return the parts of a broker that the listener needs without requests about topics."""
    metrics, seldom = Metrics(), ThrottledLog()
    return BareBroker(
        version="0.0",
        served_connections=set(),
        next_connection_id=lambda: 1,
        now_us=lambda: 0,
        peers=Alone(),
        access=Access(),
        quotas=SimpleNamespace(of=lambda principal: None),
        authentication=SimpleNamespace(required=False),
        metrics=metrics,
        poller=make_poller(),
        is_leaving=False,
        topics=NoTopics(),
        members=Members(),
        listeners={},
        non_persistent=None,
        data_dir=data_dir,
        ready=trio.Event(),
        stopping=trio.Event(),
        has_room=has_room,
        seldom=seldom,
        close_idle_files=lambda: False,
        admission=Admission(metrics, seldom, limit=lambda: 100),
    )
