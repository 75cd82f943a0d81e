"""Where a log is. A place is a text that is sent to Spark's workers: the path of a data directory,
the URL of a broker, or a cluster's store with its database.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from braidlog.storage.export.network import BrokerReader, tell_broker
from braidlog.storage.export.readers import FolderReader, LogReader

STORES = ("s3://", "file://")

# A password in a connection string or URL of libpq. The name of a password file may be there.
PASSWORD = re.compile(r"password\s*=|://[^/@]*:[^/@]*@", re.IGNORECASE)


class BadPlace(ValueError):
    """There can be no log at such a place; the text says what a place looks like."""


def store_place(store: str, database: str | None = None, endpoint: str | None = None) -> str:
    """The place of a cluster's log. The arguments are its settings `shared.store`,
    `shared.database` (None: the log's reader takes it from its own environment) and
    `shared.endpoint`.

    Raises BadPlace, also for a database with its password: plans and logs would show it.
    """
    if not store.startswith(STORES):
        raise BadPlace(f"store: {store!r}: s3://BUCKET/PREFIX or file:///FOLDER")
    if database is not None and PASSWORD.search(database):
        raise BadPlace(
            "database: its password does not belong here, where plans and logs show it: set "
            "PGPASSWORD, or name a password file with passfile=FILE"
        )
    given = {"database": database, "endpoint": endpoint}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return f"{store}?{query}" if query else store


def is_url(place: str) -> bool:
    """Whether a place is a broker's."""
    return place.startswith(("http://", "https://"))


def shown(place: str) -> str:
    """A place as messages may show it: without a token, and without a store's database."""
    if place.startswith(STORES):
        return place.partition("?")[0]
    return re.sub(r"://[^/@]*@", "://", place) if is_url(place) else place


def tell_positions(place: str, group: str, positions: Mapping[tuple[str, int], int]) -> None:
    """Commit a reader's progress to the broker of a place: (topic, partition) to the next offset.

    Raises OSError, also for a folder or a store.
    """
    if not is_url(place):
        raise OSError(f"{shown(place)}: a broker's URL is wanted to tell positions to")
    tell_broker(place, group, positions)


def open_log(place: str) -> LogReader:
    """The log at a place: the path of a data directory, `http://[:TOKEN@]HOST:PORT`, or what
    `store_place` gives. Raises OSError.
    """
    if is_url(place):
        return BrokerReader(place)
    if place.startswith(STORES):
        from braidlog.storage.export.stored import (
            open_store,  # A worker of another place needs none of it.
        )

        return open_store(place)
    return FolderReader(place)
