"""Requests of Iggy's HTTP API about topics of another broker: forwarded, over real links."""

import base64
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest
import trio

from braidlog.broker.server.listener import Listener
from braidlog.protocols.iggy.adapter import state_of
from braidlog.protocols.iggy.http.options import IggyHttpOptions
from braidlog.protocols.iggy.http_adapter import ADAPTER_HTTP
from braidlog.protocols.iggy.limits import IggyLimits
from tests.broker.cluster.nodes import two_brokers
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until

ROOT = {"username": "iggy", "password": "iggy"}
POLL = "/messages?consumer_id=7&partition_id=0&kind=offset&value=0&count=10"


@asynccontextmanager
async def serving(broker):
    """Return a client of a broker's listener, logged in as root."""
    options = IggyHttpOptions()
    listener = Listener("iggy-http", "iggy-http", ADAPTER_HTTP, options, ("127.0.0.1", 0), None)
    broker.listeners["iggy-http"] = listener
    stopping = trio.Event()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        listening.listen(16)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ADAPTER_HTTP.serve, broker, [listening], options, stopping)
            broker.ready.set()
            url = "http://{}:{}".format(*listening.getsockname())
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client:
                await login(client, ROOT)
                yield client
            stopping.set()


async def login(client, user):
    answer = await client.post("/users/login", json=user)
    assert answer.status_code == 200, answer.text
    token = answer.json()["access_token"]["token"]
    client.headers["authorization"] = f"Bearer {token}"


@pytest.fixture
async def cluster(tmp_path):
    async with (
        two_brokers(SharedStore(tmp_path)) as (nodes, names),
        serving(nodes[0].broker) as first,
        serving(nodes[1].broker) as second,
    ):
        mine, theirs = (f"/streams/{name.namespace}/topics/{name.topic}" for name in names)
        yield SimpleNamespace(first=first, second=second, mine=mine, theirs=theirs, nodes=nodes)


def sending(*payloads, partition=0):
    """Return the body of a request that sends messages to a partition."""
    return {
        "partitioning": {
            "kind": "partition_id",
            "value": base64.b64encode(partition.to_bytes(4, "little")).decode(),
        },
        "messages": [{"id": 0, "payload": base64.b64encode(p).decode()} for p in payloads],
    }


async def polled(client, topic):
    answer = await client.get(f"{topic}{POLL}")
    assert answer.status_code == 200, answer.text
    return [base64.b64decode(message["payload"]) for message in answer.json()["messages"]]


def served(node, api):
    return node.broker.metrics.number("braidlog_requests", "iggy", api).value


async def test_any_broker_takes_and_returns_all_messages(cluster):
    for topic in (cluster.mine, cluster.theirs):
        answer = await cluster.first.post(f"{topic}/messages", json=sending(b"a", b"b"))
        assert answer.status_code == 201, answer.text
        for client in (cluster.first, cluster.second):
            assert await polled(client, topic) == [b"a", b"b"]


async def test_offsets_groups_and_segments_of_the_owner(cluster):
    await cluster.first.post(f"{cluster.theirs}/messages", json=sending(b"a", b"b"))
    stored = {"consumer_id": 7, "partition_id": 0, "offset": 1}
    offsets = f"{cluster.theirs}/consumer-offsets"
    assert (await cluster.first.put(offsets, json=stored)).status_code == 204
    for client in (cluster.first, cluster.second):
        answer = await client.get(f"{offsets}?consumer_id=7&partition_id=0")
        assert answer.json()["stored_offset"] == 1
    answer = await cluster.first.delete(f"{cluster.theirs}/partitions/0?segments_count=1")
    assert answer.status_code == 204, answer.text


async def test_an_error_of_the_owner_is_the_answer(cluster):
    api = "GET /streams/{stream}/topics/{topic}/messages"
    before = served(cluster.nodes[1], api)
    answer = await cluster.first.get(
        cluster.theirs + POLL.replace("partition_id=0", "partition_id=9")
    )
    assert (answer.status_code, answer.json()["id"]) == (404, 3007)
    assert served(cluster.nodes[1], api) == before + 1


async def test_a_large_body_and_a_large_answer_are_forwarded(cluster):
    payloads = [bytes([n]) * 200_000 for n in range(9)]
    answer = await cluster.first.post(f"{cluster.theirs}/messages", json=sending(*payloads))
    assert answer.status_code == 201, answer.text
    assert await polled(cluster.first, cluster.theirs) == payloads
    budget = cluster.nodes[0].broker.output
    await until(lambda: budget.used == 0)


async def test_the_owner_checks_the_rights_of_the_user(cluster):
    user = {"username": "anna", "password": "secret-12", "status": "active"}
    assert (await cluster.first.post("/users", json=user)).status_code == 200
    await login(cluster.first, {"username": "anna", "password": "secret-12"})
    answer = await cluster.first.get(cluster.theirs + POLL)
    assert (answer.status_code, answer.json()["id"]) == (403, 41)


async def test_an_owner_that_does_not_answer_is_an_error(cluster):
    near = state_of(ADAPTER_HTTP.states, cluster.nodes[0].broker)
    near.limits = IggyLimits(find_s=0.2, answer_s=0.2)
    listeners = cluster.nodes[1].broker.listeners
    listeners["iggy-http"], before = (
        Listener("iggy-http", "iggy-http", Silent(), None, ("127.0.0.1", 0), None),
        listeners["iggy-http"],
    )
    answer = await cluster.first.post(f"{cluster.theirs}/messages", json=sending(b"a"))
    assert (answer.status_code, answer.json()["code"]) == (502, "connection_closed")
    answer = await cluster.first.get(cluster.theirs + POLL)
    assert (answer.status_code, answer.json()["code"]) == (503, "not_primary")
    listeners["iggy-http"] = before
    near.limits = IggyLimits()
    assert await polled(cluster.first, cluster.theirs) == []


class Silent:
    """An adapter that takes forwarded requests and does not answer."""

    async def serve_forwarded(self, broker, stream):
        await stream.receive_some(1)
        await trio.sleep_forever()
