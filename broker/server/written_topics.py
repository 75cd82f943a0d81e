"""The topics to which a client has lately asked to write, for lists. Knows no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.access.rights import Resource

WRITTEN_TOPICS_MAX = 100  # Of a connection.


class WrittenTopics:
    """At most WRITTEN_TOPICS_MAX topics; the topic of the oldest request leaves first."""

    __slots__ = ("_latest", "_names")

    def __init__(self) -> None:
        self._latest: Resource | None = None
        self._names: dict[tuple[str, str, str], None] = {}  # Tenant, namespace, topic.

    def note(self, topic: Resource) -> None:  # hot: each request of a writer
        """Note a request to write to a topic."""
        if topic is self._latest:
            return
        if topic.is_long:  # Clients may send any text.
            return
        self._latest = topic
        name = (topic.tenant, topic.namespace, topic.topic)
        self._names.pop(name, None)
        self._names[name] = None
        if len(self._names) > WRITTEN_TOPICS_MAX:
            del self._names[next(iter(self._names))]

    def __contains__(self, topic: Resource) -> bool:
        return (topic.tenant, topic.namespace, topic.topic) in self._names
