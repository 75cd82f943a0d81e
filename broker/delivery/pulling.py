"""Members of a share group on a partition, and what they do with records. Knows no dispatcher."""

from __future__ import annotations

import abc
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from braidlog.broker.delivery.consumer import Consumer
from braidlog.broker.topics.settings_table import DELIVERIES_MAX

if TYPE_CHECKING:
    from braidlog.broker.reading.entries import Entry
    from braidlog.storage.metadata.names import TopicName

LOCKED_MAX: Final = 2000  # Kafka's group.share.partition.max.record.locks
LOCK_S: Final = 30.0  # Kafka's group.share.record.lock.duration.ms


class AckType(enum.IntEnum):
    """A member's decision about a record; the values are Kafka's."""

    GAP = 0  # The member was shown no record at that offset.
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


AckRange = tuple[int, int, AckType]
"""A range `[start, end)`, and what happens to its records."""


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Limits of a queue with members of a share group."""

    deliveries_max: int = DELIVERIES_MAX
    locked_max: int = LOCKED_MAX
    lock_s: float = LOCK_S
    dead_letters: TopicName | None = None
    """Topic for copies of records that the queue gives up or a member rejects."""


class PullingConsumer(Consumer):
    """A member of a share group on a partition."""

    pulls: ClassVar[bool] = True

    def send(self, entries: Sequence[Entry], size: int) -> None:
        """Never called: a member asks for records."""
        raise AssertionError("no entries are sent to a member of a share group")

    @abc.abstractmethod
    def offered(self) -> None:
        """Note that there are records for a member that waits; the member calls `end_turn` soon.
        Must not wait.
        """
