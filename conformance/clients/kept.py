"""Driver processes that serve several cases. Knows no case.

Each call opens and closes its own connections, and starting a process takes longer than most cases.
"""

from typing import Self

from conformance.clients.libraries import Client, python_for
from conformance.clients.proxy import DriverProxy


class Drivers:
    """A process per client, and a second process for cases that use a client twice.

    A context manager that ends the processes.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int], DriverProxy] = {}

    def open(self, client: Client, address: str, number: int = 0) -> DriverProxy:
        """Return the `number`th process of a client at that address; start a missing process.

        Raises Unavailable.
        """
        key = client.name, address, number
        found = self._kept.get(key)
        if found is None:
            found = DriverProxy(python_for(client), client.driver, address)
            self._kept[key] = found
        return found

    def end(self, driver: DriverProxy) -> None:
        """End a driver: after a failure, its state is unknown."""
        for key, kept in list(self._kept.items()):
            if kept is driver:
                del self._kept[key]
                kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()
