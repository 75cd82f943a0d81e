"""WATCH_TOPIC_LIST of clients that see only a part of a namespace."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.pulsar.topic_lists import topics_hash
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.broker.access.rules import Nothing
from tests.protocols.pulsar.test_watch_commands import ALL, full, named, refused, update, watch

pytest.importorskip("re2", reason="google-re2 is not installed: clients poll")


class APart(Nothing):
    """Rules that show only topics whose names begin with an a."""

    def __init__(self):
        super().__init__(Action.DESCRIBE)

    def allows(self, principal, action, resource):
        seen = str(resource).rpartition("/")[2].startswith("a")
        return super().allows(principal, action, resource) and seen


@pytest.fixture
async def part(broker, client):
    """Give the client a partial view; create a1 and b1."""
    for topic in ("a1", "b1"):
        await broker.topics.create(named(topic), 1)
    broker.access = Access(APart())


async def test_only_visible_topics_are_sent(broker, client, part):
    answer = await watch(client)
    assert list(answer.topic) == full("a1")
    for topic in ("b2", "a2"):
        await broker.topics.create(named(topic), 1)
    assert await update(client) == (full("a2"), [], topics_hash(full("a1", "a2")))


async def test_a_hidden_topic_is_removed_with_the_next_change(broker, client):
    for topic in ("a1", "b1"):
        await broker.topics.create(named(topic), 1)
    assert sorted((await watch(client)).topic) == full("a1", "b1")
    broker.access = Access(APart())
    await broker.topics.create(named("a2"), 1)
    assert await update(client) == (full("a2"), full("b1"), topics_hash(full("a1", "a2")))


@pytest.mark.pulsar_limits(seen_names=1)
async def test_a_partial_watch_has_a_limit_of_topics(broker, client, part):
    assert list((await watch(client)).topic) == full("a1")
    await broker.topics.create(named("b2"), 1)
    await broker.topics.create(named("a2"), 1)
    await client.closed()


@pytest.mark.pulsar_limits(seen_names=0)
async def test_a_partial_watch_above_the_limit_is_refused(broker, client, part):
    error, text = await refused(client, ALL)
    assert error == ServerError.NotAllowedError
    assert "too many topics to watch a part of them" in text


@pytest.mark.pulsar_limits(changed_names_together=1)
async def test_too_many_changes_end_a_partial_watch(mock_clock, broker, client, part):
    await watch(client)
    await broker.topics.create(named("a2"), 1)
    assert await update(client) == (full("a2"), [], topics_hash(full("a1", "a2")))
    for topic in ("a3", "a4"):  # During the pause.
        await broker.topics.create(named(topic), 1)
    mock_clock.jump(1)
    await client.closed()
