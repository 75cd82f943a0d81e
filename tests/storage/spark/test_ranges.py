"""What a run exports."""

import pytest

from storage.spark.ranges import TASK_BYTES, PartitionState, Range, RecordsLost, plan


def state(partition_id=7, index=0, start=0, watermark=100, size=1000):
    return PartitionState(partition_id, index, f"/log/{partition_id}", start, watermark, size)


def test_a_partition_never_exported_starts_at_its_log_start():
    assert plan([state(start=40)], {}) == [Range(7, 0, "/log/7", 40, 100)]


def test_a_partition_goes_on_where_the_last_run_ended():
    assert plan([state()], {7: 60}) == [Range(7, 0, "/log/7", 60, 100)]


def test_nothing_new_is_no_task():
    assert plan([state()], {7: 100}) == []


def test_a_position_above_the_watermark_is_no_task():
    assert plan([state()], {7: 120}) == []


def test_lost_records_stop_the_run():
    with pytest.raises(RecordsLost, match="offsets 10 to 39"):
        plan([state(start=40)], {7: 10})


def test_lost_records_are_stepped_over_when_told_so():
    assert plan([state(start=40)], {7: 10}, fail_on_loss=False) == [Range(7, 0, "/log/7", 40, 100)]


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
