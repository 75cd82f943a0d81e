"""Deadlines of members, the soonest first."""

import math

from braidlog.protocols.kafka.deadlines import SPARE_ENTRIES_MAX, Deadlines


class Thing:
    """A holder's thing."""


def test_the_soonest_live_thing_is_next() -> None:
    things = {"a", "b"}
    dues = Deadlines[str](things.__contains__)
    assert dues.next_due() == math.inf
    dues.add(5.0, "b", 2)
    dues.add(3.0, "a", 2)
    assert dues.next_due() == 3.0
    things.remove("a")
    assert dues.next_due() == 5.0
    assert dues.take_due(4.0) == []
    assert dues.take_due(5.0) == ["b"]
    assert dues.next_due() == math.inf


def test_a_thing_with_two_entries_is_due_once() -> None:
    live = Thing()
    dues = Deadlines[Thing](lambda thing: thing is live)
    dues.add(7.0, live, 1)
    dues.add(8.0, live, 1)
    assert dues.take_due(9.0) == [live]


def test_entries_of_things_that_are_gone_have_a_limit() -> None:
    live = Thing()
    dues = Deadlines[Thing](lambda thing: thing is live)
    dues.add(7.0, live, 1)
    dues.add(9.0, live, 1)
    for _ in range(10 * SPARE_ENTRIES_MAX):
        dues.add(1000.0, Thing(), 1)
        assert len(dues._heap) <= SPARE_ENTRIES_MAX + 2
    assert dues.next_due() == 7.0
