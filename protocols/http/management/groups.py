"""`/api/v1/groups`: positions of Kafka groups, Pulsar subscriptions and Iggy consumers by name.

Knows bodies and the broker, no connection and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import NotAuthorized
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import GROUP_BUSY, RequestRefused
from braidlog.protocols.http.management import messages
from braidlog.protocols.http.management.backlog_ages import Ages
from braidlog.protocols.http.management.libraries import known_libraries
from braidlog.protocols.http.path_names import (
    decoded_group,
    group_name,
    group_text,
    parsed_topic,
    topic_name,
)
from braidlog.protocols.http.query import page_limit
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.routes import seen_by
from braidlog.protocols.http.turns import (
    CHANGED,
    SORTED_TOGETHER,
    backlog_of,
    first_by,
    first_topics,
)

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.topic import Topic

SORTS: Final = ("topic", "lag")
RANGES_TOLD_MAX = 100  # Of a partition; a Shared subscription can have very many ranges.


class GroupsApi:
    """Handlers of a broker's groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def list_groups(self, request: Request) -> Response:
        """A page of groups by topic and name: `?topic=`, `?group=`, `?contains=` (a part of the
        name), `?sort=topic` or `lag` (the largest first), `?after=`, `?limit=`, `?ages=true` (ages
        of unread records too).

        A page by topic ends with a whole topic, so the page may exceed the limit. The page shows
        the groups that the client may see.
        """
        limit = page_limit(request)
        group_text = request.query_params.get("group")
        wanted = None if group_text is None else decoded_group(request, group_text.encode())
        is_seen = _containing(seen_by(self._broker, request), request.query_params.get("contains"))
        ages = _ages(request)
        if query.choice(request, "sort", SORTS) == "lag":
            return await self._by_lag(request, limit, wanted, is_seen)
        groups: list[messages.GroupSummary] = []
        last: str | None = None
        async for topic in in_turns(await self._topics(request)):
            if len(groups) >= limit:
                return json_response(messages.GroupPage(groups, next=last))
            with _leaving_out_changed(request):
                groups += await summarize_groups(self._broker, topic, wanted, is_seen, ages)
            last = topic.name.full
        return json_response(messages.GroupPage(groups, next=None))

    async def _by_lag(
        self,
        request: Request,
        limit: int,
        wanted: bytes | None,
        is_seen: Callable[[Resource], bool],
    ) -> Response:
        """Return a page of the groups with the largest lags. Only their ages are read."""
        before, broker = query.entries_before(request), self._broker
        lags: list[tuple[int, str, bytes]] = []
        async for topic in in_turns(await self._topics(request, by_name=False)):
            with _leaving_out_changed(request):
                lags += await _lags(broker, topic, wanted, is_seen)
        most = await first_by(lags, lambda lag: lag, before + limit + 1, SORTED_TOGETHER)
        ages = _ages(request)
        groups: list[messages.GroupSummary] = []
        for _, full, name in most[before : before + limit]:
            listed = broker.topics.find(parsed_topic(full))
            if listed is not None:  # Otherwise deleted meanwhile.
                with _leaving_out_changed(request):
                    groups += await summarize_groups(broker, listed, name, ages=ages)
        more = str(before + limit) if len(most) > before + limit else None
        return json_response(messages.GroupPage(groups, more))

    async def show(self, request: Request) -> Response:
        """A group of a topic, with its position in each partition; `?ages=true` adds the ages of
        unread records. Raises SubscriptionNotFound.
        """
        topic = self._broker.topics.get(topic_name(request))
        subscription = self._broker.subscriptions.get(topic, group_name(request))
        numbers = range(len(topic.partitions))
        positions = [_position(subscription, index) async for index in in_turns(numbers)]
        ages = _ages(request)
        if ages is not None:
            for position in positions:
                index = position.partition
                position.oldest_s = await _oldest_s(self._broker, ages, subscription, index)
        group, encoding = group_text(subscription.name)
        members = self._broker.members.of(topic, subscription.name)
        open_now = (*self._broker.connections, *self._broker.served_connections)
        libraries = await known_libraries(open_now) if members else {}
        detail = messages.GroupDetail(
            topic=topic.name.full,
            group=group,
            encoding=encoding,
            backlog=sum(position.backlog for position in positions),
            partitions=positions,
            members=[
                messages.GroupMember(
                    member.protocol,
                    member.name,
                    member.address,
                    list(member.partitions),
                    libraries.get((member.protocol, member.address), ""),
                )
                for member in members
            ],
        )
        return json_response(detail)

    async def delete(self, request: Request) -> Response:
        """Delete a group on a topic; with `?force=true` even while it has members."""
        topic = self._broker.topics.get(topic_name(request))
        subscription = self._broker.subscriptions.get(topic, group_name(request))
        members = self._broker.members.of(topic, subscription.name)
        if members and not query.truth(request, ("force",)):
            member = members[0]
            text = f"the group has {len(members)} members, as {member.protocol} {member.name!r}"
            raise RequestRefused(GROUP_BUSY, f"{text}: stop them first")
        await self._broker.durability.reached(subscription.delete())
        return Response(status_code=204)

    async def _topics(self, request: Request, *, by_name: bool = True) -> Sequence[Topic]:
        """Return the topics whose groups the request asks for. Raises NotAuthorized."""
        topics = self._broker.topics
        topic_text = request.query_params.get("topic")
        if topic_text is not None:
            name = parsed_topic(topic_text)
            if not seen_by(self._broker, request)(Resource.of_topic(name)):
                raise NotAuthorized(f"topic {name} may not be seen")
            return [topics.get(name)]
        with_groups = set(self._broker.subscriptions.cursors.topic_ids())
        every = [topic for topic in topics.all() if topic.meta.topic_id in with_groups]
        if not by_name:
            return every
        after = request.query_params.get("after", "")
        return await first_topics(every, lambda topic: topic.name.full > after, len(every))


def _leaving_out_changed(request: Request) -> AbstractContextManager[None]:
    """Leave out a topic that changes during a walk; a client that names a topic gets the error."""
    return suppress(*(() if "topic" in request.query_params else CHANGED))


async def _lags(
    broker: Broker, topic: Topic, wanted: bytes | None, is_seen: Callable[[Resource], bool]
) -> list[tuple[int, str, bytes]]:
    """Return (negative backlog, topic, name) of each group of a topic that `is_seen` allows, or
    only of `wanted`.
    """
    lags = []
    for name in broker.subscriptions.names(topic) if wanted is None else [wanted]:
        subscription = broker.subscriptions.find(topic, name)
        if subscription is not None and is_seen(Resource.of_group(name, topic.name)):
            lags.append((-await backlog_of(subscription), topic.name.full, name))
    return lags


async def summarize_groups(
    broker: Broker,
    topic: Topic,
    wanted: bytes | None = None,
    is_seen: Callable[[Resource], bool] = lambda _: True,
    ages: Ages | None = None,
) -> list[messages.GroupSummary]:
    """Return a summary of each group of a topic that `is_seen` allows, or only of `wanted` if
    present.
    """
    names = broker.subscriptions.names(topic) if wanted is None else [wanted]
    summaries: list[messages.GroupSummary] = []
    async for name in in_turns(names):
        subscription = broker.subscriptions.find(topic, name)
        if not is_seen(Resource.of_group(name, topic.name)):
            continue
        if subscription is not None:  # Otherwise deleted meanwhile.
            summaries.append(await _summary(subscription))
            if ages is not None:
                summaries[-1].oldest_s = await _oldest_of_all_s(broker, ages, subscription)
    return summaries


def _ages(request: Request) -> Ages | None:
    """Return a reader of ages if the request wants ages. Raises RequestRefused."""
    return Ages() if query.truth(request, ("ages",)) else None


def _containing(
    is_seen: Callable[[Resource], bool], part: str | None
) -> Callable[[Resource], bool]:
    """Return `is_seen` for groups with a text in their names."""
    if not part:
        return is_seen
    wanted = part.encode()
    return lambda resource: wanted in resource.group and is_seen(resource)


async def _oldest_of_all_s(broker: Broker, ages: Ages, subscription: Subscription) -> float | None:
    """Return the age of a group's oldest unread record in all partitions; None if an age is
    unknown.
    """
    oldest = 0.0
    async for index in in_turns(range(len(subscription.topic.partitions))):
        age = await _oldest_s(broker, ages, subscription, index)
        if age is None:
            return None
        oldest = max(oldest, age)
    return oldest


async def _oldest_s(
    broker: Broker, ages: Ages, subscription: Subscription, index: int
) -> float | None:
    """Return the age of the oldest unread record of a partition: of its batch, by append time."""
    if not subscription.backlog(index):
        return 0.0
    partition = subscription.topic.partition(index)
    since_us = await ages.since_us(partition, subscription.position(index))
    return None if since_us is None else max(broker.now_us() - since_us, 0) / 1_000_000


async def _summary(subscription: Subscription) -> messages.GroupSummary:
    group, encoding = group_text(subscription.name)
    return messages.GroupSummary(
        topic=subscription.topic.name.full,
        group=group,
        encoding=encoding,
        partitions=len(subscription.topic.partitions),
        backlog=await backlog_of(subscription),
    )


def _position(subscription: Subscription, index: int) -> messages.GroupPosition:
    partition = subscription.topic.partition(index)
    ranges = subscription.acked(index)
    return messages.GroupPosition(
        partition=index,
        position=subscription.position(index),
        acknowledged=[(start, end - 1) for start, end in islice(ranges, RANGES_TOLD_MAX)],
        acknowledged_ranges=len(ranges),
        backlog=subscription.backlog(index),
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
    )
