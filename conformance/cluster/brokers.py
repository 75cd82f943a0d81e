"""Brokers over one shared store, for runs: their settings, and the commands on it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from conformance.cluster.network import LOOPBACK, Place
from conformance.cluster.servers import BUCKET, KEYS, Postgres, Seaweed
from conformance.server import RunningBroker

PORTS: Final = {"kafka": 9092, "pulsar": 6650, "iggy": 8090, "http": 8080}
DOOR: Final = 7400


def settings_for(postgres: Postgres, seaweed: Seaweed, prefix: str) -> list[str]:
    """What brokers and commands need to know, for `--set`."""
    return [
        "storage.mode=shared",
        f"shared.database={postgres.database}",
        f"shared.store=s3://{BUCKET}/{prefix}",
        f"shared.endpoint={seaweed.endpoint}",
    ]


def command(settings: list[str], *arguments: str) -> tuple[int, str]:
    """`braidlog cluster ...`: exit code, and what it printed."""
    flags = [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli.main", "cluster", *arguments, *flags],
        env=os.environ | KEYS,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


class ClusterBroker(RunningBroker):
    """A broker of a cluster with all listeners, which may run in a namespace of its own."""

    def __init__(
        self, folder: Path, node: int, settings: Sequence[str], place: Place = LOOPBACK
    ) -> None:
        own = [*settings, f"cluster.node_id={node}"]
        listen = {}
        if place.enter:
            own.append(f"cluster.listen={place.host}:{DOOR}")
            own += [f"listeners.{name}.insecure=true" for name in PORTS]
            listen = {name: f"{place.host}:{port}" for name, port in PORTS.items()}
            password = folder / "password"  # Of its own accord a broker takes it on loopback alone.
            folder.mkdir(parents=True, exist_ok=True)
            password.write_text("iggy")
            own.append(f"listeners.iggy.password_file={password}")
        super().__init__(folder, listen=listen, settings=own, environment=KEYS)
        self.node = node
        self._enter = list(place.enter)

    @property
    def command(self) -> list[str]:
        """The command line."""
        return [*self._enter, *super().command]
