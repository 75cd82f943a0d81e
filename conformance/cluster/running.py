"""Three brokers, PostgreSQL and SeaweedFS for a run.

Each server runs in its own network namespace if this machine allows that, else on loopback with TCP
proxies between the servers.
"""

import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

import psycopg

from conformance.cluster import servers
from conformance.cluster.brokers import ClusterBroker, command, proxied, settings_for
from conformance.cluster.network import LOOPBACK, Network, NoNetwork, ServerPlace
from conformance.cluster.proxies import Proxies

NODES: Final = (1, 2, 3)
PREFIX: Final = "faults"  # Of the objects in the bucket.
QUICK: Final = (
    "shared.round_ms=20",
    "shared.pack_ms=1000",
    "shared.delete_after_ms=2000",
    "shared.put_timeout_ms=3000",
    "log.segment_bytes=256KiB",
    "topics.num_partitions=1",
    "topics.deduplication=true",
    "cluster.lease_ms=3000",
    "cluster.beat_ms=500",
    "cluster.stall_ms=2000",
    "cluster.serve_without_beat_ms=20000",
    "log_level=warning",
)
# Time for all brokers and all kinds of clients to recover from a fault: many times the usual time.
GOES_ON_S: Final = 120.0
LOOK_S: Final = 0.2

T = TypeVar("T")


def shard_owners(database: str) -> dict[int, int]:
    """Return the node of each shard that has an owner, read from the cluster's database."""
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT shard, node FROM shards JOIN sessions USING (session)"
        ).fetchall()
    return {int(shard): int(node) for shard, node in rows}


class Lost(AssertionError):
    """A broken promise; the text names the promise."""


class RunningCluster:
    """PostgreSQL, SeaweedFS and three brokers, each in its own place; a context manager."""

    def __init__(
        self,
        folder: Path,
        settings: Sequence[str] = QUICK,
        *,
        cuts: bool = True,
        namespaces: bool = True,
    ) -> None:
        """Without `cuts`, all servers are on loopback; without `namespaces`,
        proxies make the cuts.
        """
        self.folder = folder
        self._settings = settings
        self._cuts = cuts
        self._namespaces = namespaces
        self._held = ExitStack()
        self.network: Network | Proxies | None = None

    def __enter__(self) -> "RunningCluster":
        with self._held as held:
            if self._cuts:
                self.network = held.enter_context(self._make_network())
            self._start(held)
            self._held = held.pop_all()
        return self

    def _make_network(self) -> Network | Proxies:
        if self._namespaces:
            try:
                return Network([*(f"node{node}" for node in NODES), "pg", "s3"])
            except NoNetwork as reason:
                print(f"cuts by proxies: {reason}", flush=True)
        return Proxies()

    def _start(self, held: ExitStack) -> None:
        self.folder.chmod(0o755)  # PostgreSQL runs as another user.
        folder = self.folder
        self.postgres = held.enter_context(servers.Postgres(folder / "pg", self._place("pg")))
        self.seaweed = held.enter_context(servers.Seaweed(folder / "s3", self._place("s3")))
        self.settings = [*settings_for(self.postgres, self.seaweed, PREFIX), *self._settings]
        self._init()
        self.brokers = [self._broker(node) for node in NODES]
        for broker in self.brokers:
            held.callback(broker.close)
        held.callback(self.kill)

    def _init(self) -> None:
        """Create the cluster; the first object of a new store may take long. Raises Lost."""
        deadline = time.monotonic() + GOES_ON_S
        while True:
            code, output = command(self.settings, "init")
            if not code:
                return
            if time.monotonic() > deadline:
                raise Lost(output)
            time.sleep(LOOK_S)

    def _broker(self, node: int) -> ClusterBroker:
        folder, place = self.folder / f"node{node}", self._place(f"node{node}")
        if not isinstance(self.network, Proxies):
            return ClusterBroker(folder, node, self.settings, place)
        stores = proxied(self.postgres, self.seaweed, self.network, node)
        return ClusterBroker(folder, node, [*self.settings, *stores], place, self.network)

    def _place(self, name: str) -> ServerPlace:
        return LOOPBACK if self.network is None else self.network.place(name)

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def keep_running(self) -> None:
        """Restart ended servers, as a supervisor does, and read the addresses of
        serving brokers.
        """
        for broker in self.brokers:
            if not broker.is_running():
                broker.launch()
            else:
                broker.is_ready()  # Reads the addresses of the listeners.

    def addresses(self, protocol: str) -> list[str]:
        """Return listeners of the running brokers; all listeners before the first
        broker is ready.
        """
        return [broker.addresses[protocol] for broker in self.brokers if broker.addresses]

    def await_all(self) -> None:
        """Return once every broker serves. Raises Lost."""
        deadline = time.monotonic() + GOES_ON_S
        while not all(broker.is_running() and broker.is_ready() for broker in self.brokers):
            self.keep_running()
            if time.monotonic() > deadline:
                raise Lost(f"not all brokers serve after {GOES_ON_S:.0f} s: {self.tails()}")
            time.sleep(0.05)

    def surely(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, with retries: a topic may be moving. Raises Lost."""
        deadline = time.monotonic() + GOES_ON_S
        while True:
            try:
                self.await_all()
                return work()
            except Exception as error:
                if time.monotonic() > deadline or isinstance(error, Lost):
                    raise Lost(f"{error!r}: {self.tails()}") from error
            time.sleep(LOOK_S)

    def owners(self) -> dict[int, int]:
        """Return the present owner of each shard that has an owner."""
        return shard_owners(self.postgres.database)

    def tails(self) -> str:
        """Return the last log lines of each broker."""
        return "\n".join(f"{broker.folder.name}: {broker.log_tail()}" for broker in self.brokers)

    def keep_logs(self, folder: Path) -> None:
        """Copy each broker's log into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for broker in self.brokers:
            shutil.copy(broker.folder / "log", folder / f"{broker.folder.name}.log")

    def kill(self) -> None:
        """End the brokers."""
        for broker in self.brokers:
            if broker.is_running():
                broker.signal(signal.SIGCONT)
            broker.kill()
