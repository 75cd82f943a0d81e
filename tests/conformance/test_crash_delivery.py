"""SIGKILL, killed consumers and cut connections under Failover, Shared and Key_Shared delivery."""

import pytest

from conformance.crash.delivery import run


@pytest.mark.slow
@pytest.mark.clients
def test_nothing_is_lost_or_repeated_over_kills():
    """`python -m conformance.crash.delivery` kills more often."""
    seen = run(kills=8, seed=25, run_s_max=0.3)
    assert seen.broken == []
    assert seen.acknowledged > 30
    assert seen.gone and seen.cut
