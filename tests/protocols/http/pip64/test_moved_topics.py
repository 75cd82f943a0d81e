"""Consumers over HTTP of a topic that moves to another broker."""

import trio

from braidlog.broker.topics.topic import TopicEvent
from tests.protocols.http.pip64.conftest import BASE, SUBSCRIPTION, consumer_of


async def test_consumers_end_when_their_topic_has_moved_to_another_broker(app, ask, broker, orders):
    await ask("POST", BASE, {"messages": [{"value": "a", "partition": 1}]})
    for name in ("reading", "idle"):
        wanted = {"name": name, "id": name, "initial_position": "Earliest"}
        assert (await ask("POST", SUBSCRIPTION, wanted)).status == 201
    path = f"{SUBSCRIPTION}/consumer/reading/messages"
    assert len((await ask("GET", path)).json["messages"]) == 1
    for partition in orders.partitions:
        partition.move_away()
    for listener in tuple(broker.topics.listeners):
        listener.topic_changed(orders, TopicEvent.MOVED)
    answer = await ask("GET", path)
    assert (answer.status, answer.json["error_code"]) == (404, 40403)
    await app.consumers.sweep(trio.current_time())
    assert consumer_of(app, "reading") is None and consumer_of(app, "idle") is None
