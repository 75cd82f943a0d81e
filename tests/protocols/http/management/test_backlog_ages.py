"""Ages of backlogs, for metrics: cached, and unknown if unreadable."""

import pytest

from braidlog.broker.errors import DamagedLog
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.protocols.http.management.backlog_ages import Ages
from braidlog.storage.metadata.names import TopicName
from tests.broker.records import APPEND_US, append


@pytest.fixture
async def partition(broker):
    topic = await broker.topics.create(TopicName("public", "default", "t"), 1)
    for value in (b"a", b"b"):
        await append(broker, topic.partitions[0], "plain", [value])
    return topic.partitions[0]


class UnreadablePartition:
    """A partition whose log is damaged, or whose records are removed meanwhile."""

    partition_id, log_start_offset, high_watermark = 9, 0, 5

    def __init__(self, *answers):
        self.answers = list(answers)

    def room(self):
        return OutputBudget().reserve_now(0)

    async def read(self, offset, bytes_max, *, before_large):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_group_is_as_old_as_the_record_at_its_position(partition):
    ages = Ages()
    ages.begin()
    for position in (None, 0, 1):
        assert await ages.since_us(partition, position) == APPEND_US
    assert await ages.since_us(partition, 2) is None  # There is no backlog.


async def test_an_unreadable_age_is_unknown_and_read_again(partition):
    ages = Ages()
    ages.begin()
    unreadable = UnreadablePartition(DamagedLog("t", 0, 0, "x"), [], [])
    assert [await ages.since_us(unreadable, 3) for _ in range(3)] == [None] * 3
    assert unreadable.answers == []


async def test_a_scrape_reads_few_logs_and_the_next_scrape_others(partition):
    ages = Ages(looks_max=1)
    ages.begin()
    assert [await ages.since_us(partition, n) for n in (0, 1)] == [APPEND_US, None]
    ages.begin()
    assert [await ages.since_us(partition, n) for n in (0, 1)] == [APPEND_US, APPEND_US]
