"""What can go wrong in a run: one cause each, which returns once it has passed.

A broker that ends is started again by the run, as a supervisor does.
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
    from conformance.cluster.running import Cluster
    from conformance.cluster.servers import Server

HANG_S: Final = 4.0  # Beyond the lease of `running.QUICK`,
# and beyond the patience of some clients: what those that went elsewhere had asked is still read.
LONG_S: Final = 9.0
CUT_S_MIN, CUT_S_MAX = 1.0, 3.0
DOWN_S: Final = 2.0  # A store.
RETURNS_S: Final = 30.0  # For topics to come back after a drain: two leases and a look.

Cause = Callable[["Cluster", "ClusterBroker", random.Random], None]
Act = Callable[["Cluster", "ClusterBroker"], object]


def kill(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """SIGKILL."""
    broker.kill()


def stop(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """A clean stop."""
    broker.stop()


def set_drain(cluster: "Cluster", broker: "ClusterBroker", *, drains: bool) -> None:
    """By the command line: the broker owns nothing, or may own topics again. Raises Lost."""
    flags = [] if drains else ["--undo"]
    code, said = command(cluster.settings, "drain", str(broker.node), *flags)
    if code:
        raise Lost(f"drain {broker.node} {' '.join(flags)}: {said}")


def drain(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
    """Its topics move to the others, and after a while back to it. Raises Lost."""
    set_drain(cluster, broker, drains=True)
    set_drain(cluster, broker, drains=False)
    deadline = time.monotonic() + RETURNS_S
    while broker.node not in cluster.owners().values() and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def _for_a_while(seconds: float, begin: Act, end: Act) -> Cause:
    """Something that passes by itself."""

    def cause(cluster: "Cluster", broker: "ClusterBroker", rng: random.Random) -> None:
        begin(cluster, broker)
        time.sleep(seconds)
        end(cluster, broker)

    return cause


def _hangs(seconds: float) -> Cause:
    """A broker does nothing for so long."""
    return _for_a_while(
        seconds,
        lambda _, broker: broker.signal(signal.SIGSTOP),
        lambda _, broker: broker.signal(signal.SIGCONT),
    )


def _server_hangs(server: Callable[["Cluster"], "Server"]) -> Cause:
    """A store answers nobody for a while."""
    return _for_a_while(
        DOWN_S,
        lambda cluster, _: server(cluster).send(signal.SIGSTOP),
        lambda cluster, _: server(cluster).send(signal.SIGCONT),
    )


def _server_restarts(server: Callable[["Cluster"], "Server"]) -> Cause:
    """A store is gone for a while."""
    return _for_a_while(
        DOWN_S,
        lambda cluster, _: server(cluster).stop(),
        lambda cluster, _: server(cluster).start(),
    )


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
# Fifteen that together leave no kind and no party out; for the short run.
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
