"""A step of the wall clock drops no record because of age."""

import pytest

from braidlog.broker.positions.backlog import limits_of
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.names import parse_topic

MINUTE_US = 60_000_000
YEAR_US = 365 * 24 * 60 * MINUTE_US
NAME = parse_topic("orders")
HOUR = {"retention_ms": 3_600_000, "message_ttl_s": 3600}


class BrokerClocks:
    """The two clocks of a broker: an adjustable wall clock, and a steady clock."""

    def __init__(self, broker):
        self.broker = broker
        self.ahead_us = 0
        self.passed_us = 0
        wall_us, steady_us = broker.now_us(), broker.steady_us()
        broker.now_us = lambda: wall_us + self.passed_us + self.ahead_us
        broker.steady_us = lambda: steady_us + self.passed_us


@pytest.fixture
async def stepped(broker):
    topic = await broker.topics.create(NAME, 1, settings=HOUR)
    subscription = broker.subscriptions.open(topic, b"group", {})
    subscription.seek(0, 0)
    return Stepped(broker, topic, subscription, BrokerClocks(broker))


class Stepped:
    """A topic with a limit of an hour for retention and TTL, and a subscription at its start."""

    def __init__(self, broker, topic, subscription, clock):
        self.broker, self.topic, self.subscription, self.clock = broker, topic, subscription, clock
        self.partition = topic.partitions[0]

    async def append(self):
        now_us = self.broker.now_us()
        offset = self.partition.next_offset
        body = PLAIN.encode([Record(offset, now_us, value=b"x")], offset)
        place = {"body_format": BodyFormat.PLAIN, "append_us": now_us}
        done = self.partition.append([body], BodyInfo(1), **place)
        await self.broker.durability.reached(done.ticket)

    async def look(self):
        await self.broker.backlogs.apply(self.topic, limits_of(self.topic))
        await self.broker.retention.apply(self.topic)
        return self.partition.log.log_start_offset, self.subscription.position(0)


@pytest.mark.parametrize("step_us", [2 * 60 * MINUTE_US, 10 * YEAR_US])
async def test_a_jump_ahead_drops_nothing_until_the_limit_has_passed(stepped, step_us):
    for _ in range(3):
        await stepped.append()
    stepped.clock.ahead_us = step_us
    assert await stepped.look() == (0, 0)
    await stepped.append()
    stepped.clock.passed_us = 59 * MINUTE_US
    assert await stepped.look() == (0, 0)
    stepped.clock.passed_us = 61 * MINUTE_US
    assert await stepped.look() == (4, 4)


@pytest.mark.parametrize("step_us", [2 * 60 * MINUTE_US, 10 * YEAR_US])
async def test_a_slow_clock_for_a_single_record_drops_nothing(stepped, step_us):
    await stepped.append()
    stepped.clock.ahead_us = -step_us
    await stepped.append()
    stepped.partition.log.alter(LogSettings(segment_bytes=1, retention_ms=3_600_000))
    await stepped.append()
    stepped.clock.ahead_us = 0
    await stepped.append()
    stepped.clock.passed_us = 59 * MINUTE_US
    assert await stepped.look() == (0, 0)
    stepped.clock.passed_us = 61 * MINUTE_US
    assert await stepped.look() == (4, 4)
