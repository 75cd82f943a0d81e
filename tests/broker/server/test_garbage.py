"""Searches for garbage are counted, and a long full one makes the later ones short."""

import gc

import pytest

from broker.server import garbage
from broker.server.garbage import SearchTime
from tests.broker.server.echo import Bench, framed, receive_all
from tests.waiting import until


@pytest.fixture
def unfrozen():
    yield
    gc.unfreeze()


def test_searches_are_counted_until_the_end():
    with SearchTime() as searches:
        gc.collect()
    counted = searches.seconds
    assert counted > 0
    gc.collect()
    assert searches.seconds == counted


@pytest.mark.parametrize(("freeze_s", "generation", "freezes"), [(0, 2, 1), (0, 1, 0), (60, 2, 0)])
def test_what_a_long_full_search_has_left_is_not_looked_at_again(
    monkeypatch, unfrozen, freeze_s, generation, freezes
):
    monkeypatch.setattr(garbage, "FREEZE_S", freeze_s)
    before = gc.get_freeze_count()
    with SearchTime():
        gc.collect(generation)
    assert (gc.get_freeze_count() > before) == bool(freezes)


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
