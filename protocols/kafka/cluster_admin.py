"""DescribeCluster: which brokers there are."""

from __future__ import annotations

from braidlog.broker.access.rights import CLUSTER
from braidlog.protocols.kafka.authorized import operations
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.metadata import CLUSTER_ID
from braidlog.protocols.kafka.wire.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2  # The kinds of endpoints that clients ask for.


def describe_cluster(context: KafkaContext, request: DescribeClusterRequest) -> KafkaAnswer:
    """Answer which brokers there are; anybody learns that from Metadata, too."""
    if request.endpoint_type != BROKERS:
        return KafkaAnswer(
            DescribeClusterResponse(
                error_code=Code.MISMATCHED_ENDPOINT_TYPE
                if request.endpoint_type == CONTROLLERS
                else Code.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=b"there are only endpoints of brokers",
            )
        )
    placement = context.broker.placement
    others = [address for other in placement.others() if (address := context.address_of(other))]
    controller = context.address_of(placement.catalogue_owner()) or context.address
    reply = DescribeClusterResponse(
        error_message=None,
        cluster_id=CLUSTER_ID,
        controller_id=controller.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port)
            for node in (context.address, *others)
        ],
    )
    if request.include_cluster_authorized_operations:
        reply.cluster_authorized_operations = operations(context, CLUSTER)
    return KafkaAnswer(reply)
