"""The meaning of Iggy's names and numbers: a stream is a namespace of one tenant, a consumer is a
subscription.

The catalogue keeps the numbers, from 1 up; the layouts of D4 and later count them from 0. Names are
kept as given. Knows no bytes and no request.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.broker.topics.topic import Topic
from braidlog.protocols.iggy.dialects import Behaviour
from braidlog.protocols.iggy.errors import Absent, ErrorCode, Refusal
from braidlog.protocols.iggy.messages import ConsumerKind, ConsumerRef, Name
from braidlog.storage.metadata.names import DEFAULT_TENANT, TopicName

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

TENANT = DEFAULT_TENANT
NAME_BYTES_MAX = 255  # A byte has the length.
CHOSEN_ID_MAX = (1 << 24) - 1  # Higher numbers are for topics created by other listeners.


@dataclass(slots=True)
class Stream:
    """A namespace. A namespace that no Iggy client created is listed only while it has topics."""

    stream_id: int
    name: str
    created_us: int
    listed: bool


@dataclass(slots=True)
class NamedGroup:
    """A named consumer group of a topic."""

    group_id: int
    name: str


def streams(broker: Broker) -> list[Stream]:
    """All streams that are listed, by number."""
    names = [meta.namespace for meta in broker.namespaces.all() if meta.tenant == TENANT]
    streams_found = [find_stream(broker, name) for name in names]
    listed = [stream for stream in streams_found if stream is not None and stream.listed]
    return sorted(listed, key=lambda stream: stream.stream_id)


def find_stream(broker: Broker, name: Name) -> Stream | None:
    """The stream of that name or number, listed or not."""
    namespaces = broker.namespaces
    if isinstance(name, str):
        meta = namespaces.find(TENANT, name)
    else:
        meta = namespaces.find_numbered(name)
    if meta is None or meta.tenant != TENANT:
        return None
    listed = meta.iggy_id is not None or namespaces.has_topics(TENANT, meta.namespace)
    return Stream(namespaces.number(meta), meta.namespace, meta.created_us, listed)


def get_stream(broker: Broker, name: Name, *, listed: bool = False) -> Stream:
    """The stream of that name or number; `listed`: only if it is listed. Raises Absent."""
    stream = find_stream(broker, name)
    if stream is None or (listed and not stream.listed):
        raise Absent(_by(name, ErrorCode.STREAM_NAME_NOT_FOUND, ErrorCode.STREAM_ID_NOT_FOUND))
    return stream


def topics(broker: Broker, stream: Stream) -> list[Topic]:
    """The topics of a stream, by number."""
    topics_found = broker.topics.list(TENANT, stream.name)
    return sorted(topics_found, key=lambda topic: topic_number(broker, topic))


def get_topic(broker: Broker, stream: Name, topic: Name) -> Topic:
    """A topic by the names or numbers of its stream and itself. Raises Absent."""
    namespace = get_stream(broker, stream).name
    topic_found: Topic | None
    if isinstance(topic, str):
        topic_found = broker.topics.find(TopicName(TENANT, namespace, topic))
    else:
        topic_found = broker.topics.find_numbered(TENANT, namespace, topic)
    if topic_found is None:
        raise Absent(_by(topic, ErrorCode.TOPIC_NAME_NOT_FOUND, ErrorCode.TOPIC_ID_NOT_FOUND))
    return topic_found


def is_known(broker: Broker, request: object) -> bool:
    """Return True if the topic that a request names exists, or if the request names none."""
    stream, topic = getattr(request, "stream", None), getattr(request, "topic", None)
    if stream is None or topic is None:
        return True
    try:
        get_topic(broker, stream, topic)
    except Absent:
        return False
    return True


def topic_number(broker: Broker, topic: Topic) -> int:
    """The number by which Iggy's clients know a topic within its stream."""
    return broker.topics.number(topic)


def stream_number(broker: Broker, topic: Topic) -> int:
    """The number by which Iggy's clients know the stream of a topic. Raises Absent."""
    meta = broker.namespaces.find(TENANT, topic.name.namespace)
    if meta is None:
        raise Absent(ErrorCode.STREAM_NAME_NOT_FOUND)
    return broker.namespaces.number(meta)


def groups(broker: Broker, topic: Topic) -> list[NamedGroup]:
    """The named groups of a topic, in the order they were made."""
    return [NamedGroup(meta.group_id, meta.name) for meta in broker.named_groups.list(topic)]


def get_group(broker: Broker, topic: Topic, name: Name) -> NamedGroup:
    """A group by its name or number. Raises Absent."""
    meta = broker.named_groups.find(topic, name)
    if meta is not None:
        return NamedGroup(meta.group_id, meta.name)
    raise Absent(_by(name, ErrorCode.GROUP_NAME_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND))


def unnamed_group(group_id: int | None) -> str:
    """The name of a group that has only a number, as in D0."""
    return f"group-{group_id}"


def subscription_name(broker: Broker, topic: Topic, consumer: ConsumerRef) -> str:
    """The subscription that a consumer reads by: its id as text, or its group's name.

    Raises Absent.
    """
    if consumer.kind is ConsumerKind.GROUP:
        return get_group(broker, topic, consumer.name).name
    return str(consumer.name)


def free_stream_id(broker: Broker) -> int:
    """Return the number for a stream whose client leaves the choice to us.

    Raises Refusal if there is none left.
    """
    stream_by_number = broker.namespaces.find_numbered
    return _first_free(lambda number: stream_by_number(number) is None, ErrorCode.INVALID_STREAM_ID)


def free_topic_id(broker: Broker, stream: Stream, being_made: Container[tuple[str, int]]) -> int:
    """Return the number for a topic whose client leaves the choice to us, except numbers of topics
    still being created for other clients.

    Raises Refusal if there is none left.
    """
    topic_by_number = broker.topics.find_numbered
    return _first_free(
        lambda number: (
            (stream.name, number) not in being_made
            and topic_by_number(TENANT, stream.name, number) is None
        ),
        ErrorCode.INVALID_TOPIC_ID,
    )


def check_free(
    behaviour: Behaviour, number: tuple[bool, ErrorCode], name: tuple[bool, ErrorCode]
) -> None:
    """Check that the number and the name are free; each comes with True if taken, and its error.
    Raises Refusal.
    """
    for is_taken, code in (number, name) if behaviour.number_first else (name, number):
        if is_taken:
            raise Refusal(code)


def check_chosen(number: int | None, code: ErrorCode) -> None:
    """Check that a client may choose that number itself. Raises Refusal with `code`."""
    if number is not None and number > CHOSEN_ID_MAX:
        raise Refusal(code, f"numbers above {CHOSEN_ID_MAX} are not for clients to choose")


def check_group_name(name: str) -> None:
    """Check that answers can express the name of a new group. Raises Refusal."""
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        reason = f"a group's name has 1 to {NAME_BYTES_MAX} bytes"
        raise Refusal(ErrorCode.INVALID_GROUP_NAME, reason)


def _first_free(is_free: Callable[[int], bool], code: ErrorCode) -> int:
    number = next(filter(is_free, itertools.count(1)))
    check_chosen(number, code)
    return number


def _by(name: Name, by_name: ErrorCode, by_number: ErrorCode) -> ErrorCode:
    return by_name if isinstance(name, str) else by_number
