"""`make cluster`: PostgreSQL, SeaweedFS and three brokers on this machine, to play with.

All files are in a scratch folder, which is deleted at the end.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conformance.cluster import servers
from conformance.cluster.brokers import settings_for
from conformance.ending import end_on_signals
from conformance.server import RunningBroker

NODES = 3
LOOK_S = 0.5


def main() -> int:
    """Run until Ctrl-C, SIGTERM or SIGHUP."""
    reason = servers.missing()
    if reason is not None:
        print(f"make cluster: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="braidlog-cluster-") as scratch:
        folder = Path(scratch)
        os.chmod(folder, 0o755)  # PostgreSQL runs as another user.
        with servers.Postgres(folder / "pg") as postgres, servers.Seaweed(folder / "s3") as seaweed:
            try:
                play(folder, postgres, seaweed)
            except KeyboardInterrupt:
                print("\nstopping")
    return 0


def play(folder: Path, postgres: servers.Postgres, seaweed: servers.Seaweed) -> None:
    """Create a cluster, start the brokers, and report each serving broker."""
    settings = settings_for(postgres, seaweed, "play")
    flags = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "braidlog.broker.cli.main", "cluster"]
    environment = os.environ | servers.KEYS
    subprocess.run([*command, "init", *flags], env=environment, check=True)
    print("look at it: AWS_ACCESS_KEY_ID=braidlog AWS_SECRET_ACCESS_KEY=braidlog \\")
    print(f"  AWS_REGION=us-east-1 {' '.join([*command, 'show', *flags])}")
    brokers = [
        RunningBroker(
            folder / f"node{node}",
            settings=[*settings, f"cluster.node_id={node}"],
            environment=servers.KEYS,
        )
        for node in range(1, NODES + 1)
    ]
    try:
        for broker in brokers:
            broker.launch()
            print(f"node {brokers.index(broker) + 1} is process {broker.pid}: kill -9 it")
        watch(brokers)
    finally:
        for broker in brokers:
            broker.kill()


def watch(brokers: list[RunningBroker]) -> None:
    """Report serving and ended brokers; restart a broker that ended."""
    states: dict[int, str] = {}
    while True:
        for node, broker in enumerate(brokers, 1):
            if not broker.is_running():
                broker.launch()
            state = "waits until every topic has an owner"
            if broker.is_ready():
                listeners = broker.addresses.items()
                state = "serves " + " ".join(f"{name} {where}" for name, where in listeners)
            if states.get(node) != state:
                states[node] = state
                print(f"node {node} {state}", flush=True)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
