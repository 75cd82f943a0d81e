"""The producers that clients have open now: the tools of each protocol show the same ones. Only
Pulsar's clients open any; those of other protocols just send. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Publisher:
    """One open producer; `producer_id` tells it from others of its connection."""

    name: str
    producer_id: int
    access_mode: str  # Pulsar's word, such as "Shared".
    is_waiting: bool  # For its turn as the exclusive one.
    address: str
    client_version: str
    connected_us: int  # Microseconds since 1970.
    metadata: Mapping[str, str]  # What its client says of it.


Source = Callable[[int], Iterable[Publisher]]


class Publishers:
    """The open producers of one broker."""

    def __init__(self) -> None:
        """No sources yet."""
        self._sources: list[Source] = []

    def add_source(self, source: Source) -> None:
        """Add a source: it gets a partition's number, and must not wait or raise."""
        self._sources.append(source)

    def of(self, partition_id: int) -> list[Publisher]:
        """Those on a partition or live topic of that number."""
        return [one for source in self._sources for one in source(partition_id)]
