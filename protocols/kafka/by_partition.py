"""Partitions that a request names, each of them once. Knows no request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def by_partition(
    named: Iterable[tuple[bytes | None, int, T]],
) -> dict[bytes | None, dict[int, T]]:
    """Return what a request says of each partition: topic name -> partition number -> value.

    Of a partition that is named twice the last value counts (0.8 builds a map), and a topic without
    partitions is left out.
    """
    topics: dict[bytes | None, dict[int, T]] = {}
    for name, index, value in named:
        partitions = topics.get(name)
        if partitions is None:
            partitions = topics[name] = {}
        partitions[index] = value
    return topics
