"""The interface of a channel's subscription towards consumers; `channel.py` has the guarantees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.reading.entries import EntryId


class Delivery(Protocol):
    """A subscription of a channel, towards its consumers."""

    name: bytes
    kind: SubscriptionKind
    consumers: list[Consumer]

    @property
    def partition(self) -> Channel:
        """The channel whose messages are delivered."""

    @property
    def redelivers(self) -> bool:
        """True if unacknowledged messages are delivered again."""

    @property
    def backlog(self) -> int:
        """Approximate number of messages not yet received or acknowledged by the subscription."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Let a consumer take `permits` more messages."""

    def wake(self) -> None:
        """Note that a consumer's outbox has room again."""

    def leave(self, consumer: Consumer) -> None:
        """Detach a consumer, if attached; unacknowledged messages return to the subscription."""

    async def acknowledge(
        self,
        consumer: Consumer,
        message_ids: Sequence[EntryId],
        *,
        lazy: bool,
        entries: Sequence[int] = (),
    ) -> int:
        """Acknowledge single entries, or messages of them, and whole `entries` of this channel.
        Return a ticket.
        """

    def acknowledge_at_once(
        self, consumer: Consumer, entries: Sequence[int], *, lazy: bool
    ) -> int | None:
        """Acknowledge whole entries as `acknowledge`; return None, with nothing done, if that has
        to wait.
        """

    async def acknowledge_to(self, consumer: Consumer, message_id: EntryId, *, lazy: bool) -> int:
        """Acknowledge everything up to and including an entry. Return a ticket."""

    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """Send again the consumer's unacknowledged entries: those in `message_ids`, or all if there
        are none.
        """

    async def seek(self, position: Callable[[], Awaitable[int]]) -> int:
        """Close the consumers, and deliver from the result of `position` on. Return a ticket."""

    def unsubscribe(self) -> int:
        """Delete the subscription on this channel, which has no consumers. Return a ticket."""

    def stored(self) -> Dispatcher:
        """Return the dispatcher, with its position in a log. Raises NotSupported."""
