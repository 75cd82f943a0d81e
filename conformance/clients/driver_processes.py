"""Driver processes that serve several cases. Knows no case.

Each call opens and closes its own connections, and starting a process takes longer than most cases.
"""

from typing import Self

from conformance.clients.libraries import ClientLibrary, python_for
from conformance.clients.proxy import DriverProxy


class Drivers:
    """A process per client, and a second process for cases that use a client twice.

    A context manager that ends the processes.
    """

    def __init__(self) -> None:
        self._processes: dict[tuple[str, str, int], DriverProxy] = {}

    def open(self, client: ClientLibrary, address: str, number: int = 0) -> DriverProxy:
        """Return the `number`th process of a client at that address; start a missing process.

        Raises Unavailable.
        """
        key = client.name, address, number
        driver = self._processes.get(key)
        if driver is None:
            driver = DriverProxy(python_for(client), client.driver, address)
            self._processes[key] = driver
        return driver

    def end(self, driver: DriverProxy) -> None:
        """End a driver: after a failure, its state is unknown."""
        for key, open_driver in list(self._processes.items()):
            if open_driver is driver:
                del self._processes[key]
                open_driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._processes.values():
            driver.close()
        self._processes.clear()
