"""Positions of a group on all topics: only those that the client may see."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import ResourceKind
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from braidlog.protocols.kafka.wire.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.access.rules import Hiding
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME


@pytest.mark.parametrize(
    ("hidden", "shown"), [(None, [FOO]), (ResourceKind.TOPIC, []), (ResourceKind.GROUP, [])]
)
async def test_hidden_topics_and_groups_are_left_out(
    broker: Broker, client: RawKafka, hidden: ResourceKind | None, shown: list[bytes]
) -> None:
    broker.subscriptions.open(broker.topics.get(FOO_NAME), b"g").start(0, 0)
    broker.access = Access(Hiding(hidden))
    everything = OffsetFetchRequestGroup(group_id=b"g", topics=None)
    (group,) = (await client.call_whole(OffsetFetchRequest(groups=[everything]), 8)).groups
    assert [topic.name for topic in group.topics] == shown
    share = DescribeShareGroupOffsetsRequestGroup(group_id=b"g", topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[share])
    (described,) = (await client.call_whole(request, 1)).groups
    assert [topic.topic_name for topic in described.topics] == shown
