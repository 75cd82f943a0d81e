"""Each kind of fault in a history with only that fault, and a right history without faults."""

import pytest

from conformance.history.checker import CHECKS, check
from conformance.history.events import EventHistory, RequestOutcome

DONE, REFUSED, UNKNOWN = RequestOutcome.DONE, RequestOutcome.REFUSED, RequestOutcome.UNKNOWN
A0, A1, A2, B0 = b"a:0", b"a:1", b"a:2", b"b:0"


def sent(*, third=UNKNOWN):
    """Return a history: a:0 at 0, b:0 without offset, a:1 at 2 are acknowledged,
    then a:2 is sent.
    """
    history = EventHistory()
    for writer, value, outcome, offset in (
        ("a", A0, DONE, 0),
        ("b", B0, DONE, None),
        ("a", A1, DONE, 2),
        ("a", A2, third, None),
    ):
        event = history.send(writer, value)
        if outcome is not UNKNOWN:
            history.answer(event, outcome, offset)
    return history


def with_log(history, *values, reader="kafka"):
    records = [(offset, value) for offset, value in enumerate(values) if value]
    history.read(reader, (0, len(values)), records, whole=True)
    return history


def kinds(history):
    return {text.partition(":")[0] for text in check(history)}


@pytest.mark.parametrize("values", [(A0, B0, A1), (A0, B0, A1, A2)])
def test_an_unanswered_value_may_be_stored_or_not(values):
    history = with_log(with_log(sent(), *values), *values, reader="iggy")
    history.read("pulsar", (1, 3), [(1, B0), (2, A1)], whole=False)
    assert check(history) == []


def test_a_value_missing_at_its_acknowledged_offset_is_lost():
    assert kinds(with_log(sent(), A0, B0)) == {"lost"}
    assert kinds(with_log(sent(), A0, B0, None)) == {"lost"}


def test_a_missing_value_acknowledged_without_offset_is_lost():
    assert kinds(with_log(sent(), A0, None, A1)) == {"lost"}


def test_a_part_of_the_log_must_hold_its_acknowledged_values():
    history = sent()
    history.read("pulsar", (2, 3), [], whole=False)
    assert kinds(history) == {"lost"}


def test_a_value_acknowledged_after_a_read_need_not_be_in_the_read():
    history = EventHistory()
    late = history.send("a", A0)
    history.read("kafka", (0, 1), [], whole=True)
    history.answer(late, DONE, 0)
    assert check(history) == []


def test_a_read_value_must_stay():
    history = with_log(sent(), A0, B0, A1, A2)
    history.read("iggy", (3, 4), [], whole=False)
    assert kinds(history) == {"read and gone"}
    assert kinds(with_log(with_log(sent(), A0, B0, A1, A2), A0, B0, A1)) == {"read and gone"}


def test_two_readers_must_receive_the_same_value():
    history = with_log(sent(), A0, B0, A1, A2)
    history.read("iggy", (3, 4), [(3, B0)], whole=False)
    assert kinds(history) == {"two values at one offset", "twice"}


def test_a_value_sent_once_is_stored_once():
    history = with_log(sent(), A0, B0, A1, B0)
    assert kinds(history) == {"twice"}
    history.sent[1].again = True
    assert check(history) == []


def test_values_of_a_writer_are_in_order():
    history = EventHistory()
    for value in (A0, A1):
        history.answer(history.send("a", value), DONE)
    assert kinds(with_log(history, A1, A0)) == {"order"}
    assert kinds(with_log(EventHistory(), None)) == set()


def test_offsets_of_a_read_rise():
    history = sent()
    history.read("kafka", (0, 3), [(0, A0), (2, A1), (1, B0)], whole=False)
    assert kinds(history) == {"order"}


def test_a_refused_value_is_not_stored():
    assert kinds(with_log(sent(third=REFUSED), A0, B0, A1, A2)) == {"refused and read"}


def test_no_reader_receives_a_value_before_its_sending():
    assert kinds(with_log(sent(), A0, B0, A1, b"c:0")) == {"made up"}
    history = with_log(EventHistory(), A0)
    history.send("a", A0)
    assert kinds(history) == {"made up"}


def test_a_position_is_never_behind_an_answered_move():
    history = EventHistory()
    history.moved(history.move("g", 5))
    history.position_read("g", 5, "kafka")
    history.move("g", 3)  # Possibly back.
    for position in (5, 3):
        history.position_read("g", position, "iggy")
    assert check(history) == []
    history.moved(history.move("g", 7))
    history.position_read("g", 5, "pulsar")
    assert kinds(history) == {"position"}


def test_an_unanswered_move_after_an_answered_move_may_have_happened():
    history = EventHistory()
    first, _ = history.move("g", 9), history.move("g", 2)
    history.moved(first)
    history.position_read("g", 2, "kafka")
    assert check(history) == []
    history.position_read("g", 0, "kafka")
    assert kinds(history) == {"position"}


def test_a_position_is_the_target_of_a_move():
    history = EventHistory()
    history.position_read("g", -1, "kafka")
    history.moved(history.move("g", 5), REFUSED)
    assert check(history) == []
    history.position_read("g", 5, "kafka")
    assert kinds(history) == {"position"}


def test_every_kind_of_fault_has_its_test():
    assert list(CHECKS) == [
        "lost",
        "read and gone",
        "two values at one offset",
        "twice",
        "order",
        "refused and read",
        "made up",
        "position",
    ]
