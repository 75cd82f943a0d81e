"""The publish rate of a topic, which Pulsar's admin API sets, for Kafka's producers."""

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.protocols.kafka.frames import message_set, produce
from tests.protocols.kafka.talk import FOO, FOO_NAME

MANY = message_set(*[b"x"] * 50)


@pytest.mark.parametrize("acks", [1, 0])
async def test_a_client_waits_for_the_publish_rate(broker, client, acks):
    await broker.topics.alter_settings(FOO_NAME, {"publish_rate_messages": 1})
    partition = broker.topics.partition(FOO_NAME, 0)
    for _ in range(2):  # The second is not read.
        await client.send(produce(FOO, {0: MANY}, acks))
        await wait_all_tasks_blocked(0.05)
    assert partition.next_offset == 50
