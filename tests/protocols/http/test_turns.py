"""Answers about thousands of partitions give turns to other tasks."""

from types import SimpleNamespace

import pytest
import trio

from braidlog.broker.runtime.turns import PER_TURN, in_turns
from braidlog.protocols.http.turns import SORTED_TOGETHER, backlog_of, first_topics
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call


async def turns_during(work):
    """Return the number of another task's turns during the work."""
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await work()
        nursery.cancel_scope.cancel()
    return turns


@pytest.mark.parametrize("count", [0, 1, PER_TURN - 1, PER_TURN, 5 * PER_TURN + 1])
async def test_all_items_are_yielded_in_order_with_turns_between(count):
    items = []

    async def work():
        items.extend([item async for item in in_turns(range(count))])

    turns = await turns_during(work)
    assert items == list(range(count))
    assert turns >= count // PER_TURN - 1  # Trio runs the tasks of a round in any order.


class BacklogOf:
    topic = SimpleNamespace(partitions=range(10 * PER_TURN))

    def backlog(self, index):
        return index


async def test_a_backlog_is_that_of_all_partitions():
    assert await backlog_of(BacklogOf()) == sum(range(10 * PER_TURN))
    assert await turns_during(lambda: backlog_of(BacklogOf())) >= 9


async def test_topics_are_sorted_in_turns():
    names = [f"{number * 7919 % 10_007:05}" for number in range(5 * SORTED_TOGETHER)]
    topics = [SimpleNamespace(name=SimpleNamespace(full=name)) for name in names]
    listed = []

    async def work():
        listed.extend(await first_topics(topics, lambda topic: topic.name.full > "00100", 3000))

    assert await turns_during(work) >= 4
    wanted = sorted(name for name in names if name > "00100")[:3000]
    assert [topic.name.full for topic in listed] == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/api/v1/topics/public/default/big", "/api/v1/groups", "/metrics"]
)
async def test_others_have_turns_while_a_large_topic_is_shown(app, broker, path):
    topic = await broker.topics.create(TopicName("public", "default", "big"), 2 * PER_TURN)
    for name in (b"a", b"b", b"c"):
        broker.subscriptions.open(topic, name).commit(0, 0)
    answer = []

    async def ask():
        answer.append(await call(app, "GET", path))

    assert await turns_during(ask) >= 5  # Two for each group; the request alone takes one or two.
    assert answer[0].status == 200
