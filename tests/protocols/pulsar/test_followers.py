"""A broker behind the catalogue, asked about another broker's new topic: clients that watch topic
lists ask at once.
"""

import trio

from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import Schema, ServerError
from braidlog.storage.metadata.catalogue_records import SchemaMeta
from tests.broker.cluster.nodes import SteppedBroker, balanced, topic_of
from tests.broker.cluster.test_membership import stepping_on
from tests.listeners import open_listeners
from tests.protocols.pulsar.golden import taken_apart
from tests.protocols.pulsar.talk import RawPulsar
from tests.storage.shared.shared_dirs import SharedStore


async def answers(client, count):
    """Return the next answers by their types; they come in any order."""
    commands = {}
    for _ in range(count):
        command, _ = taken_apart(await client.frame())
        commands[command.type] = command
    return commands


async def test_an_unfollowed_topic_is_not_missing(tmp_path):
    store = SharedStore(tmp_path)
    async with (
        SteppedBroker(store, 1).running() as first,
        SteppedBroker(store, 3).running() as second,
    ):
        await balanced(store, first, second)
        owner, follower = (first, second) if first.broker.catalogue.is_owned else (second, first)
        name = topic_of(follower.held)
        topic = f"persistent://{name.full}"
        consumer = {"subscription": "s", "subType": 0, "force_topic_creation": False}
        with trio.fail_after(60):
            async with open_listeners(follower.broker) as connect, trio.open_nursery() as nursery:
                client = RawPulsar(await connect("pulsar"))
                await client.connect()
                nursery.start_soon(owner.broker.topics.create, name, 2)
                while owner.broker.topics.find(name) is None:
                    await trio.lowlevel.checkpoint()
                assert follower.broker.topics.find(name) is None
                for number, (kind, fields) in enumerate(
                    (
                        (Type.PARTITIONED_METADATA, {"topic": topic}),
                        (Type.PRODUCER, {"topic": f"{topic}-partition-0", "producer_id": 1}),
                        (
                            Type.SUBSCRIBE,
                            {"topic": f"{topic}-partition-1", "consumer_id": 1, **consumer},
                        ),
                    )
                ):
                    await client.send(kind, request_id=number, **fields)
                await client.silent()  # All of them wait.
                nursery.start_soon(stepping_on, follower)
                commands = await answers(client, 3)
                metadata = commands[Type.PARTITIONED_METADATA_RESPONSE].partitionMetadataResponse
                assert metadata.partitions == 2
                assert commands.keys() == {
                    Type.PARTITIONED_METADATA_RESPONSE,
                    Type.PRODUCER_SUCCESS,
                    Type.SUCCESS,
                }
                fields = {"topic": f"{topic}-partition-2", "consumer_id": 2, **consumer}
                code, _ = await client.refused(Type.SUBSCRIBE, **fields)
                assert code == ServerError.TopicNotFound, "nobody has made that one"
                await client.stream.aclose()
                nursery.cancel_scope.cancel()


async def test_any_broker_returns_a_schema(tmp_path):
    store = SharedStore(tmp_path)
    async with (
        SteppedBroker(store, 1).running() as first,
        SteppedBroker(store, 3).running() as second,
    ):
        await balanced(store, first, second)
        catalogue = first if first.broker.catalogue.is_owned else second
        name = topic_of(second.held)
        topic = f"persistent://{name.full}"
        with trio.fail_after(60):
            async with open_listeners(first.broker) as connect, trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                await catalogue.broker.topics.create(name, 1)
                schema = SchemaMeta(Schema.String, "s", b"definition", {"a": "b"})
                second.broker.schemas.add(second.broker.topics.get(name), schema)
                client = RawPulsar(await connect("pulsar"))
                await client.connect()
                answer = await client.ask(Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, topic=topic)
                assert answer.schema.schema_data == b"definition"
                assert (answer.schema.type, answer.schema_version) == (Schema.String, bytes(8))
                assert [(item.key, item.value) for item in answer.schema.properties] == [("a", "b")]
                other = {"topic": topic, "schema_version": bytes(7) + b"\x01"}
                answer = await client.ask(Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, **other)
                assert answer.error_code == ServerError.TopicNotFound
                await client.stream.aclose()
                nursery.cancel_scope.cancel()
