import gc
import types
import weakref
from types import SimpleNamespace

import pytest

from braidlog.broker.runtime.receiver import _sending_before_waits


class HandlersObject:
    """An object that a handler holds."""


@types.coroutine
def pause():
    yield "waiting"


def test_objects_of_a_failed_wait_are_freed_without_a_garbage_collection():
    """Every leaving client cancels a handler: each would be a cycle of its error, the frames in its
    traceback and all their objects.
    """
    seen = []

    async def handler():
        held = HandlersObject()
        seen.append(weakref.ref(held))
        await pause()

    outbox = SimpleNamespace(gathering=False, flush=lambda: None)
    turn = _sending_before_waits(handler(), outbox)
    gc.disable()
    try:
        assert next(turn) == "waiting"
        with pytest.raises(ConnectionError):
            turn.throw(ConnectionError("cut off"))
        del turn
        assert seen[0]() is None
    finally:
        gc.enable()
