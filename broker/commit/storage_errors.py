"""Maps a storage error to a broker error for clients and a log line for operators.

Clients receive no more than `StorageError.client_text`. The log does not hold each error, because a
full disk refuses thousands of requests a second. Knows no topic and no protocol.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from braidlog.broker import errors
from braidlog.broker.config.logging import ThrottledLog
from braidlog.storage import errors as storage_errors
from braidlog.storage.errors import DamagedLog, NotOwned, StorageError, StorageFull, StoreUnanswered

BROKER_ERRORS: dict[type[StorageError], type[errors.BrokerError]] = {
    storage_errors.StorageFull: errors.StorageFull,
    StoreUnanswered: errors.StorageFull,  # A later try may succeed.
    storage_errors.StorageFailed: errors.StorageFailed,
    storage_errors.DamagedLog: errors.DamagedLog,
    storage_errors.CorruptBody: errors.CorruptBatch,
    storage_errors.RecordTooLarge: errors.RecordTooLarge,
    storage_errors.TooManyRecords: errors.RecordTooLarge,
    storage_errors.UnreadableBody: errors.UnreadableRecord,
    storage_errors.TimeOutOfRange: errors.InvalidRequest,
    storage_errors.UnwritableChange: errors.InvalidRequest,
    NotOwned: errors.NotOwner,
    storage_errors.LogClosed: errors.TopicNotFound,  # Deleted during the call.
}

EVENTS: dict[type[StorageError], str] = {
    StorageFull: "storage_full",
    StoreUnanswered: "store_unanswered",
    DamagedLog: "damage_met",
}

Report = Callable[[StorageError], None]  # `Durability.report_storage_error`


def to_broker_error(error: StorageError, place: str = "") -> errors.BrokerError:
    """Return the broker error for a storage error; `place` names the place in a client's words."""
    if isinstance(error, storage_errors.OffsetOutOfRange):
        return errors.OffsetOutOfRange(error.offset, error.log_start_offset, error.log_end_offset)
    text = f"{place}: {error.client_text}" if place else error.client_text
    return BROKER_ERRORS.get(type(error), errors.StorageFailed)(text)


@contextmanager
def as_broker_errors(report: Report) -> Iterator[None]:
    """Report each storage error raised by the block, then raise the matching broker error."""
    try:
        yield
    except StorageError as error:
        report(error)
        raise to_broker_error(error) from error


class StorageErrorLog:
    """Logs the first error of a kind at once, then rarely."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a clock in seconds."""
        self._log = ThrottledLog(now)

    def note(self, error: StorageError) -> None:
        """Log an error that makes a request fail; errors of the client are not logged."""
        event = EVENTS.get(type(error))
        if event is not None:
            self._log.error(event, cause=event, reason=str(error))
