"""What a dispatcher and a listener share about one consumer: permits, what it holds, what it is
sent.

A listener makes a subclass of `Consumer` and attaches it (`Dispatchers.attach`). The dispatcher's
pump then calls `send` with entries, as long as there are permits (`Dispatcher.flow`) and
`takes_more()` says so. Knows neither the log nor a protocol.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

if TYPE_CHECKING:
    from braidlog.broker.delivery.entries import Entry


# Of one subscription on one partition: whenever something is given out, all are looked at.
CONSUMERS_MAX: Final = 1000


class SubscriptionKind(enum.Enum):
    """How a subscription spreads its entries over its consumers; the value is Pulsar's word."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"


class Pending(msgspec.Struct, gc=False):
    """An entry that a consumer has and did not acknowledge.

    There may be 100,000 of them: a garbage collector that looked at each would hold up everybody.
    """

    record_count: int
    wanted: int  # Messages of it that are not acknowledged.
    chunk_uuid: bytes  # Empty unless it is a piece of a chunked message.
    slot: int = 0  # Of its key, on a Key_Shared subscription.


@dataclass(slots=True, eq=False)
class Consumer(abc.ABC):
    """One consumer; the adapter says how its client is sent entries and whether it still lives."""

    protocol: ClassVar[str] = ""

    name: str
    priority: int = 0  # Lower ones first (Shared); the lowest alone may be active (Failover).
    key_ranges: Sequence[tuple[int, int]] = ()  # Its own slots, ends included (sticky Key_Shared).
    permits: int = 0  # Messages it still takes; may go below zero, since an entry is sent whole.
    unacked: int = 0  # Messages delivered and neither acknowledged nor returned (not Exclusive).
    is_blocked: bool = False  # At its limit of unacknowledged messages.
    is_attached: bool = False
    reads_compacted: bool = False  # Wants the compacted view (Exclusive and Failover).
    knows_end: bool = False  # It was told that everything of a terminated topic is acknowledged.
    pending: dict[int, Pending] = field(default_factory=dict)  # By entry offset (not Exclusive).
    messages_out: int = 0
    bytes_out: int = 0
    messages_redelivered: int = 0
    messages_acked: int = 0
    connected_us: int = 0  # Microseconds since 1970; 0 where it has no connection.
    metadata: Mapping[str, str] = field(default_factory=dict)  # What its client says of it.

    @property
    def identity(self) -> str:
        """What distinguishes it from others of its protocol."""
        return self.name

    @property
    def address(self) -> str:
        """Where its client is; empty where it has no connection."""
        return ""

    @property
    def client_version(self) -> str:
        """What its client calls itself; empty where that is not known."""
        return ""

    @abc.abstractmethod
    def send(self, entries: Sequence[Entry], size: int) -> None:
        """Send these entries, `size` bytes together, to its client. Called by the pump, which no
        longer has them: must not wait, and must take all of them.

        Bodies are views of pages that many share: copy a body to keep it.
        """

    @abc.abstractmethod
    def takes_more(self) -> bool:
        """Whether its client's connection has room. If not, call `Dispatcher.wake` once it has."""

    @abc.abstractmethod
    def disconnect(self) -> None:
        """The dispatcher has detached it for a seek or a deletion: tell its client.

        Called within the change that causes it. Must not attach it.
        """

    @abc.abstractmethod
    async def is_alive(self) -> bool:
        """Whether its client answers; takes some seconds to find out that it does not."""

    def lost(self, reason: str) -> None:
        """Its client does not answer and another one takes its place: end its connection, too."""
        self.disconnect()

    def active_changed(self, *, is_active: bool) -> None:  # noqa: B027 (few protocols tell)
        """Tell its client whether a Failover subscription sends to it now."""

    def reached_end(self) -> None:  # noqa: B027 (few protocols tell)
        """Tell its client that everything of a terminated topic is acknowledged."""

    @property
    def stays_after_seek(self) -> bool:
        """Whether the dispatcher attaches it again after a seek, as no client would."""
        return False

    @property
    def can_take(self) -> bool:
        """Whether it has permits and is below its limit."""
        return self.permits > 0 and self.is_attached and not self.is_blocked
