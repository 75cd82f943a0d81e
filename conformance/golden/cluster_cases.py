"""Requests about the cluster, its partitions and its users."""

from collections.abc import Iterator
from typing import Final

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    init_producer_id,
    list_partition_reassignments,
    sasl_authenticate,
    sasl_handshake,
    update_features,
)
from conformance.golden.case import TOPIC, Case, same


def _cluster() -> Iterator[Case]:
    name = {"client_software_name": b"golden", "client_software_version": b"1"}
    yield Case("versions", same(api_versions.ApiVersionsRequest(**name)))
    unnamed = api_versions.ApiVersionsRequest(client_software_name=b"")
    yield Case("versions without a name", same(unnamed), since=3)
    yield Case(
        "login without logins", same(sasl_handshake.SaslHandshakeRequest(mechanism=b"PLAIN"))
    )
    login = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0a\0b")
    yield Case("password without logins", same(login))
    yield Case("cluster", same(describe_cluster.DescribeClusterRequest()))
    yield Case(
        "controllers", same(describe_cluster.DescribeClusterRequest(endpoint_type=2)), since=1
    )
    filters = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    kinds = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
    wanted = describe_acls.DescribeAclsRequest(**filters, **kinds, permission_type=1)
    yield Case("ACLs", same(wanted), since=1)
    acl = create_acls.AclCreation(
        resource_type=2,
        resource_name=b"x",
        principal=b"User:x",
        host=b"*",
        operation=3,
        permission_type=3,
    )
    yield Case("create an ACL", same(create_acls.CreateAclsRequest(creations=[acl])))
    gone = delete_acls.DeleteAclsFilter(**filters, **kinds, permission_type=1)
    yield Case("delete ACLs", same(delete_acls.DeleteAclsRequest(filters=[gone])))


def _partitions() -> Iterator[Case]:
    """Leaders, replicas and folders of partitions."""
    for election in (0, 9):
        places = [elect_leaders.TopicPartitions(topic=TOPIC, partitions=[0, 7])]
        body: Struct = elect_leaders.ElectLeadersRequest(
            election_type=election, topic_partitions=places, timeout_ms=1000
        )
        yield Case(f"election of type {election}", same(body), since=election and 1)
    for replicas in ([1], [7], None):
        moved = alter_partition_reassignments.ReassignablePartition(replicas=replicas)
        topics = [alter_partition_reassignments.ReassignableTopic(name=TOPIC, partitions=[moved])]
        body = alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics)
        yield Case(f"reassignment to {replicas}", same(body))
    body = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    yield Case("reassignments", same(body))
    log_topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
    dirs = [alter_replica_log_dirs.AlterReplicaLogDir(path=b"/none", topics=log_topics)]
    yield Case(
        "move to a missing directory",
        same(alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=dirs)),
    )
    named = [describe_log_dirs.DescribableLogDirTopic(topic=TOPIC, partitions=[0])]
    yield Case("directories", same(describe_log_dirs.DescribeLogDirsRequest(topics=named)))


def _users() -> Iterator[Case]:
    """Quotas and keys of users, and features."""
    user = describe_client_quotas.ComponentData(entity_type=b"user", match_type=2, match=None)
    body: Struct = describe_client_quotas.DescribeClientQuotasRequest(components=[user])
    yield Case("quotas", same(body))
    strange = describe_client_quotas.ComponentData(entity_type=b"x", match_type=2, match=None)
    body = describe_client_quotas.DescribeClientQuotasRequest(components=[strange])
    yield Case("quotas of an unknown type", same(body))
    entity = [alter_client_quotas.EntityData(entity_type=b"user", entity_name=b"x")]
    change = alter_client_quotas.OpData(key=b"producer_byte_rate", value=5.0)
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData(entity=entity, ops=[change])
    body = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True)
    yield Case("change quotas", same(body))
    users = [describe_user_scram_credentials.UserName(name=b"nobody")]
    body = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=users)
    yield Case("keys of a missing user", same(body))
    body = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
    yield Case("keys of all users", same(body))
    lost = alter_user_scram_credentials.ScramCredentialDeletion(name=b"nobody", mechanism=1)
    weak = alter_user_scram_credentials.ScramCredentialUpsertion(
        name=b"weak", mechanism=1, iterations=5, salt=b"s", salted_password=bytes(32)
    )
    for note, fields in (("missing", {"deletions": [lost]}), ("weak", {"upsertions": [weak]})):
        body = alter_user_scram_credentials.AlterUserScramCredentialsRequest(**fields)
        yield Case(f"change a {note} key", same(body))
    yield Case("producer id", same(init_producer_id.InitProducerIdRequest(transactional_id=None)))
    feature = update_features.FeatureUpdateKey(feature=b"none", max_version_level=1)
    body = update_features.UpdateFeaturesRequest(feature_updates=[feature], timeout_ms=1000)
    yield Case("change a feature", same(body))
    place = describe_quorum.DescribeQuorumRequestPartitionData()
    log = describe_quorum.DescribeQuorumRequestTopicData(topic_name=b"x", partitions=[place])
    yield Case("quorum of another topic", same(describe_quorum.DescribeQuorumRequest(topics=[log])))


CLUSTER_CASES: Final = (*_cluster(), *_partitions(), *_users())
