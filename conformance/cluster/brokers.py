"""Brokers over a shared store, for runs: their settings, and the commands on the store."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from conformance.cluster.network import LOOPBACK, OUTSIDE, ServerPlace
from conformance.cluster.proxies import BROKERS, Proxies
from conformance.cluster.servers import BUCKET, KEYS, Postgres, Seaweed
from conformance.ports import reserve_ports
from conformance.server import RunningBroker

PORTS: Final = {"kafka": 9092, "pulsar": 6650, "iggy": 8090, "http": 8080}
INTERNAL_PORT: Final = 7400


def settings_for(postgres: Postgres, seaweed: Seaweed, prefix: str) -> list[str]:
    """Return the settings of brokers and commands, for `--set`."""
    return [
        "storage.mode=shared",
        f"shared.database={postgres.database}",
        f"shared.store=s3://{BUCKET}/{prefix}",
        f"shared.endpoint={seaweed.endpoint}",
    ]


def command(settings: list[str], *arguments: str) -> tuple[int, str]:
    """Run `braidlog cluster ...`; return the exit code and the output."""
    flags = [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "braidlog.broker.cli.main", "cluster", *arguments, *flags],
        env=os.environ | KEYS,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def proxied(postgres: Postgres, seaweed: Seaweed, proxies: Proxies, node: int) -> list[str]:
    """Return the settings of a broker that reaches both stores through its own proxies."""
    name = f"{BROKERS}{node}"
    host, port = proxies.through(name, "pg", (postgres.place.host, postgres.port))
    database = postgres.database.replace(f":{postgres.port}/", f":{port}/")
    s3_host, s3_port = proxies.through(name, "s3", (seaweed.place.host, seaweed.port))
    assert host == postgres.place.host
    return [f"shared.database={database}", f"shared.endpoint=http://{s3_host}:{s3_port}"]


class ClusterBroker(RunningBroker):
    """A broker of a cluster with all listeners, optionally in its own namespace or
    behind proxies.
    """

    def __init__(
        self,
        folder: Path,
        node: int,
        settings: Sequence[str],
        place: ServerPlace = LOOPBACK,
        proxies: Proxies | None = None,
    ) -> None:
        own = [*settings, f"cluster.node_id={node}"]
        listen = {}
        if place.enter:
            own.append(f"cluster.listen={place.host}:{INTERNAL_PORT}")
            own += [f"listeners.{name}.insecure=true" for name in PORTS]
            listen = {name: f"{place.host}:{port}" for name, port in PORTS.items()}
            # By default, a broker uses this password on loopback only.
            password = folder / "password"
            folder.mkdir(parents=True, exist_ok=True)
            password.write_text("iggy")
            own.append(f"listeners.iggy.password_file={password}")
        self._proxied: dict[str, str] = {}
        reserved = ExitStack()
        if proxies is not None:
            ports = reserve_ports(len(PORTS) + 1, reserved)
            listen, advertised = self._behind(proxies, f"{BROKERS}{node}", ports)
            own += advertised
        super().__init__(folder, listen=listen, settings=own, environment=KEYS)
        self._held.push(reserved)
        self.node = node
        self._enter = list(place.enter)

    def _behind(
        self, proxies: Proxies, name: str, reserved: Sequence[int]
    ) -> tuple[dict[str, str], list[str]]:
        """Return the listen addresses and the settings that advertise the proxies instead."""
        host = LOOPBACK.host
        listen, settings = {}, []
        *ports, port = reserved
        for protocol, port_of_it in zip(PORTS, ports, strict=True):
            seen_host, seen_port = proxies.through(OUTSIDE, name, (host, port_of_it))
            self._proxied[protocol] = f"{seen_host}:{seen_port}"
            listen[protocol] = f"{host}:{port_of_it}"
            settings.append(f"listeners.{protocol}.advertised={self._proxied[protocol]}")
        seen_host, seen_port = proxies.through(BROKERS, name, (host, port))
        settings.append(f"cluster.listen={host}:{port}")
        settings.append(f"cluster.advertised={seen_host}:{seen_port}")
        return listen, settings

    def is_ready(self) -> bool:
        """Like `RunningBroker.is_ready`; clients use the proxies."""
        ready = super().is_ready()
        self.addresses = {**self.addresses, **self._proxied} if self.addresses else {}
        return ready

    @property
    def command(self) -> list[str]:
        """Return the command line."""
        return [*self._enter, *super().command]
