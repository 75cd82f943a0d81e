"""Searches for garbage are counted, and none looks at very much, whatever lives."""

import gc
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from braidlog.broker.runtime.garbage import (
    LOOKED_AT_MAX,
    OLD_MAX,
    SearchTime,
    has_many_old,
    no_searches,
    search_regularly,
    search_young,
    short_searches,
)
from tests.broker.server.echo import Bench, framed, receive_all
from tests.waiting import until


def test_searches_are_counted_until_the_end():
    with SearchTime() as searches:
        gc.collect()
    counted = searches.seconds
    assert counted > 0
    gc.collect()
    assert searches.seconds == counted


class Searched:
    """How many objects each search looks at."""

    def __init__(self) -> None:
        self.most = 0
        self.full = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations = range(info["generation"] + 1)
            self.most = max(self.most, sum(len(gc.get_objects(one)) for one in generations))
            self.full += info["generation"] == 2


@pytest.fixture
def searched():
    """What searches look at while a broker keeps them short."""
    with short_searches():
        seen = Searched()
        gc.callbacks.append(seen)
        yield seen
        gc.callbacks.remove(seen)
    gc.unfreeze()


MANY = 400_000
LOOKS = 20  # So many looks at the young ones meanwhile.


def search_as_the_broker_does():
    search_young()
    if has_many_old():
        gc.collect()


def test_no_search_looks_at_all_of_what_has_come_to_stay(searched):
    living = [[number] for number in range(MANY)]
    assert searched.full > 1
    assert 0 < searched.most <= LOOKED_AT_MAX
    assert gc.get_freeze_count() > MANY - LOOKED_AT_MAX
    assert len(living) == MANY


def test_what_is_made_as_other_things_end_does_not_grow_old_uncounted(searched):
    with no_searches():
        living = [[number] for number in range(MANY)]
    for number in range(MANY):
        living[number] = [number]
        if number % (MANY // LOOKS) == 0:
            search_as_the_broker_does()
    search_as_the_broker_does()
    assert 0 < searched.most <= LOOKED_AT_MAX


def test_python_alone_would_look_at_all_of_it(searched):
    """Or the test above proves nothing."""
    with no_searches():
        living = [[number] for number in range(MANY)]
    for number in range(MANY):
        living[number] = [number]
    gc.collect()
    assert searched.most > MANY - LOOKED_AT_MAX


def test_what_was_made_without_searches_puts_off_no_later_one(searched):
    with no_searches():
        living = [[number] for number in range(MANY)]
    assert gc.isenabled()
    before = searched.full
    living += [[number] for number in range(2 * LOOKED_AT_MAX)]
    assert searched.full > before
    assert searched.most <= LOOKED_AT_MAX


async def test_they_are_searched_regularly(searched, nursery, autojump_clock):
    nursery.start_soon(search_regularly)
    cycles = 1000
    for _ in range(cycles):
        one: list[object] = []
        one.append(one)
    one = []
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
async def test_an_ended_connection_is_no_garbage_to_search_for(nursery, sent):
    bench = Bench(nursery)

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
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await talk()
        gc.collect()
        found = {type(one).__qualname__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not found & {"Connection", "EchoSession", "Outbox", "ProtocolError", "traceback"}, found
