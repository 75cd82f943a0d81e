"""Retention's checks: their times and their partitions, without delay for other tasks."""

from types import SimpleNamespace

import pytest
import trio

from braidlog.broker.topics.retention_sweeps import PASSED_OVER, Retention
from braidlog.storage.errors import StorageFailed, StorageFull
from braidlog.storage.log.age_clock import AgeClock
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.names import parse_topic

NOW_US = 17
LIMITED = LogSettings(retention_bytes=1)


class AgeingLog:
    def __init__(self, settings, error=None):
        self.settings = settings
        self.error = error
        self.asked = []

    def undated(self, now_us, acknowledged, held):
        return None

    def retain(self, now_us, acknowledged, held, *, wall_us):
        assert now_us == wall_us
        self.asked.append((now_us, acknowledged))
        self.held = held
        if self.error is not None:
            raise self.error
        return 1


def topic_of(*logs):
    partitions = [
        SimpleNamespace(index=index, log=log, removed=False) for index, log in enumerate(logs)
    ]
    return SimpleNamespace(check_here=lambda: None, partitions=partitions)


class FixedPositions:
    """Subscriptions whose lowest position is 7 in each partition."""

    def __init__(self):
        self.asked = 0

    async def lowest_position(self, topic, index):
        self.asked += 1
        await trio.lowlevel.checkpoint()
        return 7

    def find(self, topic, name):
        return SimpleNamespace(position={b"a": lambda index: 7, b"b": lambda index: None}[name])


class RetentionParts:
    def __init__(self, *topics):
        self.subscriptions = FixedPositions()
        self.told = []
        self.lost = []
        self.spent = 0
        self.retention = Retention(
            SimpleNamespace(all=lambda: topics),
            self.subscriptions,
            interval_ms=1000,
            ages=AgeClock(lambda: NOW_US, lambda: 0),
            use_reserve=self.use_reserve,
            report=self.told.append,
            hold_lost=lambda *lost: self.lost.append(lost),
        )

    def use_reserve(self, act):
        self.spent += 1
        return act()


@pytest.mark.parametrize(
    ("settings", "checked"),
    [
        ({}, []),
        ({"keep_unacknowledged": True}, []),
        ({"retention_bytes": 1}, [(NOW_US, None)]),
        ({"retention_ms": 1}, [(NOW_US, None)]),
        ({"retention_ms": 1, "keep_unacknowledged": True}, [(NOW_US, 7)]),
        ({"delete_acknowledged": True}, [(NOW_US, 7)]),
    ],
)
async def test_a_log_is_checked_by_its_settings(settings, checked):
    log = AgeingLog(LogSettings(**settings))
    topic = topic_of(log)
    house = RetentionParts(topic)
    await house.retention.apply(topic)
    assert log.asked == checked
    assert house.spent == len(checked), "what makes room may use the room kept for it"
    assert house.subscriptions.asked == sum(position is not None for _, position in checked)


async def test_removed_partitions_are_skipped():
    topic = topic_of(AgeingLog(LIMITED), AgeingLog(LIMITED))
    topic.partitions[0].removed = True
    await RetentionParts(topic).retention.apply(topic)
    assert [len(partition.log.asked) for partition in topic.partitions] == [0, 1]


async def test_a_full_disk_is_reported_and_the_next_partition_checked():
    full = StorageFull("no room")
    topic = topic_of(AgeingLog(LIMITED, full), AgeingLog(LIMITED))
    house = RetentionParts(topic)
    await house.retention.apply(topic)
    assert house.told == [full]
    assert topic.partitions[1].log.asked


async def test_a_failure_ends_retention():
    topic = topic_of(AgeingLog(LIMITED, StorageFailed("EIO")))
    house = RetentionParts(topic)
    with pytest.raises(StorageFailed):
        with trio.fail_after(5):
            await house.retention.run()


@pytest.mark.parametrize(("settings", "step"), [(LIMITED, 1), (LogSettings(), PASSED_OVER)])
async def test_a_check_of_thousands_gives_turns_to_other_tasks(settings, step):
    topic = topic_of(*(AgeingLog(settings) for _ in range(8 * PASSED_OVER)))
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await RetentionParts(topic).retention.apply(topic)
        nursery.cancel_scope.cancel()
    assert turns >= len(topic.partitions) // step - 2


async def test_retention_checks_repeatedly(autojump_clock):
    log = AgeingLog(LIMITED)
    house = RetentionParts(topic_of(log))
    with trio.move_on_after(10.5):
        await house.retention.run()
    assert len(log.asked) == 10


async def test_a_hold_uses_the_position_of_its_own_subscription():
    log = AgeingLog(LogSettings(retention_bytes=1, retention_hold="a"))
    log.log_start_offset = 0
    house = RetentionParts(topic_of(log))
    await house.retention.apply(topic_of(log))
    assert (log.asked, log.held) == ([(NOW_US, None)], 7)
    assert house.lost == []


async def test_records_removed_by_the_cap_of_a_hold_are_counted():
    log = AgeingLog(LogSettings(retention_bytes=1, retention_hold="a"))
    topic = topic_of(log)
    topic.partitions[0].topic = SimpleNamespace(name=parse_topic("orders"))
    house = RetentionParts(topic)
    log.log_start_offset = 7
    await house.retention.apply(topic)
    assert house.lost == []
    log.log_start_offset = 10  # The subscription's position is 7.
    await house.retention.apply(topic)
    assert house.lost == [("public/default/orders", "a", 3)]
