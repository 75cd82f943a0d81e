"""The page that answers why a reader does not see a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from braidlog.protocols.http.console.explaining import (
    READER_TITLES,
    READERS,
    Explanation,
    Question,
    explain,
)
from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.shown_messages import MessagesRead
from braidlog.protocols.http.console.visits import API, Page, PageRefused, Visit
from braidlog.protocols.http.errors import INVALID_NAME
from braidlog.protocols.http.management.messages import GroupDetail, PartitionInfo, TopicDetail
from braidlog.protocols.http.management.users import Verdict
from braidlog.protocols.http.pip64.messages import CursorAnswer

UNREADABLE = "unreadable_record"  # The API's code for a record that the broker cannot open.


class ExplainPages:
    """The page, with the broker's time of day."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us

    async def show(self, visit: Visit) -> Page:
        """The form for a question, and the answer if the address names an offset."""
        topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
        chosen: dict[str, Any] = {
            "partition": visit.number("partition", 0),
            "offset": visit.query("offset"),
            "reader": visit.query("reader") or next(iter(READERS)),
            "group": visit.query("group"),
            "user": visit.query("user"),
        }
        if chosen["reader"] not in READERS:
            raise PageRefused(400, f"reader is one of {', '.join(READERS)}")
        if chosen["partition"] >= len(topic.partitions):
            raise PageRefused(404, f"the topic has no partition {chosen['partition']}")
        reasons: list[Explanation] = []
        if chosen["offset"]:
            reasons = explain(await self._question(visit, topic, chosen))
        values = {
            "topic": topic.name,
            "chosen": chosen,
            "readers": READER_TITLES,
            "reasons": reasons,
        }
        return Page("explain.html", values)

    async def _question(self, visit: Visit, topic: TopicDetail, chosen: dict[str, Any]) -> Question:
        """Return the facts of a question. Raises ApiError, PageRefused."""
        question = Question(
            topic,
            topic.partitions[chosen["partition"]],
            visit.number("offset", 0),
            chosen["reader"],
            self._now_us(),
            group_name=chosen["group"],
            user=chosen["user"],
        )
        await _read(visit, question, question.bounds)
        if question.group_name:
            await _find_group(visit, question)
        if question.user:
            await _find_rights(visit, question)
        return question


async def _read(visit: Visit, question: Question, bounds: PartitionInfo) -> None:
    """Read the first message at or after the offset. Raises ApiError."""
    if not bounds.log_start_offset <= question.offset < bounds.high_watermark:
        return
    path = f"/topics/{visit.topic}/partitions/{bounds.partition}/messages"
    query = {"position": question.offset, "timeout": 0, "max_messages": 1, "max_bytes": 1}
    try:
        read = await visit.api.get(path, MessagesRead, **query, exact="true", include_format="true")
    except ApiError as error:
        if error.code != UNREADABLE:
            raise
        question.unreadable = error.message
        return
    question.message = read.messages[0] if read.messages else None


async def _find_group(visit: Visit, question: Question) -> None:
    """Find the group's positions, members and type. Raises ApiError."""
    group = quote(question.group_name, safe="")
    question.group = await visit.api.find(f"{API}/groups/{visit.topic}/{group}", GroupDetail)
    if question.group is None:
        return
    path = f"/topics/{visit.topic}/subscription/{group}/cursor"
    try:
        question.group_type = (await visit.api.get(path, CursorAnswer)).cursor.type
    except ApiError as error:
        if error.code != INVALID_NAME.code:  # A name that no Pulsar client can use.
            raise


async def _find_rights(visit: Visit, question: Question) -> None:
    """Find the right of a user to consume. Raises ApiError."""
    query = {"user": question.user, "action": "consume", "resource": question.topic.name}
    verdict = await visit.api.get(f"{API}/permissions/test", Verdict, **query)
    question.may_consume = verdict.allowed
    question.is_enforced = verdict.enforced
