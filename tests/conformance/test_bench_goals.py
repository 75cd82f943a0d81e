"""A goal of the bench's table is met or missed as its words say."""

import pytest

from conformance.bench.goals import is_met
from conformance.bench.workloads import WORKLOADS


@pytest.mark.parametrize(
    ("goal", "value", "ratio", "cpu_us", "wanted"),
    [
        ("0.5", 0, 0.5, None, True),
        ("0.5", 0, 0.49, None, False),
        ("0.5", 0, None, None, None),
        ("at most 2", 2, None, None, True),
        ("at most 2", 2.1, 0, None, False),
        ("at most 50 ms", 49, None, None, True),
        ("50 ms", 51, None, None, False),
        ("12 k", 12_000, None, None, True),
        ("12 k", 11_999, None, None, False),
        ("CPU 3", 0, None, 3, True),
        ("4; CPU 3", 0, 4, 3.1, False),
        ("4; CPU 3", 0, 3.9, None, False),
        ("4; CPU of D2", 0, 4, 1, None),
        ("", 0, 1, 1, None),
    ],
)
def test_a_goal_is_met_or_missed(goal, value, ratio, cpu_us, wanted):
    assert is_met(goal, value, ratio, cpu_us) is wanted


def test_the_http_rows_can_be_judged():
    rows = (workload for workload in WORKLOADS if workload.name.startswith("http-"))
    goals = {row.name: row.goal for row in rows if row.goal}
    assert goals == {
        "http-produce-1": "0.5",
        "http-produce-100": "0.25",
        "http-latency": "at most 50 ms",
        "http-beside-kafka": "at most 2",
    }
    assert all(is_met(goal, 0, 9, 0) for goal in goals.values())
