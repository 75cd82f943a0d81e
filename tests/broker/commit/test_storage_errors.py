"""Storage errors for clients and in the log: file and reason, once instead of
thousands of times.
"""

import pytest
import structlog

from braidlog.broker import errors
from braidlog.broker.commit.storage_errors import (
    StorageErrorLog,
    as_broker_errors,
    to_broker_error,
)
from braidlog.broker.config.logging import PAUSE_S
from braidlog.storage import errors as storage_errors
from braidlog.storage.errors import CorruptBody, DamagedLog, LogClosed, StorageFull
from tests.fake_clock import FakeClock


@pytest.fixture
def logged():
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_the_first_refusal_is_logged_with_its_file_and_later_refusals_counted(logged):
    clock = FakeClock()
    error_log = StorageErrorLog(clock)
    for _ in range(1000):
        error_log.note(StorageFull("cannot write to /data/x: No space left on device"))
    clock.now += PAUSE_S
    error_log.note(StorageFull("cannot create /data/y: No space left on device"))
    assert [(line["event"], line["count"]) for line in logged] == [
        ("storage_full", 1),
        ("storage_full", 1000),
    ]
    assert "/data/x" in logged[0]["reason"]
    assert "/data/y" in logged[1]["reason"]


def test_each_kind_of_error_has_its_own_lines(logged):
    error_log = StorageErrorLog(FakeClock())
    error_log.note(StorageFull("a"))
    error_log.note(DamagedLog("/data/z", 64, 7, "body checksum is wrong"))
    assert [line["event"] for line in logged] == ["storage_full", "damage_met"]


@pytest.mark.parametrize("error", [CorruptBody("x"), LogClosed("/data/gone")])
def test_errors_of_the_client_are_not_logged(logged, error):
    StorageErrorLog(FakeClock()).note(error)
    assert logged == []


def all_subclasses(kind):
    for inner in kind.__subclasses__():
        yield inner
        yield from all_subclasses(inner)


def test_every_storage_error_has_a_broker_error():
    examples = {
        storage_errors.OffsetOutOfRange: (7, 1, 5),
        storage_errors.DamagedLog: ("p", 0, 0, "bad"),
        storage_errors.RecordTooLarge: (10, 5),
        storage_errors.TooManyRecords: ("parts", 5),
    }
    for kind in all_subclasses(storage_errors.StorageError):
        if kind.__module__ != "braidlog.storage.errors":
            continue
        error = kind(*examples.get(kind, ("text",)))
        assert isinstance(to_broker_error(error), errors.BrokerError), kind


def test_an_error_is_reported_before_its_translation():
    reported = []
    error = StorageFull("no room")
    with pytest.raises(errors.StorageFull), as_broker_errors(reported.append):
        raise error
    assert reported == [error]
