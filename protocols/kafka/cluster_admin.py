"""DescribeCluster, and the requests of access rules, which have no form of Kafka here."""

from __future__ import annotations

from typing import Final

from braidlog.broker.access.rights import CLUSTER
from braidlog.broker.errors import BrokerError
from braidlog.protocols.kafka.authorized import operations
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.metadata import CLUSTER_ID
from braidlog.protocols.kafka.wire.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from braidlog.protocols.kafka.wire.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from braidlog.protocols.kafka.wire.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1  # The endpoints that a client asks for; the other kind are controllers.
NO_ACLS: Final = (
    b"Braidlog keeps access rules as permissions, not as ACLs: see braidlog permissions"
)


def describe_cluster(context: KafkaContext, request: DescribeClusterRequest) -> KafkaAnswer:
    """Answer which brokers there are; anybody learns that from Metadata, too."""
    if request.endpoint_type != BROKERS:
        return KafkaAnswer(
            DescribeClusterResponse(
                error_code=Code.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=b"there are no endpoints of controllers",
                endpoint_type=request.endpoint_type,
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


def describe_acls(context: KafkaContext, request: DescribeAclsRequest) -> KafkaAnswer:
    """Answer as a broker of Kafka without an authorizer."""
    code, text = _refusal(context)
    return KafkaAnswer(DescribeAclsResponse(error_code=code, error_message=text))


def create_acls(context: KafkaContext, request: CreateAclsRequest) -> KafkaAnswer:
    """Refuse each rule."""
    code, text = _refusal(context)
    refused = [AclCreationResult(error_code=code, error_message=text) for _ in request.creations]
    return KafkaAnswer(CreateAclsResponse(results=refused))


def delete_acls(context: KafkaContext, request: DeleteAclsRequest) -> KafkaAnswer:
    """Refuse each filter."""
    code, text = _refusal(context)
    refused = [DeleteAclsFilterResult(error_code=code, error_message=text) for _ in request.filters]
    return KafkaAnswer(DeleteAclsResponse(filter_results=refused))


def _refusal(context: KafkaContext) -> tuple[Code, bytes]:
    """Return the error of a request of access rules; clients without the right learn nothing."""
    try:
        context.connection.check(context.action, CLUSTER)
    except BrokerError as error:
        context.refused(error)
        return Code.CLUSTER_AUTHORIZATION_FAILED, str(error).encode()
    context.count_error(Code.SECURITY_DISABLED)
    return Code.SECURITY_DISABLED, NO_ACLS
