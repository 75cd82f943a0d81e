"""Long turns of the loop are found by their processor time and named; waiting does not count."""

import subprocess
import sys
import time

import pytest
import structlog
import trio

from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.metrics import TURN_BUCKETS, Histogram
from braidlog.broker.runtime.loop_turns import LongTurn, LoopTurns, log_long_turn, measuring_turns
from tests import turns
from tests.sources import ROOT

LONG_S = 0.02


def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def working(seconds):
    await trio.lowlevel.checkpoint()
    work(seconds)
    await trio.lowlevel.checkpoint()


@pytest.fixture
async def found():
    found = []
    instrument = LoopTurns(Histogram(TURN_BUCKETS), found.append, long_s=LONG_S)
    trio.lowlevel.add_instrument(instrument)
    yield found
    trio.lowlevel.remove_instrument(instrument)


async def test_a_long_turn_is_found_with_its_task(found):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(working, 0.0)
        nursery.start_soon(working, LONG_S)
    (turn,) = found
    assert turn.task == f"{__name__}.working"
    assert turn.seconds >= LONG_S


async def test_waiting_costs_no_processor_time(found):
    await trio.sleep(2 * LONG_S)
    time.sleep(2 * LONG_S)  # Holds the loop like a slow disk, without work.
    await trio.lowlevel.checkpoint()
    assert found == []


async def test_many_short_turns_are_no_long_turn(found):
    for _ in range(30):
        work(LONG_S / 15)
        await trio.lowlevel.checkpoint()
    assert found == []


async def test_every_turn_is_counted():
    histogram = Histogram(TURN_BUCKETS)
    instrument = LoopTurns(histogram, [].append, long_s=LONG_S)
    trio.lowlevel.add_instrument(instrument)
    for _ in range(100):
        await trio.lowlevel.checkpoint()
    work(LONG_S)
    await trio.lowlevel.checkpoint()
    trio.lowlevel.remove_instrument(instrument)
    assert sum(histogram.counts) >= 101
    assert histogram.total >= LONG_S


async def hold_the_broker():
    work(turns.TURN_S_MAX)
    await trio.lowlevel.checkpoint()


hold_the_broker.__module__ = "braidlog.broker.strange"  # Count as a watched task.


async def test_the_tests_find_a_too_long_turn_of_the_product():
    watch = turns.Watch(lambda: turns.TURN_S_MAX)
    trio.lowlevel.add_instrument(watch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold_the_broker)
        nursery.start_soon(working, turns.TURN_S_MAX)  # A test's task: not watched.
    trio.lowlevel.remove_instrument(watch)
    with pytest.raises(turns.LongTurns, match=r"braidlog\.broker\.strange\.hold_the_broker"):
        watch.close()
    assert len(watch.found) == 1


def test_the_log_names_the_task_and_the_place_of_its_stop():
    with structlog.testing.capture_logs() as lines:
        log = ThrottledLog()
        log_long_turn(log, LongTurn("braidlog.broker.x.run", "braidlog.protocols.y:7 read", 0.1234))
        log_long_turn(log, LongTurn("braidlog.broker.x.run", "braidlog.protocols.y:7 read", 0.5))
    (line,) = lines
    assert line["event"] == "loop_held"
    assert (line["task"], line["ends_at"]) == ("braidlog.broker.x.run", "braidlog.protocols.y:7 read")
    assert line["processor_ms"] == 123


def test_a_processs_log_line_is_found_unless_allowed(monkeypatch):
    lines = [
        '{"event": "started", "level": "info"}',
        '{"task": "braidlog.broker.x.run", "ends_at": "", "processor_ms": 70, "event": "loop_held"}',
    ]
    assert turns.logged(lines, lambda: turns.TURN_S_MAX) == lines[1:]
    assert turns.logged(lines, lambda: 2 * turns.TURN_S_MAX) == []
    monkeypatch.setattr(turns, "ALLOWED", [("braidlog.broker.x.", "", "a reason")])
    assert turns.logged(lines, lambda: turns.TURN_S_MAX) == []


RERUN_TESTS = """
import pytest
from tests.turns import LongTurns

runs = []

@pytest.fixture
def machine():
    yield
    runs.append("machine")
    if runs.count("machine") == 1:
        raise LongTurns("once")

@pytest.fixture
def ours():
    yield
    raise LongTurns("each time")

def test_of_the_machine(machine):
    pass

def test_of_ours(ours):
    pass

def test_of_something_else():
    runs.append("else")
    assert runs.count("else") == 2
"""


@pytest.mark.slow
def test_only_a_too_long_turn_is_retried_once(tmp_path):
    (tmp_path / "test_rerun.py").write_text(RERUN_TESTS)
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-p", "no:cacheprovider"]
    command += ["-rA", "--rootdir", tmp_path, tmp_path / "test_rerun.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR "))]
    assert [(line.split()[0], line.split("::")[1].split()[0]) for line in told] == [
        ("ERROR", "test_of_ours"),
        ("FAILED", "test_of_something_else"),
    ]
    assert "2 rerun" in done.stdout


def test_a_busy_machine_gets_more_time():
    limits = [turns.limit_at(load, 2) for load in (0.0, 2.0, 8.0)]
    assert limits == [turns.TURN_S_MAX, turns.TURN_S_MAX, 4 * turns.TURN_S_MAX]


@pytest.mark.parametrize("long_ms", [None, 1000.0])
async def test_turns_are_counted_unless_disabled(long_ms):
    histogram = Histogram(TURN_BUCKETS)
    with measuring_turns(histogram, ThrottledLog(), long_ms, []):
        for _ in range(10):
            await trio.lowlevel.checkpoint()
    counted = sum(histogram.counts)
    assert counted >= 10 if long_ms else counted == 0
    await trio.lowlevel.checkpoint()
    assert sum(histogram.counts) == counted
