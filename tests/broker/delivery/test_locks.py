"""Acquisition locks: ranges, holders, deadlines; compared with a dict of offsets."""

import math
import random

from braidlog.broker.delivery.locks import Lock, Locks
from tests.broker.delivery.dispatch_fakes import FakeConsumer

A, B = FakeConsumer("a"), FakeConsumer("b")


def ranges(locks):
    return [(lock.first, lock.end) for lock in locks]


def test_a_taken_range_cuts_the_locks_around_it():
    locks = Locks()
    locks.add(Lock(0, 10, A, 1, 5.0))
    locks.add(Lock(10, 20, B, 2, 6.0))
    assert ranges(locks.take(8, 12)) == [(8, 10), (10, 12)]
    assert ranges(locks) == [(0, 8), (12, 20)]
    assert locks.records == 16


def test_a_holder_has_all_offsets_or_not():
    locks = Locks()
    locks.add(Lock(0, 5, A, 1, 5.0))
    locks.add(Lock(5, 8, A, 2, 5.0))
    locks.add(Lock(8, 9, B, 1, 5.0))
    assert locks.are_of(A, 1, 8)
    assert not locks.are_of(A, 1, 9)
    assert not locks.are_of(B, 7, 9)
    assert not locks.are_of(A, 9, 10)


def test_hidden_records_go_with_the_next_record_and_do_not_count():
    locks = Locks()
    locks.add(Lock(0, 3, A, 1, 5.0, is_hidden=True))
    locks.add(Lock(3, 4, A, 1, 5.0))
    assert locks.records == 1
    assert locks.with_hidden(3) == 0
    assert locks.with_hidden(0) == 0


def test_locks_end_at_their_deadlines():
    locks = Locks()
    locks.add(Lock(0, 2, A, 1, 5.0))
    locks.add(Lock(2, 4, A, 1, 7.0))
    assert not locks.take_due(4.9)
    assert ranges(locks.take_due(5.0)) == [(0, 2)]
    assert locks.due_at == 7.0
    assert ranges(locks.take_of(A)) == [(2, 4)]
    assert locks.take_due(9.0) == [] and locks.due_at == math.inf


def test_random_locks_are_those_of_a_dict():
    rng = random.Random(7)
    for _ in range(100):
        locks, held = Locks(), {}
        for _ in range(60):
            start = rng.randrange(40)
            end = start + rng.randint(1, 8)
            if rng.random() < 0.5 and not any(offset in held for offset in range(start, end)):
                holder = rng.choice((A, B))
                locks.add(Lock(start, end, holder, 1, 1.0))
                held.update(dict.fromkeys(range(start, end), holder))
            elif rng.random() < 0.5:
                ended = [o for lock in locks.take(start, end) for o in range(lock.first, lock.end)]
                assert ended == [offset for offset in range(start, end) if offset in held]
                for offset in ended:
                    del held[offset]
            assert locks.records == len(held)
            assert locks.overlaps(start, end) == any(o in held for o in range(start, end))
            assert locks.are_of(A, start, end) == all(held.get(o) is A for o in range(start, end))
