"""WATCH_TOPIC_LIST of clients that may see a part of a namespace."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.pulsar import watchers
from braidlog.protocols.pulsar.topic_lists import topics_hash
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.broker.access.rules import Nothing
from tests.protocols.pulsar.test_watching import ALL, full, named, refused, update, watch

pytest.importorskip("re2", reason="google-re2 is not installed: clients poll")


class APart(Nothing):
    """Topics are seen whose names begin with an a."""

    def __init__(self):
        super().__init__(Action.DESCRIBE)

    def allows(self, principal, action, resource):
        seen = str(resource).rpartition("/")[2].startswith("a")
        return super().allows(principal, action, resource) and seen


@pytest.fixture
async def part(broker, client):
    """The client sees a part from now on; there are a1 and b1."""
    for topic in ("a1", "b1"):
        await broker.topics.create(named(topic), 1)
    broker.access = Access(APart())


async def test_only_what_is_seen_is_told(broker, client, part):
    answer = await watch(client)
    assert list(answer.topic) == full("a1")
    for topic in ("b2", "a2"):
        await broker.topics.create(named(topic), 1)
    assert await update(client) == (full("a2"), [], topics_hash(full("a1", "a2")))


async def test_what_is_not_seen_any_more_goes_with_the_next_change(broker, client):
    for topic in ("a1", "b1"):
        await broker.topics.create(named(topic), 1)
    assert sorted((await watch(client)).topic) == full("a1", "b1")
    broker.access = Access(APart())
    await broker.topics.create(named("a2"), 1)
    assert await update(client) == (full("a2"), full("b1"), topics_hash(full("a1", "a2")))


async def test_no_more_topics_are_watched_in_part_than_are_remembered(
    broker, client, part, monkeypatch
):
    monkeypatch.setattr(watchers, "SEEN_NAMES_MAX", 1)
    assert list((await watch(client)).topic) == full("a1")
    await broker.topics.create(named("b2"), 1)
    await broker.topics.create(named("a2"), 1)
    await client.closed()


async def test_where_there_are_more_already_a_watch_is_refused(broker, client, part, monkeypatch):
    monkeypatch.setattr(watchers, "SEEN_NAMES_MAX", 0)
    error, text = await refused(client, ALL)
    assert error == ServerError.NotAllowedError
    assert "too many topics to watch a part of them" in text


async def test_more_changes_than_are_looked_at_together_end_a_watch_in_part(
    mock_clock, broker, client, part, monkeypatch
):
    monkeypatch.setattr(watchers, "CHANGED_NAMES_TOGETHER", 1)
    await watch(client)
    await broker.topics.create(named("a2"), 1)
    assert await update(client) == (full("a2"), [], topics_hash(full("a1", "a2")))
    for topic in ("a3", "a4"):  # While it pauses.
        await broker.topics.create(named(topic), 1)
    mock_clock.jump(1)
    await client.closed()
