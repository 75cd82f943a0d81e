from braidlog.protocols.http.management.rates import SPACING_S, WINDOW_S, Rates


def rate(rates, now_s, total):
    return rates.rates(now_s, {"in": {"t": total}})["in"]["t"]


def test_the_first_rate_is_that_since_counting_began():
    assert rate(Rates(100.0), 110.0, 50) == 5.0


def test_a_rate_is_that_of_the_last_minute_however_often_somebody_scrapes():
    rates = Rates(0.0)
    for second in range(1, 200):
        found = rate(rates, float(second), 10 * second)
        assert found == 10.0
    assert rate(rates, 200.0 + WINDOW_S, 10 * 200) < 10 * SPACING_S / WINDOW_S + 1


def test_a_counter_that_began_anew_is_no_negative_rate():
    rates = Rates(0.0)
    rate(rates, 20.0, 1000)
    assert rate(rates, 20.0 + WINDOW_S, 5) == 0.0


def test_what_is_new_counts_from_nothing():
    rates = Rates(0.0)
    rates.rates(10.0, {"in": {}})
    assert rates.rates(10.0 + WINDOW_S, {"in": {"new": 120}})["in"]["new"] == 2.0
