"""The open producers of clients, as the tools of each protocol show them. Only Pulsar's clients
open producers; other clients just send. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownProducer:
    """An open producer for tools; `producer_id` is unique within the connection."""

    name: str
    producer_id: int
    access_mode: str  # Pulsar's word, such as "Shared".
    is_waiting: bool  # True while waiting to become the exclusive producer.
    address: str
    client_version: str
    connected_us: int  # Microseconds since 1970.
    metadata: Mapping[str, str]  # Metadata from the client.


Source = Callable[[int], Iterable[ShownProducer]]


class ShownProducers:
    """The open producers of a broker, of all protocols, as tools see them."""

    def __init__(self) -> None:
        """No sources yet."""
        self._sources: list[Source] = []

    def add_source(self, source: Source) -> None:
        """Add a source: a function of a partition's number that must not wait or raise."""
        self._sources.append(source)

    def of(self, partition_id: int) -> list[ShownProducer]:
        """Return the producers of the partition or non-persistent topic with that number."""
        return [producer for source in self._sources for producer in source(partition_id)]
