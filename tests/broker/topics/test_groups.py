"""The named groups of topics."""

import pytest

from braidlog.broker.errors import LimitExceeded
from braidlog.broker.topics.groups import SEARCHED_MAX
from braidlog.storage.metadata.names import TopicName

NAME = TopicName("public", "default", "t")
MANY = 3 * SEARCHED_MAX


@pytest.fixture
async def topic(broker):
    return await broker.topics.create(NAME, 1)


@pytest.mark.parametrize("count", [SEARCHED_MAX, MANY])
async def test_a_group_is_found_by_name_and_number(broker, topic, count):
    groups = broker.named_groups
    for number in range(count):
        groups.create(topic, f"g{number}")
        assert groups.find(topic, f"g{number}") is groups.list(topic)[-1]
    assert all(groups.find(topic, meta.name) is meta for meta in groups.list(topic))
    assert all(groups.find(topic, meta.group_id) is meta for meta in groups.list(topic))
    assert groups.find(topic, "missing") is None


async def test_a_deleted_group_is_not_found(broker, topic):
    groups = broker.named_groups
    for number in range(MANY):
        groups.create(topic, f"g{number}")
    gone = groups.find(topic, "g7")
    groups.delete(topic, gone.group_id)
    groups.create(topic, "new")  # As many groups as before.
    assert groups.find(topic, "g7") is None
    assert groups.find(topic, gone.group_id) is None
    assert groups.find(topic, "new") is groups.list(topic)[-1]


async def test_topics_do_not_share_groups(broker, topic):
    other = await broker.topics.create(TopicName("public", "default", "u"), 1)
    for number in range(MANY):
        broker.named_groups.create(topic, f"g{number}")
        broker.named_groups.create(other, f"h{number}")
    assert broker.named_groups.find(topic, "h1") is None
    assert broker.named_groups.find(other, "h1").name == "h1"


@pytest.mark.limits(topic_groups=2)
async def test_a_topic_has_a_limit_of_groups(broker, topic):
    groups = broker.named_groups
    groups.create(topic, "a")
    groups.create(topic, "b")
    with pytest.raises(LimitExceeded):
        groups.create(topic, "c")
    groups.delete(topic, groups.find(topic, "a").group_id)
    groups.create(topic, "c")
