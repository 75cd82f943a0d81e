import gc
import sys
import threading
import weakref
from contextlib import suppress
from types import ModuleType

import pytest
import trio
import trio.testing

from braidlog.broker.runtime.threads import import_in_thread, is_imported, run_in_thread
from tests.waiting import until


class WaitersObject:
    """An object that a waiter for a thread holds."""


class Unpackable(Exception):
    """The thread's failure."""


def fail():
    raise Unpackable


async def test_the_result_of_the_work_is_returned():
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    assert await run_in_thread(lambda: None) is None


async def test_an_error_has_the_place_of_its_raise():
    with pytest.raises(Unpackable) as caught:
        await run_in_thread(fail)
    assert caught.traceback[-1].name == "fail"


async def test_objects_of_a_failed_wait_are_freed_without_a_garbage_collection():
    """A collection finds no cycle among objects that were excluded from collections during the
    wait.
    """
    seen = []

    async def handler():
        held = WaitersObject()
        seen.append(weakref.ref(held))
        await run_in_thread(fail)

    gc.collect()
    gc.disable()
    try:
        # `pytest.raises` would hold the error, and all objects in its traceback.
        with suppress(Unpackable):
            await handler()
        assert seen[0]() is None
    finally:
        gc.enable()


async def test_the_limiter_counts_the_call():
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


async def test_a_second_import_waits_for_the_end_of_the_first(tmp_path, monkeypatch):
    """The loop goes on meanwhile: it lets the module go on."""
    source = (
        "import braid_gate\nbraid_gate.entered.set()\nbraid_gate.opened.wait(60)\nis_whole = True\n"
    )
    (tmp_path / "slowly_imported.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    gate = ModuleType("braid_gate")
    gate.entered, gate.opened = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "braid_gate", gate)
    whole = []

    async def importer():
        await import_in_thread("slowly_imported")
        whole.append(hasattr(sys.modules["slowly_imported"], "is_whole"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(importer)
        await until(gate.entered.is_set)
        assert not is_imported("slowly_imported")
        nursery.start_soon(importer)
        await trio.testing.wait_all_tasks_blocked()
        gate.opened.set()
    assert whole == [True, True]
    assert is_imported("slowly_imported")
    sys.modules.pop("slowly_imported")
