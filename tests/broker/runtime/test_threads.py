import gc
import sys
import threading
import weakref
from contextlib import suppress

import pytest
import trio

from braidlog.broker.runtime.threads import import_in_thread, run_in_thread


class Held:
    """What somebody has in hand who waits for a thread."""


class Unpackable(Exception):
    """What the thread cannot do."""


def fail():
    raise Unpackable


async def test_it_returns_what_the_work_returns():
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    assert await run_in_thread(lambda: None) is None


async def test_an_error_comes_with_the_place_where_it_was_raised():
    with pytest.raises(Unpackable) as caught:
        await run_in_thread(fail)
    assert caught.traceback[-1].name == "fail"


async def test_what_a_failed_wait_held_goes_without_a_search_for_garbage():
    """A search finds no circle among what was left out of searches while it waited."""
    seen = []

    async def handler():
        held = Held()
        seen.append(weakref.ref(held))
        await run_in_thread(fail)

    gc.collect()
    gc.disable()
    try:
        # `pytest.raises` would hold the error, and all in its traceback.
        with suppress(Unpackable):
            await handler()
        assert seen[0]() is None
    finally:
        gc.enable()


async def test_the_limiter_counts_it():
    limiter = trio.CapacityLimiter(1)
    seen = await run_in_thread(lambda: limiter.borrowed_tokens, limiter=limiter)
    assert seen == 1
    with pytest.raises(Unpackable):
        await run_in_thread(fail, limiter=limiter)
    assert limiter.borrowed_tokens == 0


async def test_a_module_is_imported_in_a_thread_and_once(tmp_path, monkeypatch):
    (tmp_path / "seldom_needed.py").write_text("import threading; where = threading.get_ident()")
    monkeypatch.syspath_prepend(tmp_path)
    await import_in_thread("seldom_needed")
    imported = sys.modules.pop("seldom_needed")
    assert imported.where != threading.get_ident()
    sys.modules["seldom_needed"] = imported
    await import_in_thread("seldom_needed")
    assert sys.modules.pop("seldom_needed") is imported
