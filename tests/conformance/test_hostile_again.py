"""What the short form of the hostile run takes for a long turn of the broker's own."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from conformance.hostile.judge import LoopHeld
from tests.conformance import test_hostile

BROKER = SimpleNamespace(new_log_lines=list)


@pytest.fixture
def verdicts(monkeypatch):
    """What the judge says of one attack after the other; None: nothing was found."""
    said = []

    @contextmanager
    def judged(broker):
        yield
        if found := said.pop(0):
            raise found

    monkeypatch.setattr(test_hostile, "judged", judged)
    monkeypatch.setattr(test_hostile, "prepare", lambda broker: None)
    return said


def test_a_turn_that_is_not_there_again_is_not_held_against_the_broker(verdicts):
    verdicts += [LoopHeld("65 ms"), None]
    assert test_hostile.judge(BROKER, lambda: "sent") == "sent"
    assert not verdicts


def test_one_that_is_there_again_is(verdicts):
    verdicts += [LoopHeld("65 ms"), LoopHeld("64 ms")]
    with pytest.raises(LoopHeld, match="64 ms"):
        test_hostile.judge(BROKER, lambda: "sent")


def test_all_else_is_at_once(verdicts):
    verdicts += [AssertionError("a traceback"), None]
    with pytest.raises(AssertionError, match="a traceback"):
        test_hostile.judge(BROKER, lambda: "sent")
    assert verdicts == [None]
