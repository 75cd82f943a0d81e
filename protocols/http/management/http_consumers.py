"""`/api/v1/http-consumers`: the consumers over HTTP of the broker that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Resource
from braidlog.protocols.http.path_names import parsed_topic
from braidlog.protocols.http.query import page_limit
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.routes import seen_by
from braidlog.protocols.http.turns import first_by

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.pip64.consumers import Consumers
    from braidlog.protocols.http.pip64.subscriber import Subscriber


class HttpConsumerInfo(msgspec.Struct):
    """A consumer over HTTP. `idle_s` is the time since its last request, `unacked` the number of
    messages that the consumer holds unacknowledged.
    """

    topic: str
    group: str
    id: str
    name: str
    type: str
    idle_s: float
    unacked: int


class HttpConsumerPage(msgspec.Struct):
    """A page of consumers by topic, group and id; `next` is the `after` of the next page, or
    null.
    """

    consumers: list[HttpConsumerInfo]
    next: str | None


class HttpConsumersApi:
    """Handler of the list of consumers over HTTP."""

    def __init__(self, broker: Broker, consumers: Consumers) -> None:
        self._broker = broker
        self._consumers = consumers

    async def show(self, request: Request) -> Response:
        """A page of the consumers over HTTP: `?topic=`, `?after=`, `?limit=`. The page shows the
        consumers of groups that the client may see.
        """
        limit = page_limit(request)
        after = request.query_params.get("after", "")
        text = request.query_params.get("topic")
        topic = None if text is None else parsed_topic(text)
        is_seen = seen_by(self._broker, request)

        def place(consumer: Subscriber) -> str | None:
            subscription = consumer.subscription
            name = subscription.topic.name
            if topic is not None and topic != name:
                return None
            at = _place(consumer)
            is_wanted = at > after and is_seen(Resource.of_group(subscription.name, name))
            return at if is_wanted else None

        listed = await first_by(self._consumers, place, limit + 1)
        more = _place(listed[limit - 1]) if len(listed) > limit else None
        return json_response(HttpConsumerPage([_info(each) for each in listed[:limit]], more))


def _place(consumer: Subscriber) -> str:
    """Return the consumer's place in the list, which is the order of the pages."""
    subscription = consumer.subscription
    return f"{subscription.topic.name.full}/{quote(subscription.name, safe='')}/{consumer.id}"


def _info(consumer: Subscriber) -> HttpConsumerInfo:
    return HttpConsumerInfo(
        consumer.subscription.topic.name.full,
        consumer.subscription.name.decode(),  # The path that created the consumer is UTF-8.
        consumer.id,
        consumer.name,
        consumer.wanted.kind.value,
        round(max(trio.current_time() - consumer.last_used, 0.0), 3),
        consumer.unacked,
    )
