"""`python -m conformance.policies [--seconds 10] [--no-cluster]`: Pulsar's policies under load.

Sets each policy for the broker (settings), for a namespace and for a topic (the admin API's calls),
and drives clients against it: a rate has to hold within a tenth, and a limit has to refuse the next
client with Apache's error. The same is checked again after a SIGKILL of the broker; and in a
cluster, after the owner of the topics was killed and another broker took them over. All policies
have to show in the console and on the command line.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from conformance.cluster import servers
from conformance.cluster.running import QUICK, RunningCluster
from conformance.ending import end_on_signals
from conformance.policies import limits, rates, shown
from conformance.policies.place import Place
from conformance.policies.rates import RateCheck
from conformance.server import RunningBroker

SETTINGS: Final = (*rates.SETTINGS, *limits.SETTINGS)
SHARDS_FREE_S: Final = 120.0  # Until others have taken over a killed broker's topics.


def check(place: Place, title: str, checks: Sequence[RateCheck], seconds: float) -> list[str]:
    """Check all policies at a broker once; print the results of the rates and return the faults."""
    rates.fill(place, checks, seconds)
    counts = rates.measure(place, checks, seconds)
    slow = [load for load in checks if load.is_short(counts[load.name], seconds)]
    for load in slow:  # The machine may have been busy: alone, a client has more of it.
        rates.fill(place, [load], seconds)
        counts |= rates.measure(place, [load], seconds)
    for name, count in counts.items():
        print(f"{title}: {name}: {count} in {seconds:g} s", flush=True)
    faults = list(rates.faults(checks, counts, seconds))
    for limited in limits.CHECKS:
        faults += limited.faults(place)
    return [f"{title}: {fault}" for fault in faults]


def prepare(place: Place, checks: Sequence[RateCheck]) -> None:
    """Set every policy."""
    rates.prepare(place, checks)
    for limited in limits.CHECKS:
        limited.prepare(place)
    shown.prepare(place)


def run_alone(checks: Sequence[RateCheck], seconds: float) -> list[str]:
    """Check a broker, kill it, and check it again."""
    with RunningBroker(settings=SETTINGS) as broker:
        place = Place(broker.addresses)
        prepare(place, checks)
        faults = [*shown.faults(place), *check(place, "alone", checks, seconds)]
        broker.kill()
        broker.start()
        place = Place(broker.addresses)
        return [
            *faults,
            *shown.faults(place),
            *check(place, "after SIGKILL", checks, seconds),
        ]


def run_cluster(checks: Sequence[RateCheck], seconds: float) -> list[str]:
    """Check the brokers of a cluster that take over a killed owner's topics."""
    with tempfile.TemporaryDirectory(prefix="braidlog-") as folder:
        settings = (*QUICK, *SETTINGS)
        with RunningCluster(Path(folder), settings, cuts=False) as cluster:
            cluster.await_all()
            place = Place(cluster.brokers[0].addresses, compacts=False)
            cluster.surely(lambda: prepare(place, checks))
            before = cluster.owners()
            cluster.brokers[0].kill()
            place = Place(cluster.brokers[1].addresses, compacts=False)
            cluster.brokers[2].kill()  # One broker has every topic: all protocols can ask it.
            deadline = time.monotonic() + SHARDS_FREE_S
            while set(cluster.owners().values()) != {cluster.brokers[1].node}:
                if time.monotonic() > deadline:
                    return [f"the shards stay with {cluster.owners()}, before {before}"]
                time.sleep(0.2)
            return [*shown.faults(place), *check(place, "after a takeover", checks, seconds)]


def main() -> int:
    """Return 1 if a policy did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="time of each measurement")
    parser.add_argument("--no-cluster", action="store_true", help="leave out the takeover")
    options = parser.parse_args()
    end_on_signals()
    faults = run_alone(rates.CHECKS, options.seconds)
    if not options.no_cluster:
        if servers.postgres_folder() is None:
            print("PostgreSQL is not installed: no takeover", file=sys.stderr)
        else:
            faults += run_cluster(rates.CHECKS, options.seconds)
    print("\n".join(faults) or "every policy holds")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
