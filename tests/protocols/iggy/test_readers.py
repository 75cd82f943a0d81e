"""Partitions of a group's members, in dialect W: a partition moves to a new member once its owner
has committed all polled messages.
"""

import struct

import pytest

from tests.protocols.iggy.foreign import append, partition_of, topic_of
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC
from tests.protocols.iggy.wtalk import STORE, client_w

CREATE_GROUP, JOIN = 139, 148
POLL, SYNC = 100, 606
NEXT = 5
NAMED = STREAM + TOPIC + b"\x02\x03grp"
CONSUMER = b"\x02" + b"\x02\x03grp" + STREAM + TOPIC


class PollingMember:
    """A member of a group of a topic with two partitions."""

    def __init__(self, broker, client):
        self._broker, self._client = broker, client

    async def poll(self, partition):
        """Return the number of polled messages, none of which is committed."""
        body = CONSUMER + struct.pack("<BIBQIB", 1, partition, NEXT, 0, 10, 0)
        status, answer = await self._client.query(POLL, body, incarnation=self._number(partition))
        assert status == 0
        return struct.unpack_from("<I", answer, 12)[0]

    async def store(self, partition, offset):
        """Commit the messages up to an offset."""
        body = CONSUMER + struct.pack("<BIQB", 1, partition, offset, 0)
        answer = await self._client.perform(STORE, body, incarnation=self._number(partition))
        assert answer == (0, bytes(4))

    async def assigned(self):
        """Return the partitions that the member may poll."""
        _, answer = await self._client.query(SYNC, NAMED)
        (count,) = struct.unpack_from("<I", answer, 8)
        return list(struct.unpack_from(f"<{count}I", answer, 12))

    def _number(self, partition):
        return partition_of(self._broker, index=partition).partition_id


async def joined(broker, open_client):
    client = await client_w(open_client)
    assert await client.perform(JOIN, NAMED) == (0, bytes(4))
    return PollingMember(broker, client)


@pytest.fixture
async def owner(broker, open_client):
    """Return the only member of a group of a topic with two partitions."""
    client = await client_w(open_client)
    await client.status(CREATE_STREAM, b"\x02st")
    await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + b"\x02tp")
    await client.status(CREATE_GROUP, STREAM + TOPIC + b"\x03grp")
    return await joined(broker, open_client)


async def fill(broker, *values):
    for index in range(2):
        await append(broker, *values, partition=partition_of(broker, index=index))


async def test_a_partition_moves_once_all_polled_messages_are_committed(broker, open_client, owner):
    await fill(broker, b"0", b"1")
    assert [await owner.poll(index) for index in range(2)] == [2, 2]
    new = await joined(broker, open_client)
    assert (await new.assigned(), await owner.assigned()) == ([], [0])
    await owner.store(1, 0)
    assert await new.assigned() == []
    await owner.store(1, 1)
    assert (await new.assigned(), await owner.assigned()) == ([1], [0])


async def test_hidden_records_behind_polled_messages_delay_no_move(broker, open_client, owner):
    await fill(broker, b"0", b"1", None, None)
    assert [await owner.poll(index) for index in range(2)] == [2, 2]
    new = await joined(broker, open_client)
    assert await new.assigned() == []
    await owner.store(1, 1)
    assert (await new.assigned(), await owner.assigned()) == ([1], [0])


@pytest.mark.parametrize("is_polled", [False, True])
async def test_messages_acknowledged_by_others_delay_no_move(broker, open_client, owner, is_polled):
    """Another protocol's client acknowledges the last message before or after the poll."""
    await fill(broker, b"0", b"1", b"2")
    subscription = broker.subscriptions.open(topic_of(broker), b"grp")
    if is_polled:
        assert [await owner.poll(index) for index in range(2)] == [3, 3]
    for index in range(2):
        subscription.commit(index, 0)
        subscription.ack(index, [(2, 3)], lazy=False)
    if not is_polled:
        assert [await owner.poll(index) for index in range(2)] == [2, 2]
    new = await joined(broker, open_client)
    assert await new.assigned() == []
    await owner.store(1, 1)
    assert (await new.assigned(), await owner.assigned()) == ([1], [0])
