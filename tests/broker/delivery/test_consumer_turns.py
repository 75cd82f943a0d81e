"""The order of turns, against a plain search through all consumers."""

import random

from braidlog.broker.delivery.consumer_turns import OLD_ITEMS_MAX, ConsumerTurns
from tests.broker.delivery.dispatch_fakes import FakeConsumer


class PullingFake(FakeConsumer):
    """A consumer that asks for records."""

    pulls = True


def joined(turns, priority=0, permits=1, kind=FakeConsumer):
    consumer = kind("c", priority, permits=permits, is_attached=True)
    turns.add(consumer)
    return consumer


def test_the_longest_without_a_turn_comes_first_within_the_best_priority():
    turns = ConsumerTurns()
    later, first, second = joined(turns, 1), joined(turns), joined(turns)
    for expected in (first, second, first):
        assert turns.first() is expected
        turns.had(expected)
    first.permits = second.permits = 0
    assert turns.first() is later


def test_consumers_that_left_have_no_turn():
    turns = ConsumerTurns()
    first, second = joined(turns), joined(turns)
    turns.remove(first)
    assert turns.first() is second
    turns.remove(second)
    turns.ready(second)
    assert turns.first() is None
    assert not turns.are_ready


def test_a_consumer_without_permits_is_not_looked_at_until_it_is_ready():
    turns = ConsumerTurns()
    idle, busy = joined(turns, permits=0), joined(turns)
    assert turns.first() is busy
    idle.permits = 1
    assert turns.first() is busy
    turns.ready(idle)
    assert turns.first() is idle  # Its place is that of its last turn.


def test_a_full_outbox_keeps_the_consumers_place():
    turns = ConsumerTurns()
    full, other = joined(turns), joined(turns)
    full.is_full = True
    assert turns.first() is other
    full.is_full = False
    assert turns.first() is full


def test_consumers_that_left_are_not_kept():
    turns = ConsumerTurns()
    stays = joined(turns)
    for _ in range(3 * OLD_ITEMS_MAX):
        turns.remove(joined(turns))
    assert turns.first() is stays
    assert len(turns._senders) <= OLD_ITEMS_MAX + 3
    assert list(turns._by_turn.values()) == [stays]


def test_members_that_pull_have_turns_of_their_own():
    turns = ConsumerTurns()
    member, sender = joined(turns, kind=PullingFake), joined(turns)
    assert (turns.first(), turns.first(pulls=True)) == (sender, member)
    assert turns.turn_of(member) < turns.turn_of(sender)
    assert turns.sender_count == 1
    turns.remove(sender)
    assert turns.sender_count == 0
    assert turns.are_ready


def test_any_course_of_events_agrees_with_a_search():
    random_ = random.Random(3)
    turns, order = ConsumerTurns(), []
    for _ in range(2000):
        act = random_.randrange(5)
        if act == 0 and len(order) < 8:
            order.append(joined(turns, random_.randrange(2), random_.randrange(3)))
        elif act == 1 and order:
            gone = order.pop(random_.randrange(len(order)))
            turns.remove(gone)
        elif act == 2 and order:
            consumer = random_.choice(order)
            consumer.permits += 1
            turns.ready(consumer)
        else:
            able = [consumer for consumer in order if consumer.can_take]
            expected = min(able, key=lambda consumer: consumer.priority, default=None)
            assert turns.first() is expected
            if expected is not None:
                expected.permits -= 1
                turns.had(expected)
                order.remove(expected)
                order.append(expected)
