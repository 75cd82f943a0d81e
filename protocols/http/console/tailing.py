"""A live tail: new messages of a topic as server-sent events, until the browser leaves.

A look each second reads the end of each partition that grew. Messages between two looks that are
too many to show are skipped and counted, so a tail of a busy topic costs no more than of a quiet
one. No subscription, no position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from starlette.responses import Response

from braidlog.protocols.http.console.inside import ApiError, InnerApi
from braidlog.protocols.http.console.message_pages import chosen_partitions, message_filter
from braidlog.protocols.http.console.rendering import visible, when
from braidlog.protocols.http.console.searching import PARTITIONS_SEARCHED_MAX
from braidlog.protocols.http.console.shown_messages import (
    MessagesRead,
    ReadMessage,
    ShownContent,
    show_row,
    time_us,
)
from braidlog.protocols.http.console.visits import API, Page, PageRefused, Visit
from braidlog.protocols.http.management.messages import PartitionInfo, TopicDetail
from braidlog.protocols.http.waiting import disconnected

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

TAILS_MAX = 50  # Open tails of a listener; each costs some ms of processor time a second.
LOOK_S = 1.0
TAIL_MESSAGES_MAX = 50  # Of a partition at a look.
TAIL_BYTES_MAX = 256 * 1024


class Tails:
    """The open live tails of a listener."""

    def __init__(self, stopping: trio.Event) -> None:
        self._stopping = stopping
        self._count = 0

    async def show(self, visit: Visit) -> Page:
        """The page, whose script opens the stream."""
        topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
        searched = {name: visit.query(name) for name in ("partition", "contains", "where")}
        if not searched["partition"]:
            few = len(topic.partitions) <= PARTITIONS_SEARCHED_MAX
            searched["partition"] = "all" if few else "0"
        message_filter(visit)  # Names a mistake in the condition on the page.
        values = {
            "topic": topic.name,
            "partition_count": len(topic.partitions),
            "partitions_max": PARTITIONS_SEARCHED_MAX,
            "searched": searched,
        }
        return Page("tail.html", values)

    async def stream(self, visit: Visit) -> Response:
        """The events. Raises ApiError, PageRefused."""
        if self._count >= TAILS_MAX:
            raise PageRefused(429, f"{TAILS_MAX} live tails are open already")
        topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
        chosen = chosen_partitions(visit, topic)
        await visit.api.call("GET", f"{API}/log/{visit.topic}/{chosen[0].partition}")
        wanted = message_filter(visit)
        grows = (visit.query("partition") or "all") == "all"
        tail = Tail(visit.api.lasting(), visit.topic, chosen, wanted, grows=grows)
        return _Events(visit, tail, self)

    async def run(self, visit: Visit, tail: Tail, send: Send) -> None:
        """Send events until the listener stops or the sign-in ends."""
        self._count += 1
        try:
            with visit.request.scope["exchange"].waiting():
                while not self._stopping.is_set() and visit.is_current():
                    await send(_body(b"".join(await tail.look()) or b": nothing yet\n\n"))
                    with trio.move_on_after(LOOK_S):
                        await self._stopping.wait()
        finally:
            self._count -= 1


class Tail:
    """The state of a live tail: the next offset of each partition."""

    def __init__(
        self,
        api: InnerApi,
        topic: str,
        partitions: list[PartitionInfo],
        wanted: Callable[[ReadMessage], bool],
        *,
        grows: bool,
    ) -> None:
        """`grows` adds the partitions that the topic gets meanwhile, from their first message."""
        self._api = api
        self._grows = grows
        self._topic = topic
        self._wanted = wanted
        self._next = {bounds.partition: bounds.high_watermark for bounds in partitions}
        self.skipped = 0

    async def look(self) -> list[bytes]:
        """Return the events of new messages, in the order of their times. Raises ApiError."""
        topic = await self._api.get(f"{API}/topics/{self._topic}", TopicDetail)
        messages: list[ReadMessage] = []
        skipped = self.skipped
        for bounds in topic.partitions:
            offset = self._next.get(bounds.partition)
            if offset is None and self._grows and len(self._next) < PARTITIONS_SEARCHED_MAX:
                offset = self._next[bounds.partition] = bounds.log_start_offset
            if offset is not None and offset < bounds.high_watermark:
                messages += await self._read(bounds.partition, offset, bounds.high_watermark)
        messages = [message for message in messages if self._wanted(message)]
        events = [_event(message) for message in sorted(messages, key=time_us)]
        if self.skipped != skipped:
            events.append(b"event: skipped\ndata: %d\n\n" % self.skipped)
        return events

    async def _read(self, partition: int, offset: int, end: int) -> list[ReadMessage]:
        first = max(offset, end - TAIL_MESSAGES_MAX)
        answer = await self._api.get(
            f"/topics/{self._topic}/partitions/{partition}/messages",
            MessagesRead,
            position=first,
            timeout=0,
            max_messages=TAIL_MESSAGES_MAX,
            max_bytes=TAIL_BYTES_MAX,
        )
        self._next[partition] = end
        messages = [message for message in answer.messages if (message.offset or 0) < end]
        self.skipped += first - offset + max(end - max(answer.next_offset, first), 0)
        return messages


class _Events(Response):
    """The answer: events without end."""

    media_type = "text/event-stream"

    def __init__(self, visit: Visit, tail: Tail, tails: Tails) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._visit, self._tail, self._tails = visit, tail, tails

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the browser leaves; an error of the API is the last event."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        failure: ApiError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, self._visit.request, nursery.cancel_scope)
            try:
                await self._tails.run(self._visit, self._tail, send)
            except ApiError as error:  # Sent below: from here it would be in a group.
                failure = error
            nursery.cancel_scope.cancel()
        text = "the tail has ended" if failure is None else failure.message
        last = b"event: ended\ndata: %b\n\n" % msgspec.json.encode(text)
        await send({**_body(last), "more_body": False})


async def _watch(request: Request, scope: trio.CancelScope) -> None:
    """Cancel the scope when the browser has left."""
    await disconnected(request)
    scope.cancel()


def _body(events: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": events, "more_body": True}


def _event(message: ReadMessage) -> bytes:
    """Return a message as an event; its texts are for `textContent`, never for markup."""
    row = show_row(message, "auto")
    shown = {
        "partition": row.partition,
        "offset": row.offset,
        "time": when(row.time_us),
        "key": _text(row.key),
        "value": _text(row.value),
        "headers": "\n".join(f"{visible(name)} = {_text(text)}" for name, text, _ in row.headers),
    }
    return b"data: %b\n\n" % msgspec.json.encode(shown)


def _text(content: ShownContent) -> str:
    return f"({content.kind})" if content.kind in ("null", "empty") else visible(content.text)
