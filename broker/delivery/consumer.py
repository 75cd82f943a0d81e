"""The consumer that a dispatcher and a listener share: permits, pending entries and sending.

A listener makes a subclass of `Consumer` and attaches it (`Dispatchers.attach`). The dispatcher's
pump then calls `send` with entries, as long as there are permits (`Dispatcher.flow`) and
`takes_more()` is True. Knows neither the log nor a protocol.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    from braidlog.broker.reading.entries import Entry


class SubscriptionKind(enum.Enum):
    """Distribution of a subscription's entries over its consumers; the value is Pulsar's word."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"


class Pending(msgspec.Struct, gc=False):
    """An entry that was sent to a consumer and is not acknowledged.

    There may be 100,000 of them; if the garbage collector visited each, all clients would wait.
    """

    record_count: int
    wanted: int  # Number of unacknowledged messages in the entry.
    chunk_uuid: bytes  # Empty except for a piece of a chunked message.
    slot: int = 0  # Slot of the entry's key, on a Key_Shared subscription.


@dataclass(slots=True)
class ConsumerTimes:
    """Times of a consumer's last and first events, in microseconds since 1970; 0: none yet."""

    flow_us: int = 0  # The client asked for messages.
    first_flow_us: int = 0
    sent_us: int = 0  # Messages were sent to the client.
    first_sent_us: int = 0
    acked_us: int = 0  # The client acknowledged messages.


@dataclass(slots=True, eq=False)
class Consumer(abc.ABC):
    """A consumer; the adapter implements sending to the client and the liveness check."""

    protocol: ClassVar[str] = ""
    # True for a member of a share group: it asks for records (`share_queue.py`) instead of getting
    # entries sent.
    pulls: ClassVar[bool] = False

    name: str
    priority: int = 0  # Lower values first (Shared); only the lowest may be active (Failover).
    # The consumer's slots, ends included (sticky Key_Shared).
    key_ranges: Sequence[tuple[int, int]] = ()
    # Messages the client still accepts; may go below zero, since an entry is sent whole.
    permits: int = 0
    unacked: int = 0  # Messages delivered and neither acknowledged nor returned (not Exclusive).
    is_blocked: bool = False  # At its limit of unacknowledged messages.
    is_attached: bool = False
    reads_compacted: bool = False  # True to read the compacted view (Exclusive and Failover).
    # The client knows that all messages of a terminated topic are acknowledged.
    knows_end: bool = False
    pending: dict[int, Pending] = field(default_factory=dict)  # By entry offset (not Exclusive).
    messages_out: int = 0
    bytes_out: int = 0
    entries_out: int = 0  # A batch of messages is one entry.
    messages_redelivered: int = 0
    messages_acked: int = 0
    times: ConsumerTimes = field(default_factory=ConsumerTimes)
    connected_us: int = 0  # Microseconds since 1970; 0 without a connection.
    metadata: Mapping[str, str] = field(default_factory=dict)  # Sent by the client.

    @property
    def identity(self) -> str:
        """Identity of the consumer among those of its protocol."""
        return self.name

    @property
    def address(self) -> str:
        """Address of the client; empty without a connection."""
        return ""

    @property
    def client_version(self) -> str:
        """Client name and version as sent by the client; empty if unknown."""
        return ""

    @abc.abstractmethod
    def send(self, entries: Sequence[Entry], size: int) -> None:
        """Send these entries, `size` bytes together, to the client. The pump calls this method and
        no longer keeps the entries: the method must not wait, and must take all of them.

        Bodies are views of shared pages: copy a body to keep it.
        """

    @abc.abstractmethod
    def takes_more(self) -> bool:
        """Return True if the client's connection has room. If not, call `Dispatcher.wake` when
        there is room.
        """

    @abc.abstractmethod
    def disconnect(self) -> None:
        """Tell the client that the dispatcher detached the consumer, for a seek or a deletion.

        Called within the change that causes the detachment. Must not attach the consumer.
        """

    @abc.abstractmethod
    async def is_alive(self) -> bool:
        """Check if the client answers; takes some seconds if it does not."""

    def lost(self, reason: str) -> None:
        """End the connection of a client that does not answer; another consumer takes its place."""
        self.disconnect()

    def active_changed(self, *, is_active: bool) -> None:  # noqa: B027 (few protocols tell)
        """Tell the client if a Failover subscription sends to this consumer now."""

    def reached_end(self) -> None:  # noqa: B027 (few protocols tell)
        """Tell the client that all messages of a terminated topic are acknowledged."""

    def flowed(self, permits: int, now_us: int) -> None:
        """Note that the client takes so many more messages."""
        self.permits += permits
        times = self.times
        times.flow_us = now_us
        times.first_flow_us = times.first_flow_us or now_us

    def handed(self, entries: int, now_us: int) -> None:
        """Note that so many entries are sent to the client."""
        self.entries_out += entries
        times = self.times
        times.sent_us = now_us
        times.first_sent_us = times.first_sent_us or now_us

    @property
    def stays_after_seek(self) -> bool:
        """True if the dispatcher attaches this consumer again after a seek, unlike a client's
        consumer.
        """
        return False

    @property
    def can_take(self) -> bool:
        """True if the consumer has permits and is below its limit."""
        return self.permits > 0 and self.is_attached and not self.is_blocked


def with_all_chunks(pending: dict[int, Pending], offsets: set[int]) -> set[int]:
    """Return the offsets, and those of all other pieces of their chunked messages."""
    uuids = {pending[offset].chunk_uuid for offset in offsets} - {b""}
    if not uuids:
        return offsets
    return offsets | {offset for offset, p in pending.items() if p.chunk_uuid in uuids}
