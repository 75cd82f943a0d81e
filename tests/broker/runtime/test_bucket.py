"""A rate with a burst, into debt."""

from braidlog.broker.runtime.bucket import Bucket


def test_spending_beyond_the_burst_waits_for_the_rate():
    now = [0.0]
    bucket = Bucket(10, 0.5, lambda: now[0])
    assert bucket.left() == 5
    assert bucket.spend(5) == 0
    assert bucket.spend(10) == 1.0
    now[0] = 2.0
    assert bucket.left() == 5  # The debt is paid, and the burst is the most.
