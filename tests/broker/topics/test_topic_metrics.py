"""Only existing topics have metrics: memory does not grow with deleted topics."""

import pytest

from braidlog.storage.metadata.names import TopicName

NAME = TopicName("public", "default", "t")
COUNTED = "braidlog_records_out"


def topics_with_metrics(broker) -> set[str]:
    """Return the topics that have metrics."""
    return {labels[1] for name, labels in broker.metrics.snapshot().numbers if name == COUNTED}


async def test_a_reader_that_ends_after_its_topic_is_not_counted(broker):
    for _ in range(3):
        topic = await broker.topics.create(NAME, 1)
        broker.metrics.records_out("kafka", topic.metrics_name, 2, 10)
        assert topics_with_metrics(broker) == {NAME.full}
        await broker.topics.delete(NAME)
        broker.metrics.records_out("kafka", topic.metrics_name, 3, 10)
        broker.metrics.expired(topic.metrics_name, "s", 1)
        assert broker.metrics.snapshot().by_topic([COUNTED]) == {COUNTED: {}}
        assert topics_with_metrics(broker) == set()


@pytest.mark.parametrize("index", [None, 1])
async def test_metrics_of_non_persistent_topics_are_removed_too(broker, index):
    if index is not None:
        await broker.non_persistent.partition(NAME, 2)
    topic = broker.non_persistent.get(NAME, index, make=True)
    broker.metrics.records_out("pulsar", topic.metrics_name, 2, 10)
    assert topics_with_metrics(broker) == {topic.full}
    await broker.non_persistent.delete(NAME)
    broker.metrics.records_out("pulsar", topic.metrics_name, 2, 10)
    assert topics_with_metrics(broker) == set()


async def test_reading_a_metric_creates_none(broker):
    await broker.topics.create(NAME, 1)
    for number in range(10):
        assert broker.metrics.value("braidlog_expired_records", NAME.full, f"s{number}") == 0
    assert not any(
        name == "braidlog_expired_records" for name, _ in broker.metrics.snapshot().numbers
    )
    broker.metrics.expired(NAME.full, "s1", 2)
    assert broker.metrics.value("braidlog_expired_records", NAME.full, "s1") == 2
