"""What the log says of refusals: the file and the reason, and not for each of thousands."""

import pytest
import structlog

from broker.commit.storage_errors import Refusals
from broker.config.logging import PAUSE_S
from storage.errors import CorruptBody, DamagedLog, LogClosed, StorageFull


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def logged():
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_the_first_refusal_is_told_with_its_file_and_later_ones_are_counted(logged):
    clock = Clock()
    refusals = Refusals(clock)
    for _ in range(1000):
        refusals.note(StorageFull("cannot write to /data/x: No space left on device"))
    clock.seconds += PAUSE_S
    refusals.note(StorageFull("cannot create /data/y: No space left on device"))
    assert [(line["event"], line["count"]) for line in logged] == [
        ("storage_full", 1),
        ("storage_full", 1000),
    ]
    assert "/data/x" in logged[0]["reason"]
    assert "/data/y" in logged[1]["reason"]


def test_each_kind_has_lines_of_its_own(logged):
    refusals = Refusals(Clock())
    refusals.note(StorageFull("a"))
    refusals.note(DamagedLog("/data/z", 64, 7, "body checksum is wrong"))
    assert [line["event"] for line in logged] == ["storage_full", "damage_met"]


@pytest.mark.parametrize("error", [CorruptBody("x"), LogClosed("/data/gone")])
def test_what_is_the_clients_own_is_not_logged(logged, error):
    Refusals(Clock()).note(error)
    assert logged == []
