"""Pulsar commands with an effect at another broker, while that broker's answer is lost: the
client's answer is true, and a repeat does no harm.

Every other change is made at the owner of the topic: other brokers refuse the client's producers
and consumers.
"""

from contextlib import asynccontextmanager

import pytest

from braidlog.protocols.pulsar.machine import Type
from braidlog.protocols.pulsar.refusals import HANDLERS
from braidlog.protocols.pulsar.session import COMMANDS
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.broker.cluster.cut_links import States, lossy
from tests.broker.cluster.nodes import topic_of
from tests.listeners import open_listeners
from tests.protocols.pulsar.talk import RawPulsar

# These create a missing topic, through the owner of the catalogue.
MAKING = {
    Type.PRODUCER: ({"producer_id": 1}, Type.PRODUCER_SUCCESS),
    Type.SUBSCRIBE: ({"consumer_id": 1, "subscription": "s", "subType": 0}, Type.SUCCESS),
}
# For the client's producer or consumer at this broker, so the topic is here.
AT_THE_OWNER = {
    *(Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER, Type.UNSUBSCRIBE, Type.FLOW, Type.ACK, Type.SEEK),
    *(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, Type.GET_LAST_MESSAGE_ID, Type.CONSUMER_STATS),
}
CHANGE_NOTHING = {
    *(Type.CONNECT, Type.PING, Type.PONG, Type.AUTH_RESPONSE, Type.LOOKUP, Type.GET_SCHEMA),
    *(Type.PARTITIONED_METADATA, Type.GET_TOPICS_OF_NAMESPACE),
    *(Type.WATCH_TOPIC_LIST, Type.WATCH_TOPIC_LIST_CLOSE),
}


def test_every_command_with_an_effect_is_covered():
    looked_at = {*MAKING} | AT_THE_OWNER | CHANGE_NOTHING | {Type.GET_OR_CREATE_SCHEMA}
    assert looked_at | {*HANDLERS} == {*COMMANDS}


@asynccontextmanager
async def prepared(path):
    """Yield a client of the broker that does not own the catalogue, and the names of two missing
    topics: this broker would own the first, the other broker the second.
    """
    async with lossy(path) as (asker, owner, cutter, _), open_listeners(asker.broker) as connect:
        client = RawPulsar(await connect("pulsar"))
        await client.connect()
        mine, theirs = (topic_of(node.held, "new") for node in (asker, owner))
        yield client, (mine, theirs), owner.broker, cutter


@pytest.mark.parametrize("kind", MAKING, ids=Type.Name)
async def test_a_topic_is_created_once_despite_a_lost_answer(tmp_path, kind):
    fields, success = MAKING[kind]
    async with prepared(tmp_path) as (client, (mine, _), owner, cutter):
        place = owner.parts.shared_catalogue.place
        # The first question is about the catalogue's present end.
        cutter.answers_to_pass = cutter.answers_to_lose = 1
        await client.ask(kind, success, topic=f"persistent://{mine.full}", **fields)
        assert cutter.lost == 1
        assert owner.topics.find(mine) is not None
        assert owner.parts.shared_catalogue.place == place + 1


@pytest.mark.parametrize("kind", MAKING, ids=Type.Name)
async def test_a_client_retries_without_an_answer_and_the_topic_is_created_once(tmp_path, kind):
    fields, success = MAKING[kind]
    async with prepared(tmp_path) as (client, (mine, _), owner, cutter):
        place, named = owner.parts.shared_catalogue.place, {"topic": f"persistent://{mine.full}"}
        cutter.answers_to_pass, cutter.answers_to_lose = 1, 1_000_000
        code, _ = await client.refused(kind, **named, **fields)
        assert code == ServerError.ServiceNotReady
        cutter.answers_to_lose = 0
        await client.ask(kind, success, **named, **fields)
        assert owner.parts.shared_catalogue.place == place + 1


@pytest.mark.parametrize("kind", [*MAKING, Type.GET_OR_CREATE_SCHEMA], ids=Type.Name)
async def test_owner_only_commands_are_refused_without_effect(tmp_path, kind):
    async with prepared(tmp_path) as (client, (_, theirs), owner, cutter):
        await owner.topics.create(theirs, 1)
        states, named = States(owner), {"topic": f"persistent://{theirs.full}"}
        before, cutter.answers_to_lose = states.now(), 1
        if kind in MAKING:
            code, _ = await client.refused(kind, **named, **MAKING[kind][0])
        else:
            schema = {"name": "", "schema_data": b"", "type": 1}
            answer = Type.GET_OR_CREATE_SCHEMA_RESPONSE
            code = (await client.ask(kind, answer, **named, schema=schema)).error_code
        assert code == ServerError.ServiceNotReady
        assert states.now() == before and not cutter.lost
