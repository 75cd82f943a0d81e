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
async def long_turns():
    long_turns = []
    instrument = LoopTurns(Histogram(TURN_BUCKETS), long_turns.append, long_s=LONG_S)
    trio.lowlevel.add_instrument(instrument)
    yield long_turns
    trio.lowlevel.remove_instrument(instrument)


async def test_a_long_turn_is_found_with_its_task(long_turns):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(working, 0.0)
        nursery.start_soon(working, LONG_S)
    (turn,) = long_turns
    assert turn.task == f"{__name__}.working"
    assert turn.seconds >= LONG_S


async def test_waiting_costs_no_processor_time(long_turns):
    await trio.sleep(2 * LONG_S)
    time.sleep(2 * LONG_S)  # Holds the loop like a slow disk, without work.
    await trio.lowlevel.checkpoint()
    assert long_turns == []


async def test_many_short_turns_are_no_long_turn(long_turns):
    for _ in range(30):
        work(LONG_S / 15)
        await trio.lowlevel.checkpoint()
    assert long_turns == []


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


async def make_calls(count):
    for number in range(count):
        abs(number)
    await trio.lowlevel.checkpoint()


async def hold_the_broker():
    work(turns.SUSPICIOUS_S)
    await trio.lowlevel.checkpoint()


make_calls.__module__ = hold_the_broker.__module__ = "braidlog.broker.strange"  # As the product's.


async def test_a_slow_turn_of_the_product_asks_for_a_counted_run():
    watch = turns.watch(1)
    trio.lowlevel.add_instrument(watch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold_the_broker)
        nursery.start_soon(working, turns.SUSPICIOUS_S)  # A test's task: not watched.
    trio.lowlevel.remove_instrument(watch)
    with pytest.raises(turns.LongTurns, match=r"strange\.hold_the_broker") as caught:
        watch.close()
    assert "working" not in str(caught.value)


async def test_a_turn_with_too_many_calls_fails_the_counted_run():
    watch = turns.watch(2)
    trio.lowlevel.add_instrument(watch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_calls, turns.TURN_CALLS_MAX)
    trio.lowlevel.remove_instrument(watch)
    with pytest.raises(turns.TooManyCalls, match=r"strange\.make_calls"):
        watch.close()


async def test_calls_count_for_each_turn_and_time_does_not_count():
    watch = turns.watch(2)
    trio.lowlevel.add_instrument(watch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold_the_broker)
        for _ in range(3):
            nursery.start_soon(make_calls, turns.TURN_CALLS_MAX // 2)
    trio.lowlevel.remove_instrument(watch)
    watch.close()


def test_the_log_names_the_task_and_the_place_of_its_stop():
    with structlog.testing.capture_logs() as lines:
        log = ThrottledLog()
        log_long_turn(log, LongTurn("braidlog.broker.x.run", "braidlog.protocols.y:7 read", 0.1234))
        log_long_turn(log, LongTurn("braidlog.broker.x.run", "braidlog.protocols.y:7 read", 0.5))
    (line,) = lines
    assert line["event"] == "loop_held"
    assert (line["task"], line["ends_at"]) == (
        "braidlog.broker.x.run",
        "braidlog.protocols.y:7 read",
    )
    assert line["processor_ms"] == 123


RERUN_TESTS = """
import pytest
from tests.turns import LongTurns, TooManyCalls

runs = []

@pytest.fixture
def slow(request):
    yield
    runs.append(request.node.execution_count)
    if runs == [1]:
        raise LongTurns("to be counted")

def test_of_the_machine(slow):
    pass

def test_that_the_second_run_was_counted():
    assert runs == [1, 2]

def test_of_something_else():
    runs.append("else")
    assert runs.count("else") == 2

def test_with_too_much_work():
    raise TooManyCalls("a defect")
"""


@pytest.mark.slow
def test_only_a_slow_turn_runs_a_test_again(tmp_path):
    (tmp_path / "test_rerun.py").write_text(RERUN_TESTS)
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-p", "no:cacheprovider"]
    command += ["-rA", "--rootdir", tmp_path, tmp_path / "test_rerun.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR "))]
    assert [(line.split()[0], line.split("::")[1].split()[0]) for line in failures] == [
        ("FAILED", "test_of_something_else"),
        ("FAILED", "test_with_too_much_work"),
    ]
    assert "1 rerun" in done.stdout


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
