"""What is remembered of checked places, beside a plain set of bytes."""

import random

import pytest

from braidlog.storage.log.checked_places import PLACES_MAX, CheckedPlaces


def test_nothing_is_known_at_first():
    assert CheckedPlaces().end_from(0) == 0
    assert CheckedPlaces().end_from(7) == 7


def test_places_are_joined_where_they_meet():
    places = CheckedPlaces()
    for start, end in ((10, 20), (30, 40), (20, 30)):
        places.note(start, end)
    assert [places.end_from(pos) for pos in (9, 10, 25, 39, 40)] == [9, 40, 40, 40, 40]


def test_no_more_places_are_kept_than_the_limit_and_the_last_one_is_among_them():
    places = CheckedPlaces()
    for number in range(3 * PLACES_MAX):
        places.note(number * 10, number * 10 + 5)
        assert places.end_from(number * 10) == number * 10 + 5
    known = sum(places.end_from(number * 10) > number * 10 for number in range(3 * PLACES_MAX))
    assert known == PLACES_MAX


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_known_to_be_right_that_was_not_noted(seed):
    random_ = random.Random(seed)
    places, noted = CheckedPlaces(), set()
    for _ in range(200):
        start = random_.randrange(300)
        end = start + random_.randrange(1, 30)
        places.note(start, end)
        noted.update(range(start, end))
        assert places.end_from(start) >= end
        pos = random_.randrange(330)
        assert noted.issuperset(range(pos, places.end_from(pos)))
