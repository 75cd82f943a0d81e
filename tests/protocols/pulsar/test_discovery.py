"""PARTITIONED_METADATA, LOOKUP, GET_TOPICS_OF_NAMESPACE."""

import errno
import threading
from dataclasses import replace

import pytest

from braidlog.broker.topics.registry import TopicDefaults
from braidlog.protocols.pulsar.discovery import service_url
from braidlog.protocols.pulsar.machine import Type
from braidlog.protocols.pulsar.topic_lists import topics_hash
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from braidlog.storage.metadata.names import TopicName
from tests.protocols.pulsar.talk import NAME, TOPIC
from tests.waiting import HANG_S


async def metadata(client, topic, **fields):
    answer = await client.ask(
        Type.PARTITIONED_METADATA, Type.PARTITIONED_METADATA_RESPONSE, topic=topic, **fields
    )
    return answer.error if answer.response else answer.partitions


async def test_a_topic_that_is_missing_or_not_partitioned_has_0(broker, client):
    assert await metadata(client, TOPIC) == 0
    assert broker.topics.find(NAME) is None
    await broker.topics.create(NAME, 1)
    assert await metadata(client, TOPIC) == 0
    assert await metadata(client, "t") == 0


async def test_partitioned_topic_has_its_number_of_partitions(broker, client):
    await broker.topics.create(NAME, 3)
    assert await metadata(client, TOPIC) == 3
    assert await metadata(client, TOPIC + "-partition-2") == 0
    assert await metadata(client, TOPIC + "-partition-3") == ServerError.TopicNotFound


async def test_a_client_without_auto_creation_gets_an_error_for_a_missing_topic(client):
    answer = await metadata(client, TOPIC, metadata_auto_creation_enabled=False)
    assert answer == ServerError.TopicNotFound


async def test_with_partitioned_defaults_the_topic_is_created_at_once(broker, client):
    broker.topics.defaults = TopicDefaults(num_partitions=3)
    answer = await metadata(client, TOPIC, metadata_auto_creation_enabled=False)
    assert answer == ServerError.TopicNotFound
    assert await metadata(client, TOPIC + "-partition-1") == 0
    assert broker.topics.find(NAME) is None
    assert await metadata(client, TOPIC) == 3
    assert len(broker.topics.get(NAME).partitions) == 3
    broker.topics.defaults = TopicDefaults(auto_create=False, num_partitions=3)
    assert await metadata(client, TOPIC + "2") == 0


async def test_a_client_is_served_while_its_topic_is_created(broker, client):
    broker.topics.defaults = TopicDefaults(num_partitions=3)
    gate, disk = threading.Event(), broker._storage.files.disk

    def make_folder(path):
        assert gate.wait(HANG_S)
        type(disk).make_folder(disk, path)

    disk.make_folder = make_folder
    await client.send(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=99)
    assert (await client.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=TOPIC)).response == 1
    gate.set()
    assert (await client.next(Type.PARTITIONED_METADATA_RESPONSE)).partitions == 3


async def test_a_topic_that_cannot_be_created_is_an_error(broker, client):
    broker.topics.defaults = TopicDefaults(num_partitions=3)

    def make_folder(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    broker._storage.files.disk.make_folder = make_folder
    assert await metadata(client, TOPIC) == ServerError.PersistenceError


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("persistent://public/default", ServerError.NotAllowedError),
        ("persistent://a/b/c/d", ServerError.NotAllowedError),
        ("topic://public/default/t", ServerError.NotAllowedError),
        ("persistent://public/nowhere/t", ServerError.TopicNotFound),
        ("persistent://nobody/default/t", ServerError.TopicNotFound),
        ("non-persistent://public/nowhere/t", ServerError.TopicNotFound),
        ("non-persistent://public/default", ServerError.NotAllowedError),
    ],
)
async def test_invalid_names_are_refused(client, topic, error):
    assert await metadata(client, topic) == error
    answer = await client.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=topic)
    assert (answer.response, answer.error) == (2, error)


@pytest.mark.parametrize("listener", ["", "pulsar"])
async def test_a_lookup_returns_the_address_of_the_clients_connection(broker, client, listener):
    answer = await client.ask(
        Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=TOPIC, advertised_listener_name=listener
    )
    host, port = broker.listeners["pulsar"].bound
    assert answer.brokerServiceUrl == f"pulsar://{host}:{port}"
    assert answer.authoritative and not answer.proxy_through_service_url


async def test_a_lookup_has_the_address_for_tls_too(broker, client):
    plain = broker.listeners["pulsar"]
    broker.listeners["secure"] = replace(
        plain, name="secure", tls=object(), bound=(plain.bound[0], 6651)
    )
    try:
        answer = await client.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=TOPIC)
    finally:
        del broker.listeners["secure"]
    host, port = plain.bound
    assert answer.brokerServiceUrl == f"pulsar://{host}:{port}"
    assert answer.brokerServiceUrlTls == f"pulsar+ssl://{host}:6651"


async def test_lookup_of_another_listener_is_refused_for_good(client):
    answer = await client.ask(
        Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=TOPIC, advertised_listener_name="abc"
    )
    assert (answer.response, answer.error) == (2, ServerError.NotAllowedError)


def test_ipv6_hosts_are_in_brackets():
    assert service_url("::1", 6650) == "pulsar://[::1]:6650"


# Listings.


async def listing(client, namespace="public/default", **fields):
    return await client.ask(
        Type.GET_TOPICS_OF_NAMESPACE,
        Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace=namespace,
        **fields,
    )


async def test_a_listing_has_full_names_partitions_and_no_system_topics(broker, client):
    await broker.topics.create(TopicName("public", "default", "b"), 1)
    await broker.topics.create(TopicName("public", "default", "a"), 2)
    await broker.topics.create(TopicName("public", "default", "__change_events"), 1)
    answer = await listing(client)
    assert list(answer.topics) == [
        "persistent://public/default/a-partition-0",
        "persistent://public/default/a-partition-1",
        "persistent://public/default/b",
    ]
    assert not answer.filtered and answer.changed
    again = await listing(client, topics_hash=answer.topics_hash, topics_pattern="a.*")
    assert (list(again.topics), again.changed) == ([], False)
    assert list((await listing(client, mode=1)).topics) == []


async def test_a_listing_of_a_missing_namespace_is_empty(client):
    answer = await listing(client, "public/nowhere")
    assert (list(answer.topics), answer.topics_hash) == ([], "00000000")


@pytest.mark.parametrize(
    ("numbers", "digest"), [([], "00000000"), ([1], "0d0602ed"), ([3, 1, 2], "90d4a04a")]
)
def test_hash_has_the_values_of_apaches_own_test(numbers, digest):
    names = [f"persistent://my-property/my-ns/pattern-topic-{number}" for number in numbers]
    assert topics_hash(names) == digest
