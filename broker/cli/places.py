"""Places in a topic as users name them: `earliest`, `latest`, an offset, `-N`, or a time.

Knows the broker's API of offsets, no message.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from braidlog.broker.cli.client import API, AdminClient, topic_path
from braidlog.broker.cli.failures import EXIT_NOT_FOUND, EXIT_USAGE, AdminError
from braidlog.broker.config.units import parse_seconds

OFFSET = re.compile(r"-?[0-9]{1,19}", re.ASCII)
TIME = "a time as 2026-01-31T12:00:00Z, or 2h (ago)"
PLACE = f"earliest, latest, an offset, -N, {TIME}"


class PartitionBounds(NamedTuple):
    """The kept offsets of a partition; records below `end` are delivered."""

    partition: int
    start: int
    end: int


def bounds_of(
    client: AdminClient, topic: str, partition: int | None = None
) -> Sequence[PartitionBounds]:
    """Return the bounds of a topic's partitions, or of one partition. Raises AdminError."""
    bounds = [
        PartitionBounds(part["partition"], part["log_start_offset"], part["high_watermark"])
        for part in client.topic(topic)["partitions"]
    ]
    if partition is None:
        return bounds
    chosen = [bound for bound in bounds if bound.partition == partition]
    if not chosen:
        raise AdminError(f"{topic} has no partition {partition}", EXIT_NOT_FOUND)
    return chosen


def time_us_of(text: str, flag: str, wanted: str = TIME) -> int:
    """Return the time of `2026-01-31T12:00:00Z` or of `2h` ago, in microseconds. Raises AdminError.

    A time without a zone is in UTC.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # No date: an age, read below.
        pass
    else:
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000_000)
    try:
        return time.time_ns() // 1000 - round(parse_seconds(text, unit="") * 1_000_000)
    except (ValueError, OverflowError):
        raise AdminError(f"{flag} {text}: expected {wanted}", EXIT_USAGE) from None


def check_place(text: str, flag: str) -> None:
    """Raise AdminError if the text names no place."""
    if text not in ("earliest", "latest") and not OFFSET.fullmatch(text):
        time_us_of(text, flag, PLACE)


def offset_of(
    client: AdminClient, topic: str, bounds: PartitionBounds, text: str, flag: str
) -> int:
    """Return the offset of a place in a partition, within the bounds. Raises AdminError."""
    if text == "earliest":
        return bounds.start
    if text == "latest":
        return bounds.end
    if OFFSET.fullmatch(text):
        wanted = bounds.end + int(text) if text.startswith("-") else int(text)
        return min(max(wanted, bounds.start), bounds.end)
    time_us = time_us_of(text, flag)
    path = f"{API}/log/{topic_path(topic)}/{bounds.partition}?time_us={time_us}"
    offset = client.ask("GET", path)["first_offset"]
    return bounds.end if offset is None else min(max(int(offset), bounds.start), bounds.end)
