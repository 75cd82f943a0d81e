from braidlog.protocols.http.management.rates import SPACING_S, WINDOW_S, RateSamples


def rate(rates, now_s, total):
    return rates.rates(now_s, {"in": {"t": total}})["in"]["t"]


def test_the_first_rate_is_since_the_start_of_counting():
    assert rate(RateSamples(100.0), 110.0, 50) == 5.0


def test_a_rate_covers_the_last_minute_at_any_scrape_interval():
    rates = RateSamples(0.0)
    for second in range(1, 200):
        per_second = rate(rates, float(second), 10 * second)
        assert per_second == 10.0
    assert rate(rates, 200.0 + WINDOW_S, 10 * 200) < 10 * SPACING_S / WINDOW_S + 1


def test_a_restarted_counter_gives_no_negative_rate():
    rates = RateSamples(0.0)
    rate(rates, 20.0, 1000)
    assert rate(rates, 20.0 + WINDOW_S, 5) == 0.0


def test_a_new_counter_starts_at_0():
    rates = RateSamples(0.0)
    rates.rates(10.0, {"in": {}})
    assert rates.rates(10.0 + WINDOW_S, {"in": {"new": 120}})["in"]["new"] == 2.0
