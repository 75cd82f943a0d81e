"""DescribeCluster, and the refusal of access rules in Kafka's form."""

import pytest

from braidlog.protocols.kafka.wire.create_acls import AclCreation, CreateAclsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest
from braidlog.protocols.kafka.wire.describe_cluster import DescribeClusterRequest
from tests.protocols.kafka.frames import Client

SECURITY_DISABLED = 54


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(client: Client, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    reply = await client.call_whole(request, version)
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (0, b"braidlog", 1)
    assert [(node.broker_id, node.host, node.is_fenced) for node in reply.brokers] == [
        (1, b"127.0.0.1", False)
    ]
    assert reply.cluster_authorized_operations > 0


async def test_there_are_no_endpoints_of_controllers(client: Client) -> None:
    reply = await client.call_whole(DescribeClusterRequest(endpoint_type=2), 1)
    assert (reply.error_code, reply.brokers) == (115, [])


@pytest.mark.parametrize("version", range(1, 4))
async def test_acls_are_refused_as_without_an_authorizer(client: Client, version: int) -> None:
    reply = await client.call_whole(DescribeAclsRequest(), version)
    assert (reply.error_code, reply.resources) == (SECURITY_DISABLED, [])
    created = await client.call_whole(CreateAclsRequest(creations=[AclCreation()] * 2), version)
    assert [result.error_code for result in created.results] == [SECURITY_DISABLED] * 2
    deleted = await client.call_whole(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version)
    assert [result.error_code for result in deleted.filter_results] == [SECURITY_DISABLED]
