"""What can go wrong in a run: one cause each, which returns once it has passed.

A broker that ends is started again by the run, as a supervisor does.
"""

import random
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import psycopg

from conformance.cluster.network import OUTSIDE

if TYPE_CHECKING:
    from conformance.cluster.brokers import ClusterBroker
    from conformance.cluster.running import Cluster

HANG_S: Final = 4.0  # Beyond the lease of `running.QUICK`,
# and beyond the patience of some clients: what those that went elsewhere had asked is still read.
LONG_S: Final = 9.0
CUT_S_MIN, CUT_S_MAX = 1.0, 3.0
DOWN_S: Final = 2.0  # A store.

Cause = Callable[["Cluster", "ClusterBroker", random.Random], None]


def kill(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """SIGKILL."""
    broker.kill()


def stop(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """A clean stop."""
    broker.stop()


def _hangs(seconds: float) -> Cause:
    """SIGSTOP of a broker for so long."""

    def cause(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
        broker.signal(signal.SIGSTOP)
        time.sleep(seconds)
        broker.signal(signal.SIGCONT)

    return cause


def _server_hangs(name: str) -> Cause:
    """A server (`seaweed`, `postgres`) answers nobody for a while."""

    def cause(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
        server = getattr(cluster, name)
        server.send(signal.SIGSTOP)
        time.sleep(DOWN_S)
        server.send(signal.SIGCONT)

    return cause


def _server_restarts(name: str) -> Cause:
    """A server is gone for a while."""

    def cause(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
        server = getattr(cluster, name)
        server.stop()
        time.sleep(DOWN_S)
        server.start()

    return cause


def backends(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """Every connection to PostgreSQL ends, some statements in their middle."""
    with psycopg.connect(cluster.postgres.database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = 'braidlog'"
        )


def _cut(party: str, *, to: bool, back: bool) -> Cause:
    """The broker sends nothing to that party (`to`), or gets nothing from it (`back`)."""

    def cause(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
        assert cluster.network is not None
        one = f"node{broker.node}"
        other = party
        if party == "node":
            other = f"node{rng.choice([n.node for n in cluster.brokers if n is not broker])}"
        if to:
            cluster.network.cut(one, other)
        if back:
            cluster.network.cut(other, one)
        time.sleep(rng.uniform(CUT_S_MIN, CUT_S_MAX))
        cluster.network.heal()

    return cause


WHERE = {"postgres": "pg", "store": "s3", "another": "node", "clients": OUTSIDE}
WAYS = {"cut from": (True, True), "nothing to": (True, False), "nothing from": (False, True)}
CUTS: Mapping[str, Cause] = {
    f"{way} {name}": _cut(party, to=to, back=back)
    for name, party in WHERE.items()
    for way, (to, back) in WAYS.items()
}
CAUSES: Mapping[str, Cause] = {
    "kill": kill,
    "stop": stop,
    "hang": _hangs(HANG_S),
    "hang long": _hangs(LONG_S),
    "store hangs": _server_hangs("seaweed"),
    "store restarts": _server_restarts("seaweed"),
    "postgres hangs": _server_hangs("postgres"),
    "postgres restarts": _server_restarts("postgres"),
    "backends": backends,
    **CUTS,
}
# Twelve that together leave no kind and no party out; for the short run.
SHORT: Final = (
    "kill",
    "cut from postgres",
    "hang",
    "cut from store",
    "backends",
    "cut from another",
    "postgres restarts",
    "nothing from postgres",
    "store hangs",
    "cut from clients",
    "stop",
    "nothing to store",
)
