"""The rule for long turns in the short form of the hostile run: only a repeated turn counts."""

from contextlib import contextmanager

import pytest

from conformance.hostile.judge import LoopHeld
from tests.conformance import test_hostile

BROKER = object()


@pytest.fixture
def verdicts(monkeypatch):
    """Return a list for the judge's verdicts on a series of attacks; None: no finding."""
    outcomes = []

    @contextmanager
    def judged(broker):
        yield
        if outcome := outcomes.pop(0):
            raise outcome

    monkeypatch.setattr(test_hostile, "judged", judged)
    monkeypatch.setattr(test_hostile, "prepare", lambda broker: None)
    return outcomes


def test_a_long_turn_that_does_not_repeat_is_no_finding(verdicts):
    verdicts += [LoopHeld("65 ms"), None]
    assert test_hostile.judge(BROKER, lambda: "sent") == "sent"
    assert not verdicts


def test_a_repeated_long_turn_is_a_finding(verdicts):
    verdicts += [LoopHeld("65 ms"), LoopHeld("64 ms")]
    with pytest.raises(LoopHeld, match="64 ms"):
        test_hostile.judge(BROKER, lambda: "sent")


def test_any_other_finding_counts_at_once(verdicts):
    verdicts += [AssertionError("a traceback"), None]
    with pytest.raises(AssertionError, match="a traceback"):
        test_hostile.judge(BROKER, lambda: "sent")
    assert verdicts == [None]
