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
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    init_producer_id,
    list_partition_reassignments,
    sasl_authenticate,
    sasl_handshake,
    update_features,
)
from conformance.golden.case import MISSING, TOPIC, Case, same

INT32_MAX: Final = 2**31 - 1


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
    other = describe_cluster.DescribeClusterRequest(endpoint_type=9)
    yield Case("cluster of an unknown kind of endpoint", same(other), since=1)
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
    for name, index in ((TOPIC, 0), (TOPIC, 7), (MISSING, 0)):
        named_topics = [
            list_partition_reassignments.ListPartitionReassignmentsTopics(
                name=name, partition_indexes=[index]
            )
        ]
        body = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=named_topics)
        yield Case(f"reassignments of {name.decode()} {index}", same(body))
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
    good = alter_user_scram_credentials.ScramCredentialUpsertion(
        name=b"golden-user", mechanism=1, iterations=4096, salt=b"s", salted_password=bytes(32)
    )
    body = alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[good])
    yield Case("set a key", same(body))


def _set_user() -> Iterator[Case]:
    """The user of `set a key`: Kafka answers that before its brokers know the key."""
    gone = alter_user_scram_credentials.ScramCredentialDeletion(name=b"golden-user", mechanism=1)
    users = [describe_user_scram_credentials.UserName(name=b"golden-user")]
    body: Struct = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=users)
    yield Case("keys of a user", same(body))
    body = alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[gone])
    yield Case("delete a key", same(body))


def _quota_changes() -> Iterator[Case]:
    rate = alter_client_quotas.OpData(key=b"producer_byte_rate", value=5.0)
    strange = alter_client_quotas.OpData(key=b"no_such_rate", value=5.0)
    user = alter_client_quotas.EntityData(entity_type=b"user", entity_name=b"x")
    unknown = alter_client_quotas.EntityData(entity_type=b"planet", entity_name=b"x")
    for note, entity, ops in (
        ("by an unknown key", [user], [strange]),
        ("of an unknown type", [unknown], [rate]),
        ("of nothing", [], [rate]),
        ("of a user twice", [user, user], [rate]),
    ):
        entry = alter_client_quotas.AlterClientQuotasRequestEntryData(entity=entity, ops=ops)
        body = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True)
        yield Case(f"change quotas {note}", same(body))
    body = alter_client_quotas.AlterClientQuotasRequest(entries=[], validate_only=True)
    yield Case("change no quotas", same(body))


def _ids_and_features() -> Iterator[Case]:
    yield Case("producer id", same(init_producer_id.InitProducerIdRequest(transactional_id=None)))
    for note, fields in (
        ("of an empty name", {"transactional_id": b""}),
        ("without an epoch", {"transactional_id": None, "producer_id": 5}),
        ("of an unknown producer", {"producer_id": 5, "producer_epoch": 0}),
    ):
        about = {"transactional_id": None, "transaction_timeout_ms": 1000} | fields
        body: Struct = init_producer_id.InitProducerIdRequest(**about)
        yield Case(f"producer id {note}", same(body), since=3 * ("producer_id" in fields))
    feature = update_features.FeatureUpdateKey(feature=b"none", max_version_level=1)
    body = update_features.UpdateFeaturesRequest(feature_updates=[feature], timeout_ms=1000)
    yield Case("change a feature", same(body))
    for note, level in (("to its level", 1), ("to a high level", 99), ("to a negative level", -1)):
        feature = update_features.FeatureUpdateKey(
            feature=b"share.version", max_version_level=level
        )
        body = update_features.UpdateFeaturesRequest(
            feature_updates=[feature], timeout_ms=1000, validate_only=True
        )
        yield Case(f"check a feature {note}", same(body), since=1)
    body = update_features.UpdateFeaturesRequest(timeout_ms=1000)
    yield Case("change no feature", same(body))
    place = describe_quorum.DescribeQuorumRequestPartitionData()
    for note, name in (("of another topic", b"x"), ("of the metadata", b"__cluster_metadata")):
        log = describe_quorum.DescribeQuorumRequestTopicData(topic_name=name, partitions=[place])
        yield Case(f"quorum {note}", same(describe_quorum.DescribeQuorumRequest(topics=[log])))


def _refused() -> Iterator[Case]:
    names = [describe_user_scram_credentials.UserName(name=b"nobody")] * 2
    body: Struct = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=names)
    yield Case("keys of a user twice", same(body))
    names = [describe_user_scram_credentials.UserName(name=b"")]
    body = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=names)
    yield Case("keys of a user without a name", same(body))

    def key(**fields: object) -> alter_user_scram_credentials.ScramCredentialUpsertion:
        usual = {
            "name": b"new",
            "mechanism": 1,
            "iterations": 4096,
            "salt": b"salt",
            "salted_password": bytes(32),
        }
        return alter_user_scram_credentials.ScramCredentialUpsertion(**(usual | fields))

    gone = alter_user_scram_credentials.ScramCredentialDeletion(name=b"new", mechanism=1)
    for note, change in (
        ("twice", {"upsertions": [key(), key()]}),
        ("and delete", {"upsertions": [key()], "deletions": [gone]}),
        ("of an unknown mechanism", {"upsertions": [key(mechanism=9)]}),
        ("without a name", {"upsertions": [key(name=b"")]}),
        ("of too many rounds", {"upsertions": [key(iterations=INT32_MAX)]}),
        ("of no user", {}),
    ):
        body = alter_user_scram_credentials.AlterUserScramCredentialsRequest(**change)
        yield Case(f"change a key {note}", same(body))
    places = [elect_leaders.TopicPartitions(topic=MISSING, partitions=[0])]
    body = elect_leaders.ElectLeadersRequest(topic_partitions=places, timeout_ms=1000)
    yield Case("election of a missing topic", same(body))
    body = elect_leaders.ElectLeadersRequest(topic_partitions=[], timeout_ms=1000)
    yield Case("election of nothing", same(body))
    moved = alter_partition_reassignments.ReassignablePartition(partition_index=7, replicas=[1])
    topics = [alter_partition_reassignments.ReassignableTopic(name=TOPIC, partitions=[moved])]
    body = alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics)
    yield Case("reassignment of a missing partition", same(body))
    log_topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name=MISSING, partitions=[0])]
    dirs = [alter_replica_log_dirs.AlterReplicaLogDir(path=b"/none", topics=log_topics)]
    body = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=dirs)
    yield Case("move of a missing topic", same(body))
    named = [describe_log_dirs.DescribableLogDirTopic(topic=MISSING, partitions=[0])]
    body = describe_log_dirs.DescribeLogDirsRequest(topics=named)
    yield Case("directories of a missing topic", same(body))
    for note, limit, cursor in (
        ("without a limit", 0, None),
        ("from a cursor", 1, describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=1)),
        (
            "from a missing partition",
            1,
            describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=9),
        ),
        (
            "from a negative partition",
            1,
            describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=-1),
        ),
    ):
        body = describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=TOPIC)],
            response_partition_limit=limit,
            cursor=cursor,
        )
        yield Case(f"partitions {note}", same(body))


CLUSTER_CASES: Final = (
    *_cluster(),
    *_partitions(),
    *_users(),
    *_quota_changes(),
    *_ids_and_features(),
    *_set_user(),
)


REFUSED_CLUSTER_CASES: Final = tuple(_refused())
