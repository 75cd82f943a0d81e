"""A client with rights on a single topic gets the same answers whatever exists beside the topic.

Each request goes to two brokers. The second has another topic with a group, a consumer, a producer
and a name of each kind that the request uses too. Names that are unique in a wider scope than the
client's rights would change an answer.
"""

import re
from contextlib import asynccontextmanager

import pytest

from braidlog.broker.access.access import Access
from braidlog.protocols.http.app import make_app, make_routes
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.iggy import messages as iggy
from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import OnlyTopic
from tests.listeners import open_listeners
from tests.opened import opened_broker
from tests.protocols.http.asgi import call
from tests.protocols.http.test_access import FOR_ANYBODY, filled
from tests.protocols.iggy import test_access as iggy_samples
from tests.protocols.iggy.talk import Talk
from tests.protocols.kafka import forms as m
from tests.protocols.kafka import test_access as kafka_samples
from tests.protocols.kafka.talk import FOO_NAME, second_client
from tests.protocols.pulsar import talk as pulsar
from tests.protocols.pulsar import test_access as pulsar_samples

CHANGING = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|T[\d:.]+Z|\d{4,}")


@asynccontextmanager
async def two_brokers(tmp_path):
    """Yield two empty brokers, without access control."""
    folders = tmp_path / "alone", tmp_path / "beside"
    async with opened_broker(folders[0], {}) as alone, opened_broker(folders[1], {}) as beside:
        yield alone, beside


async def http_answers(broker, has_more):
    app = make_app(broker, RestOptions(), broker.stopping)
    await call(app, "PUT", "/api/v1/topics/public/default/orders")
    if has_more:
        await call(app, "PUT", "/api/v1/topics/public/default/theirs")
        for path, body in HTTP_BODIES.items():
            await call(app, "POST", filled(path).replace("orders", "theirs"), body)
    broker.access = Access(OnlyTopic(TopicName("public", "default", "orders")))
    requests = [("POST", path, body) for path, body in HTTP_BODIES.items()]
    routes = list(make_routes(broker, RestOptions(), broker.stopping))
    for name in ("GET", "PUT", "PATCH", "POST", "DELETE"):
        requests += [(name, route.path, None) for route in routes if name in route.methods]
    answers = []
    for method, path, body in requests:
        if (method, path) not in FOR_ANYBODY:
            query = "?timeout=0" if path.endswith("/messages") else ""
            answer = await call(app, method, filled(path) + query, body)
            answers.append((method, path, answer.status, answer.body.decode(errors="replace")))
    if has_more:
        broker.access = Access()
        path = f"{filled(OF_GROUP)}/consumer/c/messages?timeout=0".replace("orders", "theirs")
        assert (await call(app, "GET", path)).status == 200  # The other consumer is still there.
    return answers


OF_GROUP = "/topics/{tenant}/{namespace}/{topic}/subscription/{subscription}"
HTTP_BODIES = {
    "/topics/{tenant}/{namespace}/{topic}": {"messages": [{"value": "x"}]},
    OF_GROUP: {"id": "c", "name": "c", "initial_position": "Earliest"},
}


async def kafka_answers(broker, has_more):
    async with open_listeners(broker) as connect:
        client = await second_client(connect)
        await client.call(m.MetadataRequest([b"foo"]))
        if has_more:
            theirs = await broker.topics.create(TopicName("public", "default", "theirs"), 1)
            broker.subscriptions.open(theirs, b"g").commit(0, 0)
        broker.access = Access(OnlyTopic(FOO_NAME))
        requests = [(sample, None) for sample in kafka_samples.SAMPLES.values()]
        requests += list(kafka_samples.LATER.values())
        answers = []
        for body, version in requests:
            if version is None:
                answers.append((type(body), await client.call(body)))
            else:
                answers.append((type(body), await client.call_with_table(body, version)))
        await client.stream.aclose()
        return answers


async def pulsar_answers(broker, has_more):
    async with open_listeners(broker) as connect:
        client = pulsar.RawPulsar(await connect("pulsar"))
        await client.connect()
        await client.produce()
        await client.subscribe()
        if has_more:
            theirs = pulsar.RawPulsar(await connect("pulsar"))
            await theirs.connect()
            foreign = "persistent://public/default/theirs"
            await theirs.produce(foreign, producer_name="p")
            await theirs.subscribe(topic=foreign, subscription="x", consumer_name="c")
        broker.access = Access(OnlyTopic(pulsar.NAME))
        answers = []
        for kind, (fields, _) in pulsar_samples.SAMPLES.items():
            names = {Type.PRODUCER: {"producer_name": "p"}, Type.SUBSCRIBE: {"consumer_name": "c"}}
            await client.send(kind, request_id=1, **fields, **names.get(kind, {}))
            answers.append((Type.Name(kind), await client.frame()))
        await client.stream.aclose()
        return answers


async def iggy_answers(broker, has_more):
    async with open_listeners(broker) as connect:
        client = Talk(await connect("iggy"))
        await client.login()
        await client.create_topic()
        if has_more:
            await client.create_topic("theirs")
            theirs = {**iggy_samples.TOPIC, "topic": iggy_samples.named("theirs")}
            await client.ask(602, **theirs, group_id=0, name="grp")
            await client.ask(202, stream_id=0, name="new")
        broker.access = Access(OnlyTopic(TopicName("public", "st", "tp")))
        answers = []
        for kind, fields in iggy_samples.SAMPLES.items():
            if kind is not iggy.GetMe:  # Its answer has the client's own address.
                answers.append((kind, await client.ask(iggy_samples.CODES[kind], **fields)))
        await client.stream.aclose()
        return answers


@pytest.mark.parametrize(
    "answers",
    [http_answers, kafka_answers, pulsar_answers, iggy_answers],
    ids=["http", "kafka", "pulsar", "iggy"],
)
async def test_another_topic_changes_no_answer(tmp_path, answers):
    async with two_brokers(tmp_path) as (alone, beside):
        expected, seen = await answers(alone, False), await answers(beside, True)
        assert len(seen) == len(expected) > 10
        for plain, other in zip(expected, seen, strict=True):
            assert CHANGING.sub("N", repr(plain)) == CHANGING.sub("N", repr(other))
