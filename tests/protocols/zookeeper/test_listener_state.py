"""Work by the clock: sessions that expire together, and nodes that a crash left."""

import pytest
import trio

from braidlog.broker.coordination.nodes import OPEN, NodeMade
from braidlog.protocols.zookeeper.adapter import ADAPTER
from braidlog.protocols.zookeeper.listener_state import DELETED_TOGETHER, ENDED_TOGETHER
from braidlog.storage.metadata.names import TopicName
from tests.protocols.zookeeper.talk import EPHEMERAL, RawZooKeeper

TIMEOUT_MS = 8000


class NoHolder:
    """A connection that nobody looks at."""

    peer = "127.0.0.1:1"

    def end(self, reason):
        pass


@pytest.fixture
async def service(session, broker):
    await session()
    return ADAPTER.services[broker]


async def test_a_client_that_comes_back_between_expiries_keeps_its_session(service):
    begun = [service.sessions.begin(TIMEOUT_MS, NoHolder()) for _ in range(3 * ENDED_TOGETHER)]
    for live in begun:
        live.expires_at = 0.0
    last = begun[-1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.check, trio.current_time())
        while begun[0].session_id in service.sessions.live:
            await trio.lowlevel.checkpoint()
        assert last.session_id in service.sessions.live  # The check takes several turns.
        last = service.sessions.resume(last.session_id, last.password, TIMEOUT_MS, NoHolder())
    left = {live.session_id for live in begun} & set(service.sessions.live)
    assert left == {last.session_id}


async def test_nodes_that_a_crash_left_are_gone_before_a_client_comes(broker, open_client):
    nodes = broker.nodes
    nodes.open()
    ended = 7
    with nodes.together():
        for number in range(DELETED_TOGETHER + 1):
            nodes.apply(NodeMade(f"/left-{number}", b"", OPEN, ended, nodes.next_zxid(), 1))
    await (await open_client("kafka")).aclose()
    client = await RawZooKeeper(await open_client("zookeeper")).connect()
    assert [name for name in await client.children("/") if name.startswith("left")] == []
    assert nodes.ended_with_nodes() == []


async def test_nodes_that_a_full_disk_left_go_with_a_later_check(service, session):
    client = await session()
    await client.create("/e", b"", EPHEMERAL)
    service.sessions.end(client.session_id)
    await service.check(trio.current_time())
    assert service.nodes.find("/e") is None


async def test_a_topic_may_change_or_move_after_the_nodes_have_moved(broker, service, session):
    """In a cluster the shard of the nodes may be given away before the shards of the topics."""
    client = await session()
    topic = await broker.topics.create(TopicName("public", "default", "t"), 1)
    await client.children("/brokers/topics", watch=True)
    await client.get("/brokers/topics/t", watch=True)
    broker.nodes.close()
    await broker.topics.create(TopicName("public", "default", "other"), 1)
    broker.topics.move_away(topic)
    assert broker.members.of(topic, b"g") == []
