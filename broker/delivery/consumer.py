"""What a dispatcher and a listener share about one consumer: permits, what it holds, what it is
sent.

Knows neither the log nor a protocol.
"""

import abc
import enum
from dataclasses import dataclass, field

import trio


class SubscriptionKind(enum.Enum):
    """How a subscription spreads its entries over its consumers; the value is Pulsar's word."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"


@dataclass(slots=True)
class Pending:
    """An entry that a consumer has and did not acknowledge."""

    record_count: int
    wanted: int  # Messages of it that are not acknowledged.
    chunk_uuid: bytes  # Empty unless it is a piece of a chunked message.


@dataclass(slots=True, eq=False)
class Consumer(abc.ABC):
    """One consumer; the adapter says how its client is told and whether it still lives."""

    name: str
    permits: int = 0  # Messages it still takes; may go below zero, since an entry is sent whole.
    unacked: int = 0  # Messages delivered and neither acknowledged nor returned (Shared only).
    is_blocked: bool = False  # At its limit of unacknowledged messages.
    is_attached: bool = False
    pending: dict[int, Pending] = field(default_factory=dict)  # By entry offset (Shared only).
    own: set[int] = field(default_factory=set)  # Entries only this one can use: pieces of chunks.
    messages_out: int = 0
    bytes_out: int = 0
    messages_redelivered: int = 0
    messages_acked: int = 0
    _lot: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    @abc.abstractmethod
    def let_go(self) -> None:
        """The dispatcher has detached it for a seek or a deletion: stop its task, tell its client.

        Called within the change that causes it.
        """

    @abc.abstractmethod
    async def is_alive(self) -> bool:
        """Whether its client answers; takes some seconds to find out that it does not."""

    @property
    def can_take(self) -> bool:
        """Whether it has permits and is below its limit."""
        return self.permits > 0 and self.is_attached and not self.is_blocked

    def wake(self) -> None:
        """Let its task look again."""
        self._lot.unpark_all()

    async def changed(self) -> None:
        """Wait for the next `wake`."""
        await self._lot.park()
