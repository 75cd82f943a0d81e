"""DescribeCluster."""

import pytest

from braidlog.protocols.kafka.wire.describe_cluster import DescribeClusterRequest
from tests.protocols.kafka.frames import RawKafka


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(client: RawKafka, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    reply = await client.call_whole(request, version)
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (0, b"braidlog", 1)
    assert [(node.broker_id, node.host, node.is_fenced) for node in reply.brokers] == [
        (1, b"127.0.0.1", False)
    ]
    assert reply.cluster_authorized_operations > 0


async def test_there_are_no_endpoints_of_controllers(client: RawKafka) -> None:
    reply = await client.call_whole(DescribeClusterRequest(endpoint_type=2), 1)
    assert (reply.error_code, reply.brokers) == (114, [])
