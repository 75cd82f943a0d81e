"""Names of idempotent producers in the catalogue.

Pulsar's producers have names in UTF-8, which no name with this prefix is.
"""

import struct
from collections.abc import Iterable, Iterator

PREFIX = b"\xffiggy"
ID = struct.Struct(">Q")


def name_of(producer_id: int) -> bytes:
    return PREFIX + ID.pack(producer_id)


def ids_among(names: Iterable[bytes]) -> Iterator[int]:
    """Yield the ids of the producers among names of all protocols."""
    for name in names:
        if name.startswith(PREFIX) and len(name) == len(PREFIX) + ID.size:
            yield ID.unpack_from(name, len(PREFIX))[0]
