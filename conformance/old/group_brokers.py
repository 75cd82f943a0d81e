"""The brokers of `conformance.old.group`, and their supervisor.

In a cluster a broker that gives no sign of life for a lease loses its session and exits with code
1; a supervisor starts the broker again (docs/cluster.md). On an overloaded machine that happens
without a fault of the broker. Every other end of a broker is a failure of the run.
"""

import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from conformance.clients.raw.zookeeper import ZooKeeper
from conformance.cluster import servers
from conformance.cluster.brokers import command, settings_for
from conformance.server import RunningBroker

WAIT_S: Final = 120.0  # For a group or a broker that must start; a longer wait is a failure.
LOOK_S: Final = 0.25
EXIT_FAILED: Final = 1
# The last words of a broker whose session another broker has ended (`storage/shared/session.py`).
LOST_SESSION: Final = "was ended: another broker took over"
STALE: Final = "braidlog_stale_commits_total"


class PromiseBroken(AssertionError):
    """A broken promise; the text names the promise."""


class SupervisedBroker(Protocol):
    """The part of a broker that the supervisor uses."""

    def is_running(self) -> bool:
        """Return True while the process runs."""

    def is_ready(self) -> bool:
        """Return True if every listener accepts."""

    def wait(self) -> int:
        """Return the exit code."""

    def launch(self) -> object:
        """Start the process."""

    def log_tail(self) -> str:
        """Return the last logged lines."""


class BrokerSupervisor:
    """Starts brokers again that lost their session, except brokers that the run keeps down.

    A broker that ends otherwise is a failure: `check` and `await_ready` raise PromiseBroken.
    """

    def __init__(self, brokers: Sequence[SupervisedBroker]) -> None:
        self.restarts = 0
        self._brokers = brokers
        self._down: list[SupervisedBroker] = []  # Killed by the run.
        self._failure = ""
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "BrokerSupervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Start brokers that have lost their session."""
        with self._lock:
            for number, broker in enumerate(self._brokers, 1):
                if broker in self._down or broker.is_running() or self._failure:
                    continue
                code, tail = broker.wait(), broker.log_tail()
                if code != EXIT_FAILED or LOST_SESSION not in tail.rpartition("\n")[2]:
                    self._failure = f"broker {number} ended with code {code}:\n{tail}"
                    continue
                self.restarts += 1
                clock = time.strftime("%H:%M:%S")
                print(f"{clock} broker {number} lost its lease and starts again", flush=True)
                broker.launch()

    def keep_down(self, broker: SupervisedBroker) -> None:
        """Leave a broker alone that the run is about to kill."""
        with self._lock:
            self._down.append(broker)

    def launch(self, broker: SupervisedBroker) -> None:
        """Start a broker that the run has killed."""
        with self._lock:
            broker.launch()
            self._down.remove(broker)

    def check(self) -> None:
        """Raise PromiseBroken if a broker has failed."""
        if self._failure:
            raise PromiseBroken(self._failure)

    def await_ready(self) -> None:
        """Return once all brokers serve. Raises PromiseBroken."""
        deadline = time.monotonic() + WAIT_S
        while not self._are_ready():
            self.check()
            if time.monotonic() > deadline:
                raise PromiseBroken("\n".join(broker.log_tail() for broker in self._brokers))
            time.sleep(LOOK_S)

    def _are_ready(self) -> bool:
        with self._lock:
            return all(broker.is_running() and broker.is_ready() for broker in self._brokers)


@contextmanager
def single(folder: Path) -> Iterator[list[RunningBroker]]:
    """Run a broker by itself."""
    with RunningBroker(folder / "broker", listen={"zookeeper": "127.0.0.1:0"}) as broker:
        yield [broker]


@contextmanager
def cluster(folder: Path) -> Iterator[list[RunningBroker]]:
    """Run three brokers over a shared store. Raises PromiseBroken."""
    folder.chmod(0o755)  # PostgreSQL runs as another user.
    with ExitStack() as held:
        postgres = held.enter_context(servers.Postgres(folder / "pg"))
        seaweed = held.enter_context(servers.Seaweed(folder / "s3"))
        settings = [*settings_for(postgres, seaweed, "group"), "topics.deduplication=true"]
        code, text = command(settings, "init")
        if code:
            raise PromiseBroken(text)
        brokers = [
            RunningBroker(
                folder / f"node{node}",
                listen={"zookeeper": "127.0.0.1:0"},
                settings=[*settings, f"cluster.node_id={node}"],
                environment=servers.KEYS,
            )
            for node in (1, 2, 3)
        ]
        for broker in brokers:
            held.callback(broker.kill)
            broker.launch()
        yield brokers


def stale_commits(broker: RunningBroker, supervisor: BrokerSupervisor) -> int:
    """Return the number of old commits that moved nothing, since the start of a broker. Raises
    PromiseBroken.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        supervisor.await_ready()
        try:
            with urllib.request.urlopen(f"{broker.url}/metrics", timeout=60) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:  # The broker has just lost its lease.
            if time.monotonic() > deadline:
                raise
            continue
        return sum(int(float(line.split()[1])) for line in lines if line.startswith(STALE))


def controller(addresses: Sequence[str]) -> int:
    """Return the number of the broker that has the sessions. Raises PromiseBroken."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for address in addresses:
            host, _, port = address.rpartition(":")
            client = ZooKeeper()
            try:
                client.connect((host, int(port)))
                data, _ = client.get("/controller")
                client.end()
            except OSError:  # That broker has just lost its lease.
                time.sleep(LOOK_S)
                continue
            text = (data or b"").decode()
            return int(text.partition('"brokerid":')[2].partition(",")[0])
    raise PromiseBroken(f"no broker is the controller after {WAIT_S:.0f} s")
