"""Pages of messages: a search in a topic, a single message, and a download as JSON lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from braidlog.protocols.http.console.expression import BadExpression
from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.places import find_place
from braidlog.protocols.http.console.searching import (
    PARTITIONS_SEARCHED_MAX,
    SEARCHED_MESSAGES_MAX,
    PartitionSearch,
    Search,
    make_filter,
)
from braidlog.protocols.http.console.shown_messages import (
    FORMATS,
    MessagesRead,
    ReadMessage,
    show_row,
)
from braidlog.protocols.http.console.visits import API, Page, PageRefused, Visit
from braidlog.protocols.http.management.messages import PartitionInfo, TopicDetail

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

ROWS_DEFAULT, ROWS_MAX = 50, 200
DOWNLOAD_MESSAGES_MAX, DOWNLOAD_BYTES_MAX = 10_000, 64 * 1024 * 1024
MESSAGE_CHARACTERS_SHOWN = 64 * 1024  # Of a value on the page of a message.
DIGITS = re.compile(r"[0-9]{1,19}")
POSITIONS = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,19})*")


async def show_messages(visit: Visit) -> Page:
    """A search in the messages of one or all partitions; the address holds the whole search."""
    topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
    form = visit.query("as", FORMATS[0])
    if form not in FORMATS:
        raise PageRefused(
            400, f"parameter 'as' must be one of {', '.join(FORMATS)}, not {form[:20]!r}"
        )
    rows_max = max(1, visit.number("rows", ROWS_DEFAULT, ROWS_MAX))
    is_exact = form in ("text", "hex", "base64")
    wanted = message_filter(visit)
    partitions = await _partitions(visit, topic, rows_max)
    search = Search(visit.api, visit.topic, partitions, wanted, is_exact=is_exact)
    begin = [partition.position for partition in partitions]
    matches = [message async for message in search.matches(rows_max, SEARCHED_MESSAGES_MAX)]
    values = {
        "topic": topic.name,
        "rows": [show_row(message, form) for message in matches],
        "partition_count": len(topic.partitions),
        "partitions_max": PARTITIONS_SEARCHED_MAX,
        "searched": {
            "partition": _partition_text(visit, topic),
            "from": visit.query("from", "latest"),
            "contains": visit.query("contains"),
            "where": visit.query("where"),
            "as": form,
            "rows": rows_max,
        },
        "formats": FORMATS,
        "looked_at": search.count,
        "is_filtered": bool(visit.query("contains") or visit.query("where")),
        "percent": round(100 * search.share),
        "next": None if search.is_done else ".".join(map(str, search.positions)),
        "at": ".".join(map(str, begin)),
        "older": _older(partitions, begin, rows_max),
    }
    return Page("messages.html", values)


async def show_message(visit: Visit) -> Page:
    """A message with all its fields."""
    offset, partition = visit.path_params["offset"], visit.path_params["partition"]
    exact = await read_message(visit, partition, offset, is_exact=True)
    shown = await read_message(visit, partition, offset, is_exact=False)
    forms = {form: show_row(exact, form, MESSAGE_CHARACTERS_SHOWN) for form in ("text", "hex")}
    auto = show_row(shown, "auto", MESSAGE_CHARACTERS_SHOWN)
    auto.headers = forms["text"].headers
    values = {
        "topic": visit.topic_name,
        "row": auto,
        "message": exact,
        "schema_version": exact.schema_version,
        "text": forms["text"].value,
        "hex": forms["hex"].value,
        "json": msgspec.json.format(msgspec.json.encode(exact), indent=2).decode()[
            :MESSAGE_CHARACTERS_SHOWN
        ],
    }
    return Page("message.html", values)


async def download(visit: Visit) -> Response:
    """The messages of a search as JSON lines, as `braidlog consume --output ndjson` prints."""
    topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
    # Refuses a user without the right to consume, before the answer begins.
    await visit.api.call("GET", f"{API}/log/{visit.topic}/0")
    search = Search(
        visit.api,
        visit.topic,
        await _partitions(visit, topic, DOWNLOAD_MESSAGES_MAX),
        message_filter(visit),
        is_exact=True,
        bytes_max=DOWNLOAD_BYTES_MAX,
    )
    return _Download(search, topic.name)


async def read_message(visit: Visit, partition: str, offset: str, *, is_exact: bool) -> ReadMessage:
    """Return the message of an offset. Raises ApiError, PageRefused."""
    if not DIGITS.fullmatch(offset):
        raise PageRefused(404, "an offset is a number")
    path = f"/topics/{visit.topic}/partitions/{partition}/messages"
    query: dict[str, Any] = {"position": offset, "timeout": 0, "max_messages": 1, "max_bytes": 1}
    exact = "true" if is_exact else None
    answer = await visit.api.get(path, MessagesRead, **query, exact=exact, include_format="true")
    if not answer.messages or answer.messages[0].offset != int(offset):
        raise PageRefused(404, f"partition {partition} has no message with offset {offset}")
    return answer.messages[0]


def message_filter(visit: Visit) -> Callable[[ReadMessage], bool]:
    """Return the address's condition for messages. Raises PageRefused."""
    try:
        return make_filter(visit.query("contains"), visit.query("where"))
    except BadExpression as error:
        raise PageRefused(400, f"the expression: {error}") from None


async def _partitions(visit: Visit, topic: TopicDetail, rows_max: int) -> Sequence[PartitionSearch]:
    """Return the partitions to search, each from its place on. Raises ApiError, PageRefused."""
    chosen = chosen_partitions(visit, topic)
    at = visit.query("at")
    if at and not POSITIONS.fullmatch(at):
        raise PageRefused(400, "parameter 'at' must be a list of offsets")
    starts = [int(text) for text in at.split(".")] if at else []
    if starts and len(starts) != len(chosen):
        raise PageRefused(
            400, f"parameter 'at' names {len(starts)} partitions, expected {len(chosen)}"
        )
    back = -(-rows_max // len(chosen))
    partitions = []
    for number, bounds in enumerate(chosen):
        start, end = bounds.log_start_offset, bounds.high_watermark
        wanted_offset = (
            starts[number]
            if starts
            else await find_place(visit, bounds, visit.query("from") or "latest", back)
        )
        position = min(max(wanted_offset, start), end)
        partitions.append(PartitionSearch(bounds.partition, start, end, position))
    return partitions


def chosen_partitions(visit: Visit, topic: TopicDetail) -> list[PartitionInfo]:
    """Return the partitions to search. Raises PageRefused."""
    text = _partition_text(visit, topic)
    if text == "all":
        if len(topic.partitions) > PARTITIONS_SEARCHED_MAX:
            raise PageRefused(400, f"choose a partition: at most {PARTITIONS_SEARCHED_MAX} at once")
        return topic.partitions
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise PageRefused(400, f"parameter 'partition' must be all or a number, not {text[:20]!r}")
    if int(text) >= len(topic.partitions):
        raise PageRefused(404, f"the topic has no partition {text}")
    return [topic.partitions[int(text)]]


def _partition_text(visit: Visit, topic: TopicDetail) -> str:
    default = "all" if len(topic.partitions) <= PARTITIONS_SEARCHED_MAX else "0"
    return visit.query("partition") or default


def _older(
    partitions: Sequence[PartitionSearch], begin: Sequence[int], rows_max: int
) -> str | None:
    """Return the positions of the page before; None at the beginning of the log."""
    back = -(-rows_max // len(partitions))
    before = [
        max(position - back, partition.start)
        for partition, position in zip(partitions, begin, strict=True)
    ]
    return ".".join(map(str, before)) if before != list(begin) else None


class _Download(Response):
    """JSON lines, sent while they are read; a failure becomes the last line."""

    def __init__(self, search: Search, topic: str) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", topic)
        disposition = f'attachment; filename="{name}.ndjson"'
        super().__init__(
            headers={"content-disposition": disposition}, media_type="application/x-ndjson"
        )
        del self.headers["content-length"]
        self._search = search
        self._topic = topic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for message in self._search.matches(DOWNLOAD_MESSAGES_MAX, DOWNLOAD_MESSAGES_MAX):
                await send(_body(_line(self._topic, message)))
        except ApiError as error:
            await send(_body(msgspec.json.encode({"error": error.message}) + b"\n"))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(line: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": line, "more_body": True}


def _line(topic: str, message: ReadMessage) -> bytes:
    """Return a message's JSON with its topic in front, in a line."""
    line = msgspec.json.encode(message).replace(b"\n", b" ").replace(b"\r", b" ")
    return b'{"topic":%b,%b\n' % (msgspec.json.encode(topic), line[1:])
