"""SIGKILL under mixed writers and groups; `python -m conformance.crash` kills more often."""

import pytest

from conformance.crash.__main__ import run
from conformance.crash.check import faults
from conformance.crash.writers import WriterState


@pytest.mark.slow
@pytest.mark.clients
def test_nothing_acknowledged_is_lost_over_kills():
    acknowledged, broken = run(kills=8, seed=25, run_s_max=0.4)
    assert broken == []
    assert acknowledged > 300


def ledger(*values):
    filled = WriterState("a")
    filled.acknowledged = dict(enumerate(values))
    filled.stored_somewhere = set(values)
    return filled


def test_a_sound_log_has_no_faults():
    assert faults({0: b"a:0", 1: b"a:1"}, [ledger(b"a:0", b"a:1")]) == []


def test_a_lost_value_is_a_fault():
    (fault,) = faults({0: b"a:0"}, [ledger(b"a:0", b"a:1")])
    assert fault.startswith("lost: ")


def test_another_value_at_an_acknowledged_offset_is_a_fault():
    log = {0: b"a:1", 1: b"a:0"}
    assert any("stored at 0" in text for text in faults(log, [ledger(b"a:0", b"a:1")]))


def test_another_value_by_another_protocol_is_a_fault():
    log = {0: b"a:0"}
    assert faults(log, [ledger(b"a:0")], {"iggy": log}) == []
    problems = faults(log, [ledger(b"a:0")], {"iggy": {0: b"a:1"}})
    assert any(text.startswith("two values") for text in problems)


def test_a_repeated_value_is_a_fault_unless_it_was_sent_again():
    log = {0: b"a:0", 1: b"a:0"}
    assert any("twice" in text for text in faults(log, [ledger(b"a:0")]))
    again = ledger(b"a:0")
    again.sent_again = {b"a:0"}
    assert faults(log, [again]) == []


def test_a_broken_order_is_a_fault():
    unsure = WriterState("a")
    unsure.unanswered.extend((b"a:0", b"a:1"))
    assert any("order" in text for text in faults({0: b"a:1", 1: b"a:0"}, [unsure]))
