"""Garbage collections are counted, and none visits very many objects."""

import gc
import time
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from braidlog.broker.metrics import TURN_BUCKETS, Histogram
from braidlog.broker.runtime.garbage import (
    BUSY_SEARCH_S,
    LOOKED_AT_MAX,
    OLD_MAX,
    YOUNG_MAX,
    SearchTime,
    no_searches,
    search,
    search_regularly,
    short_searches,
)
from braidlog.broker.runtime.loop_turns import LoopTurns
from tests.broker.server.echo import EchoBench, framed, receive_all
from tests.cycles import watched_cycles
from tests.waiting import until


def test_collections_are_counted_until_the_end():
    with SearchTime() as searches:
        gc.collect()
    counted = searches.seconds
    assert counted > 0
    gc.collect()
    assert searches.seconds == counted


class Searched:
    """The number of objects that each collection visits."""

    def __init__(self) -> None:
        self.most = 0
        self.full = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations = range(info["generation"] + 1)
            self.most = max(
                self.most, sum(len(gc.get_objects(generation)) for generation in generations)
            )
            self.full += info["generation"] == 2


@pytest.fixture
def searched():
    """Yield the visited objects of collections while a broker keeps collections short."""
    with short_searches():
        seen = Searched()
        gc.callbacks.append(seen)
        yield seen
        gc.callbacks.remove(seen)
    gc.unfreeze()


MANY = 400_000
LOOKS = 20  # Young collections meanwhile.
BUSY, OBJECTS_PER_TURN, OBJECT_S = 200_000, 20, 1e-6


def test_no_collection_visits_all_long_lived_objects(searched):
    living = [[number] for number in range(MANY)]
    assert searched.full > 1
    assert 0 < searched.most <= LOOKED_AT_MAX
    assert gc.get_freeze_count() > MANY - LOOKED_AT_MAX
    assert len(living) == MANY


def test_objects_created_while_others_end_are_counted(searched):
    with no_searches():
        living = [[number] for number in range(MANY)]
    for number in range(MANY):
        living[number] = [number]
        if number % (MANY // LOOKS) == 0:
            search()
    search()
    assert 0 < searched.most <= LOOKED_AT_MAX


def test_a_busy_loop_lets_few_objects_gather(searched):
    """Objects of a real handler take a microsecond each; a slower machine makes fewer in a time."""
    turns = LoopTurns(Histogram(TURN_BUCKETS), lambda turn: None, long_s=60.0)
    with no_searches():
        living = [[number] for number in range(BUSY)]
    begun = time.perf_counter()
    for number in range(BUSY):
        living[number] = [number]
        while time.perf_counter() - begun < number * OBJECT_S:
            pass
        if number % OBJECTS_PER_TURN == 0:
            turns.after_task_step(None)
    search()
    assert 0 < searched.most <= LOOKED_AT_MAX


def work(seconds):
    """Use so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_few_objects_are_left_to_the_regular_collection(searched):
    turns = LoopTurns(Histogram(TURN_BUCKETS), lambda turn: None, long_s=60.0)
    gc.collect()
    with gc_paused():
        living = [[number] for number in range(YOUNG_MAX // 2)]
        work(2 * BUSY_SEARCH_S)
        turns.after_task_step(None)
        assert len(gc.get_objects(0)) >= len(living)
        living += [[number] for number in range(YOUNG_MAX)]
        work(2 * BUSY_SEARCH_S)
        turns.after_task_step(None)
        assert len(gc.get_objects(0)) < len(living)


def test_python_alone_would_visit_all_objects(searched):
    """A control: without the broker's rule, the test above would fail."""
    with no_searches():
        living = [[number] for number in range(MANY)]
    for number in range(MANY):
        living[number] = [number]
    gc.collect()
    assert searched.most > MANY - LOOKED_AT_MAX


def test_objects_created_without_collections_delay_no_collection(searched):
    with no_searches():
        living = [[number] for number in range(MANY)]
    assert gc.isenabled()
    before = searched.full
    living += [[number] for number in range(2 * LOOKED_AT_MAX)]
    assert searched.full > before
    assert searched.most <= LOOKED_AT_MAX


async def test_objects_are_collected_regularly(searched, nursery, autojump_clock):
    nursery.start_soon(search_regularly)
    cycles = 1000
    for _ in range(cycles):
        cycle: list[object] = []
        cycle.append(cycle)
    cycle = []
    assert len(gc.get_objects()) >= cycles
    await trio.sleep(1.5)
    assert len(gc.get_objects(0)) + len(gc.get_objects(1)) < cycles
    with gc_paused():
        living = [[number] for number in range(OLD_MAX)]
    await trio.sleep(1)
    await trio.testing.wait_all_tasks_blocked()
    assert gc.get_freeze_count() > OLD_MAX
    assert len(living) == OLD_MAX
    nursery.cancel_scope.cancel()


@contextmanager
def gc_paused():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "sent", [framed(b"Ehello"), framed(b"P"), framed(b"Q"), b"\xff" * 4, framed(b"L100000")[:-2]]
)
async def test_an_ended_connection_leaves_no_garbage_cycle(nursery, sent):
    bench = EchoBench(nursery)

    async def talk():
        client = await bench.connect()
        await client.send_all(sent)
        await client.send_eof()
        await receive_all(client)
        await until(lambda: bench.ended)
        await client.aclose()
        for held in (bench.connections, bench.clients, bench.ended, bench.adapter.sessions):
            held.clear()

    await talk()
    with watched_cycles() as left:
        await talk()
        names = {type(item).__qualname__ for item in left()}
    assert not names & {"Connection", "EchoSession", "Outbox", "ProtocolError", "traceback"}, names
