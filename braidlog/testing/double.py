"""A broker for the tests of other programs, in a thread of the test's own process.

The broker is the real one, with its four listeners on free ports of the loopback interface; the
data lie in a temporary folder that is removed at the end.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Self, TypeVar
from uuid import uuid4

import structlog
import trio

from braidlog.storage.metadata.names import TopicName
from braidlog.testing.faults import Fault
from braidlog.testing.running import Running, run_broker

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
# Characters that each protocol accepts in a topic's name; others become a hyphen.
ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")
NAME_CHARACTERS_MAX = 60
T = TypeVar("T")


class BrokerNotStarted(RuntimeError):
    """The broker did not start; the text says why."""


class Braidlog:
    """A running broker; a context manager, for `with` and for `async with` on trio and asyncio.

    `settings` are settings of docs/settings.md by their dotted names, as in
    `Braidlog({"topics.num_partitions": "3"})`.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._thread: threading.Thread | None = None
        self._started: Future[Running] = Future()

    def start(self) -> Self:
        """Start the broker; return when every listener accepts. Raises BrokerNotStarted."""
        log_to_logging()
        if self._thread is not None:
            raise BrokerNotStarted("this broker was started before: create another one")
        self._thread = threading.Thread(target=self._run, name="braidlog", daemon=True)
        self._thread.start()
        try:
            self._started.result(START_TIMEOUT_S)
        except TimeoutError:
            raise BrokerNotStarted(f"no start within {START_TIMEOUT_S:.0f} s") from None
        return self

    def stop(self) -> None:
        """Stop the broker and remove its data. Raises RuntimeError if the broker does not stop."""
        running = self._running
        running.token.run_sync_soon(running.stop)
        assert self._thread is not None
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await _in_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await _in_thread(self.stop)

    @property
    def kafka(self) -> str:
        """The `bootstrap.servers` of Kafka clients: host:port."""
        return self._running.addresses["kafka"]

    @property
    def pulsar(self) -> str:
        """The service URL of Pulsar clients."""
        return f"pulsar://{self._running.addresses['pulsar']}"

    @property
    def iggy(self) -> str:
        """The TCP address of Iggy clients: host:port."""
        return self._running.addresses["iggy"]

    @property
    def http(self) -> str:
        """The URL of the HTTP listener."""
        return f"http://{self._running.addresses['http']}"

    @property
    def control(self) -> str:
        """The URL at which other programs inject faults."""
        return f"http://{self._running.addresses['control']}"

    def inject(self, fault: Fault) -> dict[str, object]:
        """Begin a fault; return its details for the caller. Raises ValueError, OSError."""
        return self._call(fault.inject)

    def heal(self) -> None:
        """End all faults, but for a clock that was moved."""

        async def heal(running: Running) -> None:
            running.heal()

        self._call(heal)

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic in the namespace public/default; return its name. Raises BrokerError."""

        async def create(running: Running) -> None:
            topics = running.broker.topics
            topic = await topics.create(TopicName("public", "default", name), partitions)
            await running.broker.durability.reached(topic.ticket)

        self._call(create)
        return name

    def namespace(self, name: str) -> Namespace:
        """Return names of topics and groups that no other test uses."""
        return Namespace(self, name)

    def delete_topics(self, prefix: str) -> None:
        """Delete the topics of public/default with such names."""

        async def delete(running: Running) -> None:
            topics = running.broker.topics
            for topic in topics.list("public", "default"):
                if topic.name.topic.startswith(prefix):
                    await topics.delete(topic.name)

        self._call(delete)

    def _run(self) -> None:
        try:
            settings = [(key, value, f"setting {key}") for key, value in self._settings.items()]
            run_broker(settings, self._started.set_result)
        except BaseException as error:  # `start` raises the error in its own thread.
            if self._started.done():
                raise
            self._started.set_exception(BrokerNotStarted(str(error)))

    @property
    def _running(self) -> Running:
        if not self._started.done():
            raise BrokerNotStarted("the broker is not started: use `with` or start()")
        return self._started.result()

    def _call(self, act: Callable[[Running], Awaitable[T]]) -> T:
        """Run an asynchronous function in the broker's event loop; return its result."""
        running = self._running
        return trio.from_thread.run(act, running, trio_token=running.token)


class Namespace:
    """Names that one test uses alone, for topics and groups of every protocol.

    A name begins with the namespace's own prefix: all protocols share the names of public/default.
    """

    def __init__(self, broker: Braidlog, name: str) -> None:
        short = ILLEGAL.sub("-", name).strip("-.")[:NAME_CHARACTERS_MAX]
        self.broker = broker
        self.prefix = f"{short}-{uuid4().hex[:8]}"

    def topic(self, name: str = "topic", partitions: int = 1) -> str:
        """Create a topic of this namespace; return its whole name. Raises BrokerError."""
        return self.broker.create_topic(self.name(name), partitions)

    def name(self, name: str) -> str:
        """Return the whole name of a topic or group of this namespace."""
        return f"{self.prefix}-{name}"

    def delete(self) -> None:
        """Delete the topics of this namespace."""
        self.broker.delete_topics(f"{self.prefix}-")


async def _in_thread(act: Callable[[], T]) -> T:
    """Run a function in a thread, from trio or from asyncio."""
    if trio.lowlevel.in_trio_run():
        return await trio.to_thread.run_sync(act)
    return await asyncio.to_thread(act)


def log_to_logging() -> None:
    """Send the broker's log lines to the module `logging`, unless the program configured structlog
    itself: pytest shows such lines with the test that failed.
    """
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.stdlib.render_to_log_kwargs,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
        )
