"""Requests to a broker about another broker's topics: forwarded, through real links."""

import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest
import trio

from braidlog.broker.server.listener import Listener
from braidlog.protocols.http.adapter import ADAPTER
from braidlog.protocols.http.options import RestOptions
from tests.broker.cluster.nodes import two_brokers
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import HANG_S, until


@asynccontextmanager
async def serving(broker):
    """Return a client of a broker's HTTP listener."""
    options = RestOptions()
    listener = Listener("http", "http", ADAPTER, options, ("127.0.0.1", 0), None)
    broker.listeners["http"] = listener
    stopping = trio.Event()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        listening.listen(16)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ADAPTER.serve, broker, [listening], options, stopping)
            broker.ready.set()
            url = "http://{}:{}".format(*listening.getsockname())
            trusting = {"trust_env": False, "verify": False, "timeout": HANG_S}
            async with httpx.AsyncClient(base_url=url, **trusting) as client:
                yield client
            stopping.set()


@pytest.fixture
async def cluster(tmp_path):
    async with (
        two_brokers(SharedStore(tmp_path)) as (nodes, names),
        serving(nodes[0].broker) as first,
        serving(nodes[1].broker) as second,
    ):
        mine, theirs = (f"/topics/{name.full}" for name in names)
        yield SimpleNamespace(first=first, second=second, mine=mine, theirs=theirs, nodes=nodes)


async def test_any_broker_takes_and_returns_all_messages(cluster):
    for path in (cluster.mine, cluster.theirs):
        body = {"messages": [{"value": n, "partition": 0} for n in range(3)]}
        answer = await cluster.first.post(path, json=body)
        assert answer.status_code == 200, answer.text
        for client in (cluster.first, cluster.second):
            answer = await client.get(f"{path}/partitions/0/messages?max_messages=10")
            assert [message["value"] for message in answer.json()["messages"]] == ["0", "1", "2"]


async def test_a_large_answer_and_a_body_of_unknown_length_are_forwarded(cluster):
    async def pieces():
        yield b'{"messages": ['
        yield b",".join(b'{"partition": 0, "value": "%s"}' % (b"v" * 50_000) for _ in range(20))
        yield b"]}"

    headers = {"Content-Type": "application/json"}
    answer = await cluster.first.post(cluster.theirs, content=pieces(), headers=headers)
    assert answer.status_code == 200, answer.text
    answer = await cluster.first.get(f"{cluster.theirs}/partitions/0/messages?max_bytes=10000000")
    assert [len(message["value"]) for message in answer.json()["messages"]] == [50_000] * 20


async def test_an_error_of_the_owner_is_the_answer(cluster):
    answer = await cluster.first.post(cluster.theirs, json={"messages": []})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42205)
    answer = await cluster.first.get(f"{cluster.theirs}/partitions/0/messages?position=9")
    assert (answer.status_code, answer.json()["error_code"]) == (416, 41601)


async def test_a_disconnect_ends_a_forwarded_stream_at_the_owner(cluster):
    path = f"{cluster.theirs}/partitions/0/messages"
    headers = {"Accept": "text/event-stream"}
    async with cluster.first.stream("GET", path, headers=headers) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": ready"
        await cluster.second.post(cluster.theirs, json={"messages": [{"value": 1, "partition": 0}]})
        async for line in lines:
            if line.startswith("data: "):
                break
    admission = cluster.nodes[1].broker.metrics.number("braidlog_waiting_requests", "http")
    await until(lambda: admission.value == 0)
