"""The callbacks of partitions, and the result of an append."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.commit.storage_errors import Report
    from braidlog.broker.commit.waiters import Awaited
    from braidlog.broker.runtime.output_budget import OutputBudget


@dataclass(slots=True)
class Appended:
    """Position of an append, and the ticket that the response waits for (`Outbox.answer`)."""

    base_offset: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Callbacks of a partition, shared by all partitions."""

    on_append: Callable[[Awaited], int]
    """After an append that is not durable yet; returns the ticket that its answer waits for."""
    report: Report
    """Hears of every storage error."""
    has_room: Callable[[int], Awaitable[bool]]
    """Return True if the disk has room for that many more bytes. Raises errors of storage."""
    output: OutputBudget
    """Memory for answers, which large batches take while a caller looks into them."""
