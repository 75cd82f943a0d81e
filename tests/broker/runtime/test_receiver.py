import gc
import types
import weakref
from types import SimpleNamespace

import pytest

from braidlog.broker.runtime.receiver import _sending_before_waits


class Held:
    """What a handler has in its hands."""


@types.coroutine
def pause():
    yield "waiting"


def test_what_a_failed_wait_held_goes_without_a_search_for_garbage():
    """Cancelled handlers are as many as clients that leave: each would be a circle of its error,
    the frames in its traceback and all that they hold.
    """
    seen = []

    async def handler():
        held = Held()
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
