"""Ends of leader epochs: a single broker has led all the time."""

import pytest

from braidlog.protocols.kafka.errors import Code
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set
from tests.protocols.kafka.talk import FOO, produce_one


@pytest.mark.parametrize("version", range(4))
async def test_epoch_0_alone_ends_with_the_log(client: RawKafka, version: int) -> None:
    await produce_one(client, message_set(b"a", b"b"))
    for epoch, end in ((0, (0, 0, 2)), (5, (0, -1, -1)), (-1, (0, -1, -1))):
        wanted = {FOO: {0: m.EpochTarget(epoch)}}
        reply = await client.call_with_table(m.OffsetForLeaderEpochRequest(wanted), version)
        (partition,) = reply.topics[0].partitions
        assert (partition.error, partition.end_offset) == (end[0], end[2])
        assert partition.epoch == (end[1] if version else -1)
    unknown = {FOO: {7: m.EpochTarget(0)}}
    reply = await client.call_with_table(m.OffsetForLeaderEpochRequest(unknown), version)
    assert reply.topics[0].partitions[0].error == Code.UNKNOWN_TOPIC_OR_PARTITION
