"""A request of the golden table, and the names that requests share."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from braidlog.protocols.kafka.schema import Struct

TOPIC, MISSING = b"golden", b"missing"
Ids = Mapping[bytes, bytes]
Build = Callable[[int, Ids], Any]  # of a version and the ids of topics


class Case(NamedTuple):
    """A request, in every version from `since` to `until` that both brokers serve.

    Cases that stay share a connection, and with it their share sessions; each other request has a
    connection of its own.
    """

    note: str
    build: Build
    since: int = 0
    until: int = 99
    stays: bool = False


def same(body: Struct) -> Build:
    return lambda version, ids: body
