"""One queue: the judge of its program, and a short run with real clients."""

from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest.importorskip("pulsar", reason="pulsar-client is not installed")

import confluent_kafka as kafka

from conformance.queue.__main__ import PYTHON_WORKERS, run
from conformance.queue.judge import Judge

Event = tuple[int, str, int, int]


def judged(
    *events: Event,
    ends: Iterable[tuple[int, int]] = (),
    kills: Iterable[tuple[int, int]] = (),
    failed: Iterable[int] = (),
) -> list[str]:
    judge = Judge(failed=dict.fromkeys(failed, "an error"))
    for kill, start in kills:
        judge.kills.append(kill)
        judge.starts.append(start)
    judge.events = [(at, event, "v", count, worker) for at, event, worker, count in events]
    judge.done = {value for _, event, value, _, _ in judge.events if event == "D"}
    judge.ends = dict(ends)
    return [fault.split(": ")[1] for fault in judge.verdict({"v"})]


def test_a_value_has_one_holder() -> None:
    assert judged((1, "R", 1, 1), (2, "R", 2, 2), (3, "D", 2, 0)) == ["held by 1 and by 2"]
    assert not judged((1, "R", 1, 1), (3, "R", 2, 2), (4, "D", 2, 0), ends=[(1, 2)])
    assert not judged((1, "R", 1, 1), (2, "L", 1, 0), (3, "R", 2, 2), (4, "D", 2, 0))


def test_a_value_that_a_client_hands_out_before_the_next_broker_is_of_the_broker_before() -> None:
    events = (4, "R", 1, 1), (7, "R", 2, 1), (8, "D", 2, 0)
    assert judged(*events) == ["held by 1 and by 2", "delivery count 1 after 1 deliveries"]
    assert not judged(*events, kills=[(3, 6)])
    assert judged(*events, kills=[(1, 2)])


def test_a_failed_worker_holds_nothing_after_its_last_event() -> None:
    events = (1, "R", 1, 1), (3, "R", 2, 2), (5, "D", 2, 0)
    assert judged(*events, ends=[(1, 4)]) == ["held by 1 and by 2"]
    assert not judged(*events, ends=[(1, 4)], failed=[1])


def test_a_value_in_the_dead_letter_topic_needs_no_acknowledgement() -> None:
    judge = Judge(events=[(1, "R", "v", 4, 1), (2, "L", "v", 0, 1)])
    assert judge.verdict({"v"}) == ["v: never acknowledged, last event L of 1"]
    judge.dead.add("v")
    assert not judge.verdict({"v"})


def test_a_killed_client_may_have_acknowledged_what_it_received_while_it_reconnected() -> None:
    events = (4, "R", 1, 1), (5, "R", 2, 1), (6, "L", 1, 0)
    for ends, faults in (({2: 7}, 0), ({}, 1)):
        judge = Judge(ahead={2}, kills=[2], starts=[3], ends=ends)
        judge.events = [(at, event, "v", count, worker) for at, event, worker, count in events]
        never = [fault for fault in judge.verdict({"v"}) if "never acknowledged" in fault]
        assert len(never) == faults


def test_a_late_release_changes_nothing() -> None:
    events = (1, "R", 1, 1), (4, "R", 2, 1), (5, "L", 1, 0)
    assert not judged(*events, ends=[(2, 6)], kills=[(2, 3)])
    assert "held by 1 and by 2" in judged(*events, ends=[(2, 6)])


def test_no_value_comes_after_its_acknowledgement() -> None:
    faults = judged((1, "R", 1, 1), (2, "D", 1, 0), (3, "R", 2, 2), (4, "D", 2, 0))
    assert faults == ["received by 2 after its acknowledgement"]


def test_a_lost_value_and_a_low_count_are_faults() -> None:
    assert judged() == ["never acknowledged, last event none of 0"]
    assert not judged((1, "R", 1, 1), ends=[(1, 2)])
    faults = judged((1, "R", 1, 1), (2, "L", 1, 0), (3, "R", 2, 1), (4, "D", 2, 0))
    assert faults == ["delivery count 1 after 1 deliveries"]


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(kafka, "ShareConsumer"), reason="needs confluent-kafka 2.16")
def test_a_short_run_has_no_faults(tmp_path: Path) -> None:
    faults, _ = run(600, 0, 1, tmp_path, PYTHON_WORKERS)
    assert not faults
