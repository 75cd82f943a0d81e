"""Share sessions: the partitions that a member of a share group fetches from this broker, and the
records that the member holds. Knows no request and no bytes.

A session belongs to a connection. At its end all its records are handed back.
Rules: ShareSessionContext.java and SharePartitionManager.java of apache/kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import trio

from braidlog.broker.delivery.pulling import PullingConsumer
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.kept_bytes import MEMBER_BYTES, PLACE_BYTES
from braidlog.protocols.kafka.names import PROTOCOL

if TYPE_CHECKING:
    from braidlog.broker.delivery.share_queue import QueueDispatcher
    from braidlog.broker.topics.client_limits import ClientLimits
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.kafka.assignors import Place

SESSIONS_MAX: Final = 2000  # Kafka's group.share.max.share.sessions
# Names and partitions of all sessions: 170,000 partitions.
SESSION_BYTES_MAX: Final = 64 * 1024 * 1024
OPEN_EPOCH, CLOSE_EPOCH = 0, -1
LAST_EPOCH: Final = 2**31 - 1
SessionKey = tuple[bytes, bytes]
"""Group and member."""


class ShareRefused(CodeRefused):
    """A share session's request was refused with this code."""


class ShareConsumer(PullingConsumer):
    """A session on a partition, as a consumer of the queue."""

    protocol: ClassVar[str] = PROTOCOL

    def __init__(self, session: ShareSession, partition: Partition) -> None:
        """Not attached yet."""
        super().__init__(session.name)
        self.partition = partition
        self.dispatcher: QueueDispatcher | None = None
        self.topic_limits: ClientLimits | None = None  # The topic's settings that were applied.
        self.has_turn = False
        self.record_bytes = 0.0  # Mean size of the records read last; 0: unknown.
        self._session = session

    @property
    def address(self) -> str:
        """Address of the client."""
        return self._session.address

    def offered(self) -> None:
        """Wake the session's fetch, which takes its turn."""
        self.has_turn = True
        self._session.wake()

    def takes_more(self) -> bool:
        """Return True: a fetch that waits has room."""
        return True

    def disconnect(self) -> None:
        """Wake the fetch: it attaches the consumer again, or answers with an error."""
        self._session.wake()

    async def is_alive(self) -> bool:
        """Return True: a session ends with its connection."""
        return True

    def wait(self) -> None:
        """Wait for a turn."""
        if self.dispatcher is not None and self.is_attached:
            self.dispatcher.await_records(self)

    def wait_no_more(self) -> None:
        """End the turn, or the wait for a turn."""
        self.has_turn = False
        if self.dispatcher is not None:
            self.dispatcher.end_turn(self)

    def leave(self) -> None:
        """Hand all records back."""
        if self.dispatcher is not None:
            self.dispatcher.leave(self)
            self.dispatcher = None


class ShareSession:
    """A member's session with this broker."""

    def __init__(self, key: SessionKey, owner: object, address: str) -> None:
        """`owner` is the connection's context."""
        self.key = key
        self.owner = owner
        self.address = address
        self.name = key[1].decode(errors="backslashreplace")
        self.epoch = 1  # The next request's.
        self.wanted: dict[Place, None] = {}
        """Partitions to fetch, the longest without records first."""
        self.consumers: dict[Place, ShareConsumer] = {}
        self.is_ended = False
        self._woken: trio.Event | None = None

    def change(self, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Add and remove partitions to fetch. Records of removed partitions stay locked."""
        self.wanted.update(dict.fromkeys(added))
        for place in forgotten:
            self.wanted.pop(place, None)

    @property
    def size(self) -> int:
        """Bytes kept for the session."""
        names = 2 * len(self.key[1]) + len(self.key[0]) + len(self.name)
        return MEMBER_BYTES + names + PLACE_BYTES * len(self.wanted)

    def had_records(self, place: Place) -> None:
        """Let the other partitions go first in the next fetch."""
        if place in self.wanted:
            del self.wanted[place]
            self.wanted[place] = None

    def wake(self) -> None:
        """Wake the fetch that waits."""
        if self._woken is not None:
            self._woken.set()

    async def wait(self, consumers: Sequence[ShareConsumer], seconds: float) -> None:
        """Wait until a partition has records for the member."""
        self._woken = trio.Event()
        try:
            for consumer in consumers:
                consumer.wait()
            with trio.move_on_after(seconds):
                await self._woken.wait()
        finally:
            self._woken = None
            for consumer in consumers:
                if not consumer.has_turn:
                    consumer.wait_no_more()

    def end(self) -> None:
        """Hand all records back."""
        self.is_ended = True
        for consumer in self.consumers.values():
            consumer.leave()
        self.consumers.clear()
        self.wanted.clear()
        self.wake()


class ShareSessions:
    """The share sessions of a broker's listeners of a namespace."""

    def __init__(
        self, sessions_max: int = SESSIONS_MAX, bytes_max: int = SESSION_BYTES_MAX
    ) -> None:
        """Begin without sessions."""
        self._bytes_max = bytes_max
        self._size = 0  # Bytes kept for all sessions.
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of: dict[int, dict[SessionKey, ShareSession]] = {}  # By identity of the owner.
        self._sessions_max = sessions_max

    def open(self, key: SessionKey, owner: object, address: str) -> ShareSession:
        """Begin a session, instead of the member's former session. Raises ShareRefused."""
        former = self._sessions.get(key)
        if former is not None:
            self.end(former)
        if len(self._sessions) >= self._sessions_max:
            raise ShareRefused(Code.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(key, owner, address)
        self._sessions[key] = session
        self._size += session.size
        self._of.setdefault(id(owner), {})[key] = session
        return session

    def find(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request with that epoch. Raises ShareRefused."""
        session = self._sessions.get(key)
        if session is None:
            raise ShareRefused(Code.SHARE_SESSION_NOT_FOUND)
        if epoch != CLOSE_EPOCH:
            if epoch != session.epoch:
                raise ShareRefused(Code.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return session

    def change(
        self, session: ShareSession, added: Iterable[Place], forgotten: Iterable[Place]
    ) -> None:
        """Add and remove partitions to fetch. Raises ShareRefused, after the session's end."""
        self._size -= session.size
        session.change(added, forgotten)
        self._size += session.size
        if self._size > self._bytes_max:
            self.end(session)
            reason = f"share sessions exceed the limit of {self._bytes_max} bytes"
            raise ShareRefused(Code.SHARE_SESSION_LIMIT_REACHED, reason)

    def end(self, session: ShareSession) -> None:
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
            self._size -= session.size
        owned = self._of.get(id(session.owner), {})
        owned.pop(session.key, None)
        if not owned:
            self._of.pop(id(session.owner), None)
        session.end()

    def end_of(self, owner: object) -> None:
        """End the sessions of a connection that has ended."""
        for session in list(self._of.get(id(owner), {}).values()):
            self.end(session)
