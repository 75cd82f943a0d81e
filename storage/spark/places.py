"""Where a log is: a place is a text that goes to Spark's workers, the path of a data directory or
the URL of a broker.
"""

from collections.abc import Mapping

from storage.spark.network import BrokerReader, tell_broker
from storage.spark.readers import FolderReader, LogReader


def is_url(place: str) -> bool:
    """Whether a place is a broker's, and not a folder's."""
    return place.startswith(("http://", "https://"))


def tell_positions(place: str, group: str, positions: Mapping[tuple[str, int], int]) -> None:
    """Commit a reader's progress to the broker of a place: (topic, partition) to the next offset.

    Raises OSError, for a folder too.
    """
    if not is_url(place):
        raise OSError(f"{place} is a folder: a broker's URL is wanted to tell positions to")
    tell_broker(place, group, positions)


def open_log(place: str) -> LogReader:
    """The log at a place: the path of a data directory, or `http://[:TOKEN@]HOST:PORT`."""
    if is_url(place):
        return BrokerReader(place)
    return FolderReader(place)
