"""Producer data in the catalogue: numbers of producer names, and the epochs of topics.

A number stands for a name in batch headers. The number stays while a producer of that name is
connected and for some hours after the last has left; then the name is forgotten, and the number is
never used again. Knows no connection: protocols know the connected producers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.errors import LimitExceeded, StorageFull
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.broker.topics.catalogue import LocalCatalogue

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

# Apache forgets the sequences of a producer that was away this long
# (brokerDeduplicationProducerInactivityTimeoutMinutes).
FORGOTTEN_AFTER_S: Final = 6 * 3600.0
LOOK_S: Final = 600.0
FORGOTTEN_AT_ONCE: Final = 1000

Key = tuple[int, bytes]  # Scope of a topic's producer numbers, and a name.

log = structlog.get_logger()


class ProducerNumbers:
    """Numbers and epochs of all producers."""

    def __init__(
        self,
        catalogue: LocalCatalogue,
        clock_s: Callable[[], float] = trio.current_time,
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        self._names_max = limits.producer_names
        self._catalogue = catalogue
        self._clock_s = clock_s
        self._users: dict[Key, int] = {}  # Connected producers of a name, on any topic.
        # Names without a connected producer; longest idle first.
        self._idle_since: dict[Key, float] = {}

    @property
    def ticket(self) -> int:
        """Ticket after which every number and epoch given so far is on disk."""
        return self._catalogue.ticket

    def names(self) -> Iterator[bytes]:
        """Yield the names of all remembered producers; a name once for each scope."""
        return (name for _, name in self._catalogue.state.producer_numbers())

    def number(self, name: bytes, topic: Topic) -> tuple[int, int]:
        """Return the number, from 1 on, that stands for a name in a topic's batch headers, and the
        ticket that a response to the producer waits for. The caller must `release` the number.

        Raises LimitExceeded, StorageFull, StorageFailed.
        """
        known = self._catalogue.state.producer_numbers()
        key = self._key(name, topic)
        if key not in known and len(known) >= self._names_max:
            self._forget_idle(self._clock_s(), FORGOTTEN_AT_ONCE)
            if len(known) >= self._names_max:
                text = f"{self._names_max} producers with names of their own are connected"
                raise LimitExceeded(text)
        number = self._catalogue.change(self._catalogue.state.producer_id, name, key[0])
        self._users[key] = self._users.get(key, 0) + 1
        self._idle_since.pop(key, None)
        return number, self._catalogue.ticket

    def release(self, name: bytes, topic: Topic) -> None:
        """Release the number that a producer of that name got from `number`."""
        key = self._key(name, topic)
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._idle_since[key] = self._clock_s()

    def _key(self, name: bytes, topic: Topic) -> Key:
        return self._catalogue.state.scope(topic.meta.name), name

    async def run(self) -> None:
        """Forget names that have been unused for long, until cancelled. Raises StorageFailed."""
        now = self._clock_s()
        known = self._catalogue.state.producer_numbers()
        self._idle_since = {
            **{name: now for name in known if name not in self._users},
            **self._idle_since,
        }
        while True:
            await trio.sleep(LOOK_S)
            try:
                while self._forget_idle(self._clock_s() - FORGOTTEN_AFTER_S, FORGOTTEN_AT_ONCE):
                    await trio.lowlevel.checkpoint()
            except StorageFull:
                log.warning("producers_not_forgotten", reason="no space for it on the disk")

    def _forget_idle(self, since: float, count: int) -> int:
        """Forget up to `count` names unused since that time; return how many."""
        known = self._catalogue.state.producer_numbers()
        keys = [key for key, idle_since in self._idle_since.items() if idle_since <= since]
        keys = keys[:count]
        if numbers := [known[key] for key in keys if key in known]:
            self._catalogue.free(self._catalogue.state.forget_producers, numbers)
        for key in keys:
            del self._idle_since[key]
        return len(keys)

    def raise_epoch(self, topic: Topic) -> int:
        """Increment the epoch of the topic's exclusive producers; return the ticket.

        Raises NotOwner, StorageFull, StorageFailed.
        """
        topic.check_here()
        raise_epoch = self._catalogue.state.bump_topic_epoch
        return self._catalogue.change(raise_epoch, topic.meta.topic_id)
