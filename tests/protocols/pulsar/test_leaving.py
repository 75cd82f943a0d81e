"""What a connection held goes in pieces when it ends."""

import pytest

from protocols.pulsar.client import LEAVING_TOGETHER
from tests.protocols.pulsar.talk import NAME, TOPIC, talking
from tests.waiting import until

COUNT = 2 * LEAVING_TOGETHER + 1


@pytest.mark.slow
async def test_hundreds_of_producers_and_consumers_all_leave(broker, open_client):
    async with talking(open_client) as client:
        for number in range(COUNT):
            await client.produce(producer_id=number)
            await client.subscribe(number, subscription=f"s{number}")
    topic = broker.topics.get(NAME)
    assert topic.name.full in TOPIC
    await until(lambda: not topic.layout_users and not len(broker.dispatchers))
