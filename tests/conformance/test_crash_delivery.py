"""SIGKILL, killed consumers and cut connections under Failover, Shared and Key_Shared delivery."""

import pytest

from conformance.crash.delivery import run


@pytest.mark.slow
@pytest.mark.clients
def test_nothing_is_lost_or_repeated_over_25_kills():
    acknowledged, broken = run(kills=25, seed=25, run_s_max=0.3)
    assert broken == []
    assert acknowledged > 100
