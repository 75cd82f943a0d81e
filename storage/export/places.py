"""Places of a log. A place is a text for Spark's workers: the path of a data directory, the URL of
a broker, or a cluster's store with its database.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from braidlog.storage.export.network import BrokerReader, tell_broker
from braidlog.storage.export.readers import ExportLog, FolderReader
from braidlog.storage.shared.passwords import PASSWORD

STORES = ("s3://", "file://")


class BadPlace(ValueError):
    """The place is invalid; the text gives the valid forms."""


def store_place(store: str, database: str | None = None, endpoint: str | None = None) -> str:
    """Return the place of a cluster's log.

    The arguments are the settings `shared.store`, `shared.database` (None: the log's reader takes
    the database from its own environment) and `shared.endpoint`.

    Raises BadPlace, also for a database with its password: plans and logs would show the password.
    """
    if not store.startswith(STORES):
        raise BadPlace(f"store: {store!r}: s3://BUCKET/PREFIX or file:///FOLDER")
    if database is not None and PASSWORD.search(database):
        raise BadPlace(
            "database: its password does not belong here, where plans and logs show it: set "
            "PGPASSWORD, or name a password file with passfile=FILE"
        )
    options = {"database": database, "endpoint": endpoint}
    query = urlencode({name: value for name, value in options.items() if value is not None})
    return f"{store}?{query}" if query else store


def is_url(place: str) -> bool:
    """Return True for the place of a broker."""
    return place.startswith(("http://", "https://"))


def shown(place: str) -> str:
    """Return the place for messages: without a token, and without a store's database."""
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


def open_log(place: str) -> ExportLog:
    """Open the log at a place. Raises OSError.

    A place is the path of a data directory, `http://[:TOKEN@]HOST:PORT`, or a result of
    `store_place`.
    """
    if is_url(place):
        return BrokerReader(place)
    if place.startswith(STORES):
        from braidlog.storage.export.stored import (
            open_store,  # Imported here, because workers of other places do not need this.
        )

        return open_store(place)
    return FolderReader(place)
