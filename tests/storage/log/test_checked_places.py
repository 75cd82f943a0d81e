"""The memory of checked places, compared with a plain set of bytes."""

import random

import pytest

from braidlog.storage.log.checked_places import PLACES_MAX, CheckedPlaces


def test_a_new_memory_knows_no_place():
    assert CheckedPlaces().end_from(0) == 0
    assert CheckedPlaces().end_from(7) == 7


def test_adjacent_places_are_joined():
    places = CheckedPlaces()
    for start, end in ((10, 20), (30, 40), (20, 30)):
        places.note(start, end)
    assert [places.end_from(pos) for pos in (9, 10, 25, 39, 40)] == [9, 40, 40, 40, 40]


def test_places_have_a_limit_and_the_last_is_kept():
    places = CheckedPlaces()
    for number in range(3 * PLACES_MAX):
        places.note(number * 10, number * 10 + 5)
        assert places.end_from(number * 10) == number * 10 + 5
    known = sum(places.end_from(number * 10) > number * 10 for number in range(3 * PLACES_MAX))
    assert known == PLACES_MAX


@pytest.mark.parametrize("seed", range(20))
def test_only_noted_places_are_known(seed):
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
