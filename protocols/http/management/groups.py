"""`/api/v1/groups`: positions of Kafka groups, Pulsar subscriptions and Iggy consumers by name.

Knows bodies and the broker, no connection and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import NotAuthorized
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import GROUP_BUSY, RequestRefused
from braidlog.protocols.http.management import messages
from braidlog.protocols.http.management.backlog_ages import Ages
from braidlog.protocols.http.management.joined import (
    EMPTY,
    STABLE,
    GroupStanding,
    LiveGroups,
    joined_groups,
    members_of,
)
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
        joined = await joined_groups(self._broker, wanted)
        if query.choice(request, "sort", SORTS) == "lag":
            return await self._by_lag(request, limit, wanted, is_seen, joined)
        groups = _without_topic(request, joined, is_seen)
        last: str | None = None
        async for topic in in_turns(await self._topics(request, joined)):
            if len(groups) >= limit and last is not None:
                return _page(groups, last, joined)
            with _leaving_out_changed(request):
                groups += await summarize_groups(self._broker, topic, joined, wanted, is_seen, ages)
            last = topic.name.full
        return _page(groups, None, joined)

    async def _by_lag(
        self,
        request: Request,
        limit: int,
        wanted: bytes | None,
        is_seen: Callable[[Resource], bool],
        joined: LiveGroups,
    ) -> Response:
        """Return a page of the groups with the largest lags; groups without a position come last.
        Only the ages of the page's groups are read.
        """
        before, broker = query.entries_before(request), self._broker
        lags: list[tuple[int, str, bytes]] = []
        async for topic in in_turns(await self._topics(request, joined, by_name=False)):
            with _leaving_out_changed(request):
                lags += await _lags(broker, topic, joined, wanted, is_seen)
        most = await first_by(lags, lambda lag: lag, before + limit + 1, SORTED_TOGETHER)
        ages = _ages(request)
        groups: list[messages.GroupSummary] = []
        for _, full, name in most[before : before + limit]:
            listed = broker.topics.find(parsed_topic(full))
            if listed is not None:  # Otherwise deleted meanwhile.
                with _leaving_out_changed(request):
                    groups += await summarize_groups(broker, listed, joined, name, ages=ages)
        if len(most) > before + limit:
            return _page(groups, str(before + limit), joined)
        return _page([*groups, *_without_topic(request, joined, is_seen)], None, joined)

    async def show(self, request: Request) -> Response:
        """A group of a topic, with its position in each partition; `?ages=true` adds the ages of
        unread records. Raises SubscriptionNotFound.
        """
        broker = self._broker
        topic = broker.topics.get(topic_name(request))
        name = group_name(request)
        members, silent = await members_of(broker, topic, name)
        joined = await joined_groups(broker, name)
        subscription = broker.subscriptions.find(topic, name)
        if subscription is None and not members and name not in joined.names(topic):
            subscription = broker.subscriptions.get(topic, name)
        numbers = range(len(topic.partitions))
        positions = [_position(topic, subscription, i) async for i in in_turns(numbers)]
        ages = _ages(request)
        if ages is not None:
            for position in positions:
                index = position.partition
                position.oldest_s = await _oldest_s(broker, ages, subscription, index)
        group, encoding = group_text(name)
        open_now = (*broker.connections, *broker.served_connections)
        libraries = await known_libraries(open_now) if members else {}
        standing = joined.standing(broker, topic, name)
        lags = [position.backlog for position in positions if position.backlog is not None]
        detail = messages.GroupDetail(
            topic=topic.name.full,
            group=group,
            encoding=encoding,
            backlog=None if subscription is None else sum(lags),
            state=standing.state if standing.state != EMPTY or not members else STABLE,
            type=standing.kind,
            protocol_type=standing.member_protocol,
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
            silent_brokers=sorted({*silent, *joined.silent_brokers}),
        )
        return json_response(detail)

    async def delete(self, request: Request) -> Response:
        """Delete a group on a topic; with `?force=true` even while it has members, also members at
        a broker that does not answer.
        """
        broker = self._broker
        topic = broker.topics.get(topic_name(request))
        name = group_name(request)
        members, silent = await members_of(broker, topic, name)
        if not query.truth(request, ("force",)):
            if members:
                member = members[0]
                text = f"the group has {len(members)} members, as {member.protocol} {member.name!r}"
                raise RequestRefused(GROUP_BUSY, f"{text}: stop them first")
            if silent:
                text = f"broker {silent[0]} does not tell whether the group has members"
                raise RequestRefused(GROUP_BUSY, f"{text}: try again")
        ticket = 0
        named = [meta for meta in broker.named_groups.list(topic) if meta.name.encode() == name]
        subscription = broker.subscriptions.find(topic, name)
        if subscription is None and not named:
            subscription = broker.subscriptions.get(topic, name)
        if subscription is not None:
            ticket = subscription.delete()
        for meta in named:
            ticket = max(ticket, broker.named_groups.delete(topic, meta.group_id))
        await broker.durability.reached(ticket)
        return Response(status_code=204)

    async def _topics(
        self, request: Request, joined: LiveGroups, *, by_name: bool = True
    ) -> Sequence[Topic]:
        """Return the topics whose groups the request asks for. Raises NotAuthorized."""
        topics = self._broker.topics
        topic_text = request.query_params.get("topic")
        if topic_text is not None:
            name = parsed_topic(topic_text)
            if not seen_by(self._broker, request)(Resource.of_topic(name)):
                raise NotAuthorized(f"topic {name} may not be seen")
            return [topics.get(name)]
        with_groups = set(self._broker.subscriptions.cursors.topic_ids())
        every = [
            topic
            for topic in topics.all()
            if topic.meta.topic_id in with_groups or topic.name.full in joined.by_topic
        ]
        if not by_name:
            return every
        after = request.query_params.get("after", "")
        return await first_topics(every, lambda topic: topic.name.full > after, len(every))


def _leaving_out_changed(request: Request) -> AbstractContextManager[None]:
    """Leave out a topic that changes during a walk; a client that names a topic gets the error."""
    return suppress(*(() if "topic" in request.query_params else CHANGED))


def _page(groups: list[messages.GroupSummary], after: str | None, joined: LiveGroups) -> Response:
    return json_response(messages.GroupPage(groups, after, list(joined.silent_brokers)))


def _without_topic(
    request: Request, joined: LiveGroups, is_seen: Callable[[Resource], bool]
) -> list[messages.GroupSummary]:
    """Return the groups of no existing topic, for the list's first page by topic or the last page
    by lag.
    """
    by_lag = request.query_params.get("sort") == "lag"
    if "topic" in request.query_params or (request.query_params.get("after") and not by_lag):
        return []
    summaries = []
    for group in joined.without_topic:
        if is_seen(Resource.of_group_within(group.name, group.tenant, group.namespace)):
            name, encoding = group_text(group.name)
            clients = [messages.GroupClient(*client) for client in group.clients]
            summaries.append(
                messages.GroupSummary(
                    topic=None,
                    group=name,
                    encoding=encoding,
                    partitions=0,
                    backlog=None,
                    members=group.members,
                    state=group.state,
                    type=group.kind,
                    protocol_type=group.member_protocol,
                    clients=clients or UNSET,
                )
            )
    return summaries


def _names(
    broker: Broker, topic: Topic, joined: LiveGroups, wanted: bytes | None
) -> Sequence[bytes]:
    """Return the groups of a topic, with a position or members, by name; or only `wanted`."""
    if wanted is not None:
        return [wanted]
    own = broker.subscriptions.names(topic) if broker.placement.is_here(topic.name) else ()
    return sorted({*own, *joined.names(topic)})


def _subscription(broker: Broker, topic: Topic, name: bytes) -> Subscription | None:
    """Return a group's subscription, unless another broker has the topic."""
    is_here = broker.placement.is_here(topic.name)
    return broker.subscriptions.find(topic, name) if is_here else None


async def _lags(
    broker: Broker,
    topic: Topic,
    joined: LiveGroups,
    wanted: bytes | None,
    is_seen: Callable[[Resource], bool],
) -> list[tuple[int, str, bytes]]:
    """Return (negative backlog, topic, name) of each group of a topic that `is_seen` allows, or
    only of `wanted`; 1 for an unknown backlog.
    """
    lags = []
    full, joined_names = topic.name.full, set(joined.names(topic))
    async for name in in_turns(_names(broker, topic, joined, wanted)):
        if not is_seen(Resource.of_group(name, topic.name)):
            continue
        subscription = _subscription(broker, topic, name)
        if subscription is not None:
            lags.append((-await backlog_of(subscription), full, name))
        elif name in joined_names:
            lags.append((1, full, name))
    return lags


async def summarize_groups(
    broker: Broker,
    topic: Topic,
    joined: LiveGroups,
    wanted: bytes | None = None,
    is_seen: Callable[[Resource], bool] = lambda _: True,
    ages: Ages | None = None,
) -> list[messages.GroupSummary]:
    """Return a summary of each group of a topic that `is_seen` allows, or only of `wanted` if
    present.
    """
    summaries: list[messages.GroupSummary] = []
    joined_names = set(joined.names(topic))
    async for name in in_turns(_names(broker, topic, joined, wanted)):
        if not is_seen(Resource.of_group(name, topic.name)):
            continue
        subscription = _subscription(broker, topic, name)
        if subscription is None and name not in joined_names:
            continue  # Deleted meanwhile.
        standing = joined.standing(broker, topic, name)
        summaries.append(await _summary(topic, name, subscription, standing))
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


async def _oldest_of_all_s(
    broker: Broker, ages: Ages, subscription: Subscription | None
) -> float | None:
    """Return the age of a group's oldest unread record in all partitions; None if an age is
    unknown.
    """
    if subscription is None:
        return None
    oldest = 0.0
    async for index in in_turns(range(len(subscription.topic.partitions))):
        age = await _oldest_s(broker, ages, subscription, index)
        if age is None:
            return None
        oldest = max(oldest, age)
    return oldest


async def _oldest_s(
    broker: Broker, ages: Ages, subscription: Subscription | None, index: int
) -> float | None:
    """Return the age of the oldest unread record of a partition: of its batch, by append time."""
    if subscription is None:
        return None
    if not subscription.backlog(index):
        return 0.0
    partition = subscription.topic.partition(index)
    since_us = await ages.since_us(partition, subscription.position(index))
    return None if since_us is None else max(broker.now_us() - since_us, 0) / 1_000_000


async def _summary(
    topic: Topic, name: bytes, subscription: Subscription | None, standing: GroupStanding
) -> messages.GroupSummary:
    group, encoding = group_text(name)
    return messages.GroupSummary(
        topic=topic.name.full,
        group=group,
        encoding=encoding,
        partitions=len(topic.partitions),
        backlog=None if subscription is None else await backlog_of(subscription),
        members=standing.members,
        state=standing.state,
        type=standing.kind,
        protocol_type=standing.member_protocol,
    )


def _position(
    topic: Topic, subscription: Subscription | None, index: int
) -> messages.GroupPosition:
    partition = topic.partition(index)
    ranges = () if subscription is None else subscription.acked(index)
    return messages.GroupPosition(
        partition=index,
        position=None if subscription is None else subscription.position(index),
        acknowledged=[(start, end - 1) for start, end in islice(ranges, RANGES_TOLD_MAX)],
        acknowledged_ranges=len(ranges),
        backlog=None if subscription is None else subscription.backlog(index),
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
    )
