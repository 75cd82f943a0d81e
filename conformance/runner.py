"""Runs the cases and prints the matrix. A case is a short file in `cases/`; see
`cases/README.md`.
"""

import dataclasses
import importlib
import itertools
import json
import pkgutil
import time
import traceback
from http.client import HTTPConnection
from types import ModuleType

from conformance import cases
from conformance.clients.driver_processes import Drivers
from conformance.clients.libraries import CLIENTS, RAW, LibraryUnavailable
from conformance.clients.proxy import DriverProxy

PASS, FAIL, SKIPPED = "pass", "fail", "skipped"
HTTP_S = 60.0


@dataclasses.dataclass(slots=True)
class CaseOutcome:
    """A cell of the matrix."""

    case: str
    clients: tuple[str, ...]
    result: str
    reason: str
    seconds: float
    promise: str  # A promise to users: the first paragraph of the case's docstring.


class Skip(Exception):
    """Raised by a case that does not apply here; the text gives the reason."""


__all__ = ["RAW", "CaseOutcome", "Context", "Skip", "cells", "find_cases", "run_one"]


class Context:
    """A case's addresses, clients and unique names."""

    _counter = itertools.count()

    def __init__(self, addresses: dict[str, str], drivers: Drivers, names: tuple[str, ...]) -> None:
        """Raises Skip, LibraryUnavailable."""
        self.addresses = addresses
        self.client_names = names
        self.clients = [
            self._open(drivers, name, names[:place].count(name))
            for place, name in enumerate(names)
            if name in CLIENTS
        ]

    @property
    def client(self) -> DriverProxy:
        """Return the only client of a case with a single client."""
        (client,) = self.clients
        return client

    def topic(self) -> str:
        """Return a topic name that no other case uses. Not short: librdkafka refuses tiny metadata
        answers.
        """
        return f"conformance-{time.time_ns():x}-{next(self._counter)}"

    def address(self, listener: str) -> tuple[str, int]:
        """Return host and port of a listener.

        Raises:
            Skip: the run has no address of this listener.
        """
        if listener not in self.addresses:
            raise Skip(f"no {listener} address was given")
        host, _, port = self.addresses[listener].rpartition(":")
        return host, int(port)

    def make_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic with settings over HTTP, before a client's request creates the topic."""
        connection = HTTPConnection(*self.address("http"), timeout=HTTP_S)
        body = json.dumps({"partitions": partitions, "settings": settings})
        connection.request("PUT", f"/api/v1/topics/public/default/{name}", body)
        answer = connection.getresponse()
        assert answer.status in (200, 201, 204), answer.read()
        connection.close()

    def _open(self, drivers: Drivers, name: str, number: int) -> DriverProxy:
        client = CLIENTS[name]
        host, port = self.address(client.protocol)
        return drivers.open(client, f"{host}:{port}", number)


def find_cases(only: list[str]) -> list[ModuleType]:
    """Return the modules of `cases/`, in order of name; `only` keeps the names that contain a given
    word.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))
    wanted = [name for name in names if not only or any(word in name for word in only)]
    return [importlib.import_module(f"conformance.cases.{name}") for name in wanted]


def cells(modules: list[ModuleType], wanted: str = "") -> list[tuple[ModuleType, tuple[str, ...]]]:
    """Return every case with each of its clients; `wanted`, `CASE:CLIENT,CLIENT`, selects a single
    cell.
    """
    pairs = []
    for module in modules:
        for clients in module.CLIENTS:
            names = (clients,) if isinstance(clients, str) else tuple(clients)
            if wanted in ("", f"{case_name(module)}:{','.join(names)}"):
                pairs.append((module, names))
    return pairs


def run_one(
    module: ModuleType, names: tuple[str, ...], addresses: dict[str, str], drivers: Drivers
) -> CaseOutcome:
    """Run a cell of the matrix; any error becomes the outcome."""
    started = time.monotonic()
    result, reason = PASS, ""
    context: Context | None = None
    try:
        context = Context(addresses, drivers, names)
        module.run(context)
    except (Skip, LibraryUnavailable) as skipped:
        result, reason = SKIPPED, str(skipped)
    except Exception as error:  # Any error fails this cell; the run continues.
        result = FAIL
        for client in context.clients if context else ():
            drivers.end(client)
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    promise = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
    seconds = time.monotonic() - started
    return CaseOutcome(case_name(module), names, result, reason, seconds, promise)


def case_name(module: ModuleType) -> str:
    """Return the file name of a case, without the ending."""
    return module.__name__.rpartition(".")[2]


def client_label(name: str) -> str:
    """Return a client with its version, as the matrix shows the client."""
    if name not in CLIENTS:
        return name
    client = CLIENTS[name]
    return " ".join(filter(None, (client.library, client.version, client.note)))
