"""A network of namespaces on this machine, one per party of a run, where packets between two
parties can be dropped: both ways, or in a single direction.

A bridge joins the namespaces; the starting process stays outside, as another party. A cut gives the
sender a wrong hardware address for the receiver: the sender's packets leave, and nobody takes them.
Needs root.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

# For tests of network gear (RFC 2544): no real machine has such an address.
SUBNET: Final = "198.18"
NETWORKS_MAX: Final = 250
NOBODY: Final = "02:ff:00:00:00:00"
OUTSIDE: Final = "clients"


class NoNetwork(Exception):
    """This machine allows no namespaces; the text names the refused action."""


@dataclass(slots=True, frozen=True)
class ServerPlace:
    """The place of a server: its address, and the prefix of its command line."""

    host: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


LOOPBACK: Final = ServerPlace()


class Network:
    """A context manager; the namespaces are removed at the end, even if processes run in them."""

    def __init__(self, parties: Sequence[str]) -> None:
        """Raises NoNetwork."""
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter"))):
            raise NoNetwork("namespaces need root, `ip` and `nsenter`")
        self._number = self._make_bridge()
        self._parties = {OUTSIDE: 254, **{name: at for at, name in enumerate(parties, 1)}}
        self._cuts: set[tuple[str, str]] = set()
        try:
            for name in parties:
                self._make(name)
            self.heal()
        except NoNetwork:
            self.close()
            raise

    def place(self, name: str) -> ServerPlace:
        """Return the place of a party."""
        return ServerPlace(
            self._host(name), ("nsenter", f"--net=/run/netns/{self._namespace(name)}")
        )

    def cut(self, sender: str, receiver: str) -> None:
        """Drop all packets from the sender to the receiver from now on."""
        self._cuts.add((sender, receiver))
        self._point(sender, receiver, NOBODY)

    def heal(self) -> None:
        """End all cuts."""
        for sender in self._parties:
            for receiver in self._parties:
                if sender != receiver and (not self._cuts or (sender, receiver) in self._cuts):
                    self._point(sender, receiver, self._hardware(receiver))
        self._cuts.clear()

    def close(self) -> None:
        """Remove all namespaces and the bridge."""
        for name in self._parties:
            if name != OUTSIDE:
                subprocess.run(
                    ["ip", "netns", "del", self._namespace(name)], capture_output=True, check=False
                )
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_bridge(self) -> int:
        """Create a bridge; return the number of a network that is unused on this machine."""
        for step in range(NETWORKS_MAX):
            number = (os.getpid() + step) % NETWORKS_MAX
            problem = _ip("link", "add", f"braid{number}", "type", "bridge")
            if not problem:
                self._number = number
                _surely("link", "set", self._bridge, "address", self._hardware(OUTSIDE), "up")
                _surely("addr", "add", f"{SUBNET}.{number}.254/24", "dev", self._bridge)
                return number
            if "exists" not in problem:
                raise NoNetwork(problem)
        raise NoNetwork("too many networks of other runs")

    def _make(self, name: str) -> None:
        namespace, port = self._namespace(name), f"{self._bridge}-{self._at(name)}"
        _surely("netns", "add", namespace)
        _surely("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _surely("link", "set", port, "master", self._bridge, "up")
        inside = ("-n", namespace)
        _surely(*inside, "link", "set", "lo", "up")
        _surely(*inside, "link", "set", "eth0", "address", self._hardware(name), "up")
        _surely(*inside, "addr", "add", f"{self._host(name)}/24", "dev", "eth0")

    def _point(self, sender: str, receiver: str, hardware: str) -> None:
        inside = () if sender == OUTSIDE else ("-n", self._namespace(sender))
        device = self._bridge if sender == OUTSIDE else "eth0"
        entry = (self._host(receiver), "lladdr", hardware, "dev", device, "nud", "permanent")
        _surely(*inside, "neigh", "replace", *entry)

    @property
    def _bridge(self) -> str:
        return f"braid{self._number}"

    def _at(self, name: str) -> int:
        return 254 if name == OUTSIDE else self._parties[name]

    def _namespace(self, name: str) -> str:
        return f"{self._bridge}-{name}"

    def _host(self, name: str) -> str:
        return f"{SUBNET}.{self._number}.{self._at(name)}"

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:{self._number:02x}:{self._at(name):02x}"


def _ip(*arguments: str) -> str:
    """Return the reason of a refusal by `ip`, or ""."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    return (done.stderr.strip() or "it failed") if done.returncode else ""


def _surely(*arguments: str) -> None:
    if refused := _ip(*arguments):
        raise NoNetwork(f"ip {' '.join(arguments)}: {refused}")
