"""Resources that a command names, for access control: the existing resource, or the given name.

A number that does not exist stands for its parent: the stream, or the whole broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.access.rights import CLUSTER, Resource
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy.errors import Absent
from braidlog.protocols.iggy.messages import ConsumerKind, ConsumerRef, Name, OfGroup
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker


class InStream(Protocol):
    """A request that names a stream."""

    @property
    def stream(self) -> Name:
        """Its name or number."""


class InTopic(InStream, Protocol):
    """A request that names a topic."""

    @property
    def topic(self) -> Name:
        """Its name or number."""


class OfConsumer(InTopic, Protocol):
    """A request that names a reader."""

    @property
    def consumer(self) -> ConsumerRef:
        """A consumer or a group."""


class NamingRequest(Protocol):
    """A request that names something to create."""

    @property
    def name(self) -> str:
        """The new name."""


class NamedInStream(InStream, NamingRequest, Protocol):
    """The same within a stream."""


class NamedInTopic(InTopic, NamingRequest, Protocol):
    """The same within a topic."""


def cluster(broker: Broker, request: object) -> Iterable[Resource]:
    """The broker as a whole."""
    yield CLUSTER


def tenant(broker: Broker, request: object) -> Iterable[Resource]:
    """All streams."""
    yield Resource.of_tenant(names.TENANT)


def topics(broker: Broker, request: InStream) -> Iterable[Resource]:
    """Return all topics of a stream: only a pattern whose last part is a star covers them."""
    within = _stream(broker, request.stream)
    if within is CLUSTER:
        yield within
    else:
        yield Resource.of_topic(TopicName(within.tenant, within.namespace, "*"))


def stream(broker: Broker, request: InStream) -> Iterable[Resource]:
    yield _stream(broker, request.stream)


def new_stream(broker: Broker, request: NamingRequest) -> Iterable[Resource]:
    """A stream that is to be made."""
    yield Resource.of_namespace(names.TENANT, request.name)


def topic(broker: Broker, request: InTopic) -> Iterable[Resource]:
    yield _topic(broker, request.stream, request.topic)


def new_topic(broker: Broker, request: NamedInStream) -> Iterable[Resource]:
    """A topic that is to be made."""
    yield _topic(broker, request.stream, request.name)


def group(broker: Broker, request: OfGroup) -> Iterable[Resource]:
    """A named group."""
    yield from _reader(broker, request, request.group)


def new_group(broker: Broker, request: NamedInTopic) -> Iterable[Resource]:
    """A named group that is to be made."""
    yield from _reader(broker, request, request.name)


def consumer(broker: Broker, request: OfConsumer) -> Iterable[Resource]:
    """A topic, and the consumer or group that reads it."""
    yield _topic(broker, request.stream, request.topic)
    reader = request.consumer
    is_group = reader.kind is ConsumerKind.GROUP
    yield from _reader(broker, request, reader.name if is_group else str(reader.name))


def _stream(broker: Broker, name: Name) -> Resource:
    stream = names.find_stream(broker, name)
    if stream is not None:
        return Resource.of_namespace(names.TENANT, stream.name)
    return Resource.of_namespace(names.TENANT, name) if isinstance(name, str) else CLUSTER


def _topic(broker: Broker, stream: Name, topic: Name) -> Resource:
    try:
        return names.get_topic(broker, stream, topic).resource
    except Absent:
        within = _stream(broker, stream)
        if within is CLUSTER or not isinstance(topic, str):
            return within
        return Resource.of_topic(TopicName(within.tenant, within.namespace, topic))


def _reader(broker: Broker, request: InTopic, name: Name) -> Iterable[Resource]:
    try:
        topic = names.get_topic(broker, request.stream, request.topic)
        text = name if isinstance(name, str) else names.get_group(broker, topic, name).name
    except Absent:
        yield _topic(broker, request.stream, request.topic)
    else:
        yield Resource.of_group(text.encode(), topic.name)
