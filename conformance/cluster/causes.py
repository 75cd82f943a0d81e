"""The faults of a run: a cause per fault, which returns after the fault has passed.

The run restarts a broker that ends, as a supervisor does.
"""

import random
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import psycopg

from conformance.cluster.brokers import command
from conformance.cluster.databases import another_database, restored_database
from conformance.cluster.network import OUTSIDE
from conformance.cluster.running import LOOK_S, Lost

if TYPE_CHECKING:
    from conformance.cluster.brokers import ClusterBroker
    from conformance.cluster.running import RunningCluster
    from conformance.cluster.servers import ServerProcess

HANG_S: Final = 4.0  # Beyond the lease of `running.QUICK`.
# Beyond the patience of some clients: requests of clients that moved elsewhere are still read.
LONG_S: Final = 9.0
CUT_S_MIN, CUT_S_MAX = 1.0, 3.0
DOWN_S: Final = 2.0  # Downtime of a store.
RETURNS_S: Final = 30.0  # Time for topics to return after a drain: two leases and a check.

Cause = Callable[["RunningCluster", "ClusterBroker", random.Random], None]
Act = Callable[["RunningCluster", "ClusterBroker"], object]


def kill(cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """Kill the broker with SIGKILL."""
    broker.kill()


def stop(cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """Stop the broker cleanly."""
    broker.stop()


def set_drain(cluster: "RunningCluster", broker: "ClusterBroker", *, drains: bool) -> None:
    """Drain the broker by the command line, or undo the drain. Raises Lost."""
    flags = [] if drains else ["--undo"]
    code, output = command(cluster.settings, "drain", str(broker.node), *flags)
    if code:
        raise Lost(f"drain {broker.node} {' '.join(flags)}: {output}")


def drain(cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """Drain the broker: its topics move away and later return. Raises Lost."""
    set_drain(cluster, broker, drains=True)
    set_drain(cluster, broker, drains=False)
    deadline = time.monotonic() + RETURNS_S
    while broker.node not in cluster.owners().values() and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def _for_a_while(seconds: float, begin: Act, end: Act) -> Cause:
    """Return a cause that ends after `seconds`."""

    def cause(cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random) -> None:
        begin(cluster, broker)
        time.sleep(seconds)
        end(cluster, broker)

    return cause


def _hangs(seconds: float) -> Cause:
    """Return a cause that stops the broker's process for `seconds`."""
    return _for_a_while(
        seconds,
        lambda _, broker: broker.signal(signal.SIGSTOP),
        lambda _, broker: broker.signal(signal.SIGCONT),
    )


def _server_hangs(server: Callable[["RunningCluster"], "ServerProcess"]) -> Cause:
    """Return a cause that stops a store's process for a while."""
    return _for_a_while(
        DOWN_S,
        lambda cluster, _: server(cluster).send(signal.SIGSTOP),
        lambda cluster, _: server(cluster).send(signal.SIGCONT),
    )


def _server_restarts(server: Callable[["RunningCluster"], "ServerProcess"]) -> Cause:
    """Return a cause that restarts a store after a while."""
    return _for_a_while(
        DOWN_S,
        lambda cluster, _: server(cluster).stop(),
        lambda cluster, _: server(cluster).start(),
    )


def backends(cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """End every connection to PostgreSQL, some within a statement."""
    with psycopg.connect(cluster.postgres.database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = 'braidlog'"
        )


def _cut(party: str, *, to: bool, back: bool) -> Cause:
    """Return a cause that drops the broker's packets to a party (`to`), or from the
    party (`back`).
    """

    def cause(cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random) -> None:
        assert cluster.network is not None
        namespace = f"node{broker.node}"
        other = party
        if party == "node":
            other = f"node{rng.choice([n.node for n in cluster.brokers if n is not broker])}"
        if to:
            cluster.network.cut(namespace, other)
        if back:
            cluster.network.cut(other, namespace)
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
    "drain": drain,
    "hang": _hangs(HANG_S),
    "hang long": _hangs(LONG_S),
    "store hangs": _server_hangs(lambda cluster: cluster.seaweed),
    "store restarts": _server_restarts(lambda cluster: cluster.seaweed),
    "postgres hangs": _server_hangs(lambda cluster: cluster.postgres),
    "postgres restarts": _server_restarts(lambda cluster: cluster.postgres),
    "backends": backends,
    "another database": another_database,
    "restored database": restored_database,
    **CUTS,
}
# Causes that end no broker.
GENTLE: Final = ("drain", "another database")
# Fifteen causes for the short run that together cover every kind and every party.
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
    "another database",
    "stop",
    "drain",
    "restored database",
    "nothing to store",
)
