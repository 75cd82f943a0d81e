"""Ages while the wall clock is set: back and ahead, by minutes and years."""

import random

from braidlog.storage.log.age_clock import JUMP_US_MIN, JUMPS_MAX, AgeClock, steady_us

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
YEAR_US = 365 * 24 * HOUR_US


class Clocks:
    """An adjustable wall clock, and a steady clock."""

    def __init__(self):
        self.steady = 5 * MINUTE_US
        self.ahead = YEAR_US * 50
        self.ages = AgeClock(lambda: self.steady + self.ahead, lambda: self.steady)

    @property
    def wall(self):
        return self.steady + self.ahead


def test_a_jump_ahead_does_not_count_until_the_limit_has_passed():
    clocks = Clocks()
    stamp = clocks.wall
    clocks.ahead += YEAR_US
    clocks.steady += 10
    assert clocks.ages.now_us(HOUR_US) - stamp == 10
    assert clocks.ages.now_us(5) - stamp == 10, "seen at the first look"
    clocks.steady += HOUR_US
    assert clocks.ages.now_us(HOUR_US) == clocks.wall
    assert clocks.ages.now_us(2 * HOUR_US) == clocks.wall - YEAR_US


def test_a_slow_clock_for_a_single_record_does_not_make_it_old():
    clocks = Clocks()
    clocks.ahead -= 2 * HOUR_US
    stamp = clocks.wall
    clocks.ages.look()
    clocks.ahead += 2 * HOUR_US
    assert clocks.ages.now_us(HOUR_US) - stamp == 0
    clocks.steady += HOUR_US - 1
    assert clocks.ages.now_us(HOUR_US) - stamp < HOUR_US
    clocks.steady += 1
    assert clocks.ages.now_us(HOUR_US) - stamp == 3 * HOUR_US


def test_a_slewed_clock_is_followed():
    clocks = Clocks()
    clocks.ahead += JUMP_US_MIN - 1
    assert clocks.ages.now_us(HOUR_US) == clocks.wall
    clocks.ahead += 1
    assert clocks.ages.now_us(HOUR_US) == clocks.wall - JUMP_US_MIN


def test_no_age_exceeds_the_steady_clock():
    for seed in range(200):
        rng = random.Random(seed)
        clocks, written = Clocks(), []
        for _ in range(150):
            clocks.steady += rng.randrange(10 * MINUTE_US)
            if rng.random() < 0.3:
                clocks.ahead += rng.choice((-1, 1)) * rng.choice((MINUTE_US, HOUR_US, YEAR_US))
            clocks.ages.look()
            written.append((clocks.steady, clocks.wall))
            limit = rng.choice((MINUTE_US, HOUR_US, 3 * HOUR_US))
            now_us = clocks.ages.now_us(limit)
            dropped = [at for at, stamp in written if now_us - stamp > limit]
            assert all(clocks.steady - at >= limit for at in dropped), seed


def test_many_jumps_take_little_memory():
    clocks = Clocks()
    for _ in range(10 * JUMPS_MAX):
        clocks.steady += 1
        clocks.ahead += MINUTE_US
        clocks.ages.look()
    assert len(clocks.ages._jumps) == JUMPS_MAX
    assert clocks.ages.now_us(YEAR_US) == clocks.wall - 10 * JUMPS_MAX * MINUTE_US


def test_the_steady_clock_continues():
    before = steady_us()
    assert 0 < before <= steady_us()
