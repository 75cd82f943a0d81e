"""The run that times starts and stops with many partitions works, and loses nothing."""

import pytest

from conformance.bench.start_stop import PROCESSOR, WANTED_S, empty, measure, row_text


@pytest.mark.slow
def test_a_short_run_times_each_start_and_stop():
    seen = measure(partitions=30, turns=1)
    assert set(seen) == {*WANTED_S, PROCESSOR}
    assert all(seconds > 0 for (seconds,) in seen.values())


@pytest.mark.slow
def test_a_broker_without_topics_has_its_own_line():
    assert "Without topics: a start takes " in empty()


def test_the_table_has_medians_and_goals():
    seen = {step: [3.0, 1.0, 2.0] for step in (*WANTED_S, PROCESSOR)}
    lines = row_text(20_000, seen).splitlines()
    assert "| stop | 2.00 s | 1.00 to 3.00 s | 2 s |" in lines
    assert f"| {PROCESSOR} | 2.00 s | 1.00 to 3.00 s |  |" in lines
