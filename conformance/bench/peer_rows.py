"""The parts of `conformance.bench.peers`: a measured broker, and a kind of work."""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

SAID_MAX = 500  # Characters of a failed generator's output in the report.

Figures = dict[str, float]


@dataclass(slots=True)
class PeerServer:
    """A broker that serves a protocol at an address."""

    name: str
    protocol: str
    address: str
    pid: int
    version: int  # of Kafka's Produce: 0 with message sets, 3 with record batches
    topics: Iterator[int] = field(default_factory=itertools.count)

    def topic(self) -> str:
        """Return a fresh name, unique also in a broker whose other protocols see
        the same topics.
        """
        return f"peers-{os.getpid()}-{self.protocol}-{next(self.topics):04d}"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address in parts."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)


# Returns the number of messages and further figures.
Run = Callable[[PeerServer, str, float], tuple[int, Figures]]


@dataclass(frozen=True, slots=True)
class PeerRow:
    """A kind of work that a generator does on a topic for a number of seconds."""

    name: str
    protocol: str
    run: Run
    prepare: Callable[[PeerServer, str, float], None] | None = None  # not measured
    # versions of Kafka's Produce in the brokers for this row
    versions: frozenset[int] = frozenset({0, 3})

    def is_for(self, server: PeerServer) -> bool:
        """Return True if this row can run against that broker."""
        return self.protocol == server.protocol and server.version in self.versions


class RowFailed(Exception):
    """A generator gave up; the figures of the other generators stand."""
