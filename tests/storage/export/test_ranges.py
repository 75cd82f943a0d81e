"""The ranges that a run exports."""

import pytest

from braidlog.storage.export.ranges import (
    TASK_BYTES,
    Bounds,
    LogTooShort,
    Range,
    RecordsLost,
    is_kept,
    shares,
)
from braidlog.storage.export.ranges import plan as whole_plan
from braidlog.storage.export.readers import PartitionState

TOPIC = "public/default/orders"


def state(partition_id=7, index=0, start=0, watermark=100, size=1000):
    return PartitionState(TOPIC, partition_id, index, start, watermark, size)


def plan(partitions, positions, **options):
    return whole_plan(partitions, positions, **options).ranges


def test_a_partition_never_exported_starts_at_its_log_start():
    assert plan([state(start=40)], {}) == [Range(7, 0, 40, 100, TOPIC)]


def test_a_partition_continues_at_the_end_of_the_last_run():
    assert plan([state()], {7: 60}) == [Range(7, 0, 60, 100, TOPIC)]


def test_without_new_records_there_is_no_task():
    assert plan([state()], {7: 100}) == []


@pytest.mark.parametrize("fail_on_loss", [True, False])
def test_a_log_that_ends_before_the_position_stops_the_run(fail_on_loss):
    with pytest.raises(LogTooShort, match=r"ends at 100\) was exported up to 120"):
        plan([state()], {7: 120}, fail_on_loss=fail_on_loss)


def test_lost_records_stop_the_run():
    with pytest.raises(RecordsLost, match="offsets 10 to 39"):
        plan([state(start=40)], {7: 10})


def test_lost_records_are_skipped_on_request():
    assert plan([state(start=40)], {7: 10}, fail_on_loss=False) == [Range(7, 0, 40, 100, TOPIC)]


def test_a_large_partition_is_split_without_gap_or_overlap():
    tasks = plan([state(watermark=1000, size=10 * TASK_BYTES)], {7: 500})
    assert [(task.start, task.end) for task in tasks] == [
        (500, 600),
        (600, 700),
        (700, 800),
        (800, 900),
        (900, 1000),
    ]


def test_there_are_never_more_tasks_than_records():
    tasks = plan([state(watermark=3, size=100 * TASK_BYTES)], {})
    assert [(task.start, task.end) for task in tasks] == [(0, 1), (1, 2), (2, 3)]


def test_a_gap_is_reported_with_the_range_behind_it():
    plan = whole_plan([state(start=40)], {7: 10}, fail_on_loss=False)
    assert plan.gaps == [Range(7, 0, 10, 40, TOPIC)]


def test_small_backlogs_are_split_only_if_worthwhile():
    assert len(plan([state(size=TASK_BYTES // 2)], {}, cores=4)) == 4
    assert len(plan([state(size=1000)], {}, cores=4)) == 1


def test_a_bounded_run_takes_from_each_in_proportion_to_its_backlog():
    partitions = [state(1, watermark=300), state(2, watermark=100), state(3, watermark=0)]
    tasks = plan(partitions, {}, bounds=Bounds(rows_max=40))
    assert [(task.partition_id, task.end) for task in tasks] == [(1, 30), (2, 10)]


def test_shares_are_in_proportion_and_never_more_than_allowed():
    assert shares({"a": 90, "b": 10}, 10) == {"a": 9, "b": 1}
    assert shares({"a": 1, "b": 1, "c": 1}, 2) == {"a": 1, "b": 1, "c": 0}
    assert shares({"a": 1000, "b": 1, "c": 0}, 10) == {"a": 9, "b": 1, "c": 0}
    assert shares({"a": 3}, 10) == {"a": 3}


def test_a_bounded_run_skips_no_small_backlog():
    partitions = [state(1, watermark=10_000), state(2, watermark=3)]
    for bounds in (Bounds(rows_max=10), Bounds(bytes_max=1000)):
        tasks = plan(partitions, {}, bounds=bounds)
        assert [task.partition_id for task in tasks] == [1, 2]


def test_a_bound_in_bytes_uses_the_average_record():
    tasks = plan([state(size=1000)], {}, bounds=Bounds(bytes_max=250))
    assert [(task.start, task.end) for task in tasks] == [(0, 25)]


def test_a_bound_never_stops_all_progress():
    assert [task.end for task in plan([state()], {7: 50}, bounds=Bounds(bytes_max=1))] == [51]


def test_from_latest_fixes_the_start_of_the_first_export():
    assert plan([state()], {}, from_latest=True) == [Range(7, 0, 100, 100, TOPIC)]
    assert plan([state(watermark=120)], {7: 100}, from_latest=True)[0].start == 100


def test_a_run_ends_at_a_given_end_that_an_earlier_run_may_have_passed():
    assert plan([state()], {7: 40}, ends={7: 60}) == [Range(7, 0, 40, 60, TOPIC)]
    assert plan([state()], {7: 60}, ends={7: 60}) == plan([state()], {7: 80}, ends={7: 60}) == []
    assert plan([state()], {}, ends={7: 60}, from_latest=True) == [Range(7, 0, 60, 60, TOPIC)]


def test_a_range_is_kept_while_its_partition_is_complete():
    part = Range(7, 0, 10, 50, TOPIC)
    assert is_kept(part, [state()])
    assert not is_kept(part, [state(start=11)])
    assert not is_kept(part, [state(partition_id=8)])


def test_too_few_records_are_no_run_but_fix_the_start():
    assert plan([state(size=1000)], {}, bounds=Bounds(bytes_min=1001)) == []
    assert len(plan([state(size=1000)], {}, bounds=Bounds(bytes_min=1000))) == 1
    assert plan([state()], {7: 50}, bounds=Bounds(bytes_min=501)) == []
    fixed = plan([state()], {}, bounds=Bounds(bytes_min=501), from_latest=True)
    assert fixed == [Range(7, 0, 100, 100, TOPIC)]
