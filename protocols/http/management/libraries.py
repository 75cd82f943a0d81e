"""Names of the libraries that the connected clients use. Knows open connections only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from braidlog.broker.runtime.turns import in_turns

if TYPE_CHECKING:
    from braidlog.broker.server.opened import ListedConnection


async def known_libraries(connections: Iterable[ListedConnection]) -> dict[tuple[str, str], str]:
    """Return the library of each protocol and address.

    Kafka's members have an address without port, such as `/10.0.0.1`. The library of such an
    address is known if all connections from the host name the same library; else "".
    """
    libraries: dict[tuple[str, str], str] = {}
    async for connection in in_turns(tuple(connections)):
        for address in (connection.peer, "/" + connection.peer.rpartition(":")[0]):
            place = (connection.protocol, address)
            if libraries.setdefault(place, connection.library) != connection.library:
                libraries[place] = ""
    return libraries
