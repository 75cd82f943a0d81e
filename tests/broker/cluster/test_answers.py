"""A broker's answers about itself to other brokers."""

from types import SimpleNamespace

import trio

from braidlog.broker.cluster.answers import TURN_PARTITIONS, PeerCallHandler
from braidlog.broker.cluster.cluster_peers import Call
from braidlog.storage.metadata.names import TopicName


def topic(number, *, deleted=False):
    name = TopicName("public", "default", f"t{number}")
    partitions = [None] * TURN_PARTITIONS
    return SimpleNamespace(
        name=name, partitions=partitions, deleted=deleted, stored_sizes=lambda: (number, 2, 3)
    )


async def test_topic_sizes_are_collected_with_turns_for_other_tasks():
    topics = [*map(topic, range(5)), topic(5, deleted=True), topic(6)]
    elsewhere = topics[6].name
    answers = PeerCallHandler(
        SimpleNamespace(
            topics=SimpleNamespace(all=lambda: topics),
            placement=SimpleNamespace(is_here=lambda name: name != elsewhere),
        ),
        SimpleNamespace(),
    )
    turns, collected = 0, []

    async def ask():
        collected.extend(await answers._stored_sizes(Call("kept", [])))
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1
    assert collected == [(topic.name.full, number, 2, 3) for number, topic in enumerate(topics[:5])]
    assert turns >= 5
