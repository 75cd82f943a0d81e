"""The change of lags between looks."""

from braidlog.protocols.http.console.growth import GROWTH_KEYS_MAX, Growth


def test_a_lag_is_compared_with_an_earlier_look():
    now = 0.0
    growth = Growth(lambda: now)
    assert growth.per_s("g", 10) is None
    now = 5.0
    assert growth.per_s("g", 60) == 10
    now = 10.0
    assert growth.per_s("g", 60) == 0
    now = 11.0  # Too soon for a new comparison.
    assert growth.per_s("g", 54) == -1


def test_lags_that_were_not_looked_at_are_forgotten():
    growth = Growth(lambda: 0.0)
    for number in range(GROWTH_KEYS_MAX + 1):
        growth.per_s(number, 0)
    assert growth.per_s(0, 0) is None
