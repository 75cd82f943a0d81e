"""Streams are the namespaces of a single tenant."""

import sys

import pytest

from braidlog.protocols.iggy.names import find_stream
from braidlog.storage.metadata.catalogue_records import MADE_ID_FIRST
from braidlog.storage.metadata.names import TopicName
from tests.protocols.iggy.description import named

GET, LIST, CREATE, DELETE, UPDATE = range(200, 205)
DEFAULT = TopicName("public", "default", "orders")


async def create(talk, name: str, stream_id: int = 0) -> dict:
    return await talk.ask(CREATE, stream_id=stream_id, name=name)


async def names(talk) -> list[tuple[int, str]]:
    answer = await talk.ask(LIST)
    return [(stream["id"], stream["name"]) for stream in answer.get("streams", [])]


async def test_server_picks_the_lowest_free_number(talk):
    await create(talk, "two", 2)
    assert (await create(talk, "one"))["stream"]["id"] == 1
    assert (await create(talk, "three"))["stream"]["id"] == 3
    assert await names(talk) == [(1, "one"), (2, "two"), (3, "three")]


async def test_names_are_kept_as_sent(talk):
    for name in ("My  Stream", "zażółć", "UPPER", "a" * 255):
        await create(talk, name)
        answer = await talk.ask(GET, stream=named(name))
        assert answer["stream"]["name"] == name


@pytest.mark.parametrize(
    ("name", "stream_id", "status"),
    [("st", 0, 1012), ("other", 1, 1011), ("st", 1, 1012), ("a/b", 0, 1013), (" ", 0, 1013)],
)
async def test_an_invalid_stream_is_refused(talk, name, stream_id, status):
    await create(talk, "st", 1)
    assert (await create(talk, name, stream_id))["status"] == status


async def test_clients_cannot_choose_numbers_of_other_listeners(talk):
    assert (await create(talk, "st", MADE_ID_FIRST))["status"] == 1014


async def test_namespace_is_listed_once_it_has_a_topic(broker, talk):
    assert await names(talk) == []
    assert await talk.ask(GET, stream=named("default")) == {"status": 0}
    await broker.topics.create(DEFAULT, 1)
    assert await names(talk) == [(MADE_ID_FIRST, "default")]
    answer = await talk.ask(GET, stream=named(MADE_ID_FIRST))
    assert [topic["name"] for topic in answer["topics"]] == ["orders"]
    assert answer["topics"][0]["id"] >= MADE_ID_FIRST


async def test_an_unlisted_namespace_can_be_created_and_is_then_listed(broker, talk):
    assert (await create(talk, "default", 7))["stream"]["id"] == 7
    assert await names(talk) == [(7, "default")]
    assert (await create(talk, "default"))["status"] == 1012


async def test_namespaces_of_other_tenants_are_no_streams(broker, talk):
    await broker.namespaces.create("acme", "shop")
    await broker.topics.create(TopicName("acme", "shop", "orders"), 1)
    assert await names(talk) == []
    stream_id = broker.namespaces.number(broker.namespaces.get("acme", "shop"))
    assert await talk.ask(GET, stream=named(stream_id)) == {"status": 0}


async def test_topics_end_with_their_stream(broker, talk):
    await talk.create_topic("a")
    await talk.create_topic("b")
    assert await talk.status(DELETE, stream=named("st")) == 0
    assert await talk.ask(GET, stream=named("st")) == {"status": 0}
    assert broker.topics.all() == []
    assert await talk.status(DELETE, stream=named("st")) == 1010
    assert await talk.status(DELETE, stream=named(9)) == 1009


async def test_the_deleted_default_stream_still_exists_for_other_listeners(broker, talk):
    await create(talk, "default")
    await broker.topics.create(DEFAULT, 1)
    assert await talk.status(DELETE, stream=named("default")) == 0
    assert await names(talk) == []
    await broker.topics.create(DEFAULT, 1)
    assert await names(talk) == [(MADE_ID_FIRST, "default")]


async def test_figures_of_a_stream_are_the_sums_of_its_topics(talk):
    await talk.create_topic("a", 2)
    await talk.create_topic("b")
    await talk.send(b"1", b"2", topic="a")
    await talk.send(b"3", topic="b")
    stream = (await talk.ask(GET, stream=named("st")))["stream"]
    assert (stream["topics"], stream["messages"]) == (2, 3)
    assert stream["size"] > 3 * 46


@pytest.mark.parametrize(
    ("name", "status"), [("st", 0), ("other", 1012), ("new", 0), ("a/b", 1013), ("default", 1012)]
)
async def test_a_stream_takes_a_free_name(talk, name, status):
    await create(talk, "st")
    await create(talk, "other")
    assert await talk.status(UPDATE, stream=named("st"), name=name) == status
    assert await talk.status(UPDATE, stream=named("nope"), name=name) == 1010
    assert (await talk.ask(GET, stream=named(1)))["stream"]["name"] == (
        name if not status else "st"
    )


async def test_the_stream_of_kafka_clients_keeps_its_name(talk):
    assert await talk.status(UPDATE, stream=named("default"), name="other") == 5


async def test_answer_to_a_creation_means_that_it_is_on_disk(broker, talk):
    await create(talk, "st")
    assert broker.committer.durable_ticket >= broker.producers.ticket


def calls_of_a_lookup(broker):
    """Return the number of function calls that find the stream `default`."""
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        assert find_stream(broker, "default") is not None
    finally:
        sys.setprofile(None)
    return calls


async def test_a_stream_with_many_topics_is_found_as_quickly(broker):
    await broker.topics.create(TopicName("public", "default", "first"), 1)
    calls = calls_of_a_lookup(broker)
    for number in range(30):
        await broker.topics.create(TopicName("public", "default", f"topic-{number}"), 1)
    assert calls_of_a_lookup(broker) == calls
