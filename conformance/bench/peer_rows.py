"""What `conformance.bench.peers` is made of: a broker that is measured, and one kind of work."""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

SAID_MAX = 500  # Characters of what a generator said before it gave up.

Figures = dict[str, float]


@dataclass(slots=True)
class Server:
    """A broker that answers one protocol at an address."""

    name: str
    protocol: str
    address: str
    pid: int
    version: int  # of Kafka's Produce: 0 with message sets, 3 with record batches
    topics: Iterator[int] = field(default_factory=itertools.count)

    def topic(self) -> str:
        """A fresh name, also in a broker whose other protocols see the same topics."""
        return f"peers-{os.getpid()}-{self.protocol}-{next(self.topics):04d}"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address in parts."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)


Run = Callable[[Server, str, float], tuple[int, Figures]]  # messages, and what else it tells


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work, done by one generator on a topic for so many seconds."""

    name: str
    protocol: str
    run: Run
    prepare: Callable[[Server, str, float], None] | None = None  # what is not measured
    versions: frozenset[int] = frozenset({0, 3})  # of Kafka's Produce, in brokers that it is for

    def is_for(self, server: Server) -> bool:
        """Whether that broker can be asked so."""
        return self.protocol == server.protocol and server.version in self.versions


class RowFailed(Exception):
    """A generator gave up. What the others measured stands."""
