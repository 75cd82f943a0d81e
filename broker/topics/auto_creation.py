"""Creates a topic when a client first uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from braidlog.broker import errors
from braidlog.broker.topics.settings import limit_of
from braidlog.broker.topics.settings_table import TopicKind

if TYPE_CHECKING:
    from braidlog.broker.topics.deletion import HeldNames
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.names import TopicName


class AutoCreation:
    """Creates missing topics in a registry. Clients that ask for a topic at the same time share a
    single creation.
    """

    def __init__(self, registry: TopicRegistry, held_names: HeldNames) -> None:
        """Names in `held_names` are not created."""
        self._registry = registry
        self._held_names = held_names
        self._under_way: dict[TopicName, trio.Event] = {}  # Creations, by name.

    async def __call__(self, name: TopicName, /) -> Topic:
        registry = self._registry
        while (under_way := self._under_way.get(name)) is not None:
            await under_way.wait()
        topic = registry.find(name)
        if topic is not None:
            return topic
        if self._held_names.is_held(name):
            raise errors.TopicNotFound(f"{name} was deleted or renamed while clients used it")
        settings, defaults = registry.inherited(name.tenant, name.namespace), registry.defaults
        if not settings.get("auto_topic_creation", defaults.auto_create):
            raise errors.TopicNotFound(f"no topic {name}, and none is made by itself")
        partitions, is_partitioned = defaults.num_partitions, None
        if (kind := settings.get("auto_topic_type")) is not None:
            is_partitioned = kind == TopicKind.PARTITIONED.value
            partitions = (limit_of(settings, "auto_topic_partitions") or 1) if is_partitioned else 1
        self._under_way[name] = trio.Event()
        try:
            return await registry.create(name, partitions, partitioned=is_partitioned)
        except errors.TopicExists:
            return registry.get(name)
        finally:
            self._under_way.pop(name).set()
