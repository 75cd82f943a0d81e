"""The handler of each request, and the permission that the client needs. Knows no bytes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from braidlog.broker.access.rights import Action
from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.kafka import (
    acls,
    admin,
    api_versions,
    classic_groups,
    client_quotas,
    cluster_admin,
    commits,
    config_resources,
    configs,
    consumer_group_admin,
    consumer_groups,
    group_admin,
    messages,
    metadata,
    offset_delete,
    offset_fetch,
    offsets_topic,
    produce,
    producer_ids,
    producers_admin,
    records_admin,
    replica_admin,
    sasl,
    scram_users,
    share_fetch,
    share_groups,
    share_offsets,
)
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.tables import APIS
from braidlog.protocols.kafka.wire.keys import ApiKey

Result = KafkaAnswer | None
Handler = Callable[[KafkaContext, Any], Result | Steps[Result] | Coroutine[Any, Any, Result]]


@dataclass(frozen=True, slots=True)
class KeyHandler:
    """The handler of a kind of request, and the action that the client needs permission for.

    The context checks `action` on every name that it resolves for the handler; None: no check.
    """

    handler: Handler
    action: Action | None
    api: str = ""  # Name in metrics; empty: the key's.


HANDLERS: Mapping[ApiKey, KeyHandler] = {
    ApiKey.PRODUCE: KeyHandler(produce.produce, Action.PRODUCE),
    ApiKey.FETCH: KeyHandler(offsets_topic.fetch_with_positions, Action.CONSUME),
    ApiKey.LIST_OFFSETS: KeyHandler(
        offsets_topic.offsets_with_positions, Action.DESCRIBE, api="offsets"
    ),
    ApiKey.METADATA: KeyHandler(offsets_topic.metadata_with_positions, Action.DESCRIBE),
    ApiKey.OFFSET_COMMIT: KeyHandler(commits.commit_offsets, Action.CONSUME),
    ApiKey.OFFSET_FETCH: KeyHandler(offset_fetch.fetch_offsets, Action.DESCRIBE),
    ApiKey.FIND_COORDINATOR: KeyHandler(
        metadata.find_coordinator, Action.DESCRIBE, api="consumer_metadata"
    ),
    ApiKey.API_VERSIONS: KeyHandler(api_versions.api_versions, None),
    ApiKey.INIT_PRODUCER_ID: KeyHandler(producer_ids.init_producer_id, None),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: KeyHandler(
        offsets_topic.epochs_with_positions, Action.DESCRIBE
    ),
    ApiKey.SASL_HANDSHAKE: KeyHandler(sasl.sasl_handshake, None),
    ApiKey.SASL_AUTHENTICATE: KeyHandler(sasl.sasl_authenticate, None),
    ApiKey.JOIN_GROUP: KeyHandler(classic_groups.join_group, Action.CONSUME),
    ApiKey.SYNC_GROUP: KeyHandler(classic_groups.sync_group, Action.CONSUME),
    ApiKey.HEARTBEAT: KeyHandler(classic_groups.heartbeat, Action.CONSUME),
    ApiKey.LEAVE_GROUP: KeyHandler(classic_groups.leave_group, Action.CONSUME),
    ApiKey.DESCRIBE_GROUPS: KeyHandler(group_admin.describe_groups, Action.DESCRIBE),
    ApiKey.LIST_GROUPS: KeyHandler(group_admin.list_groups, Action.DESCRIBE),
    ApiKey.DELETE_GROUPS: KeyHandler(group_admin.delete_groups, Action.DELETE),
    ApiKey.CREATE_TOPICS: KeyHandler(admin.create_topics, Action.CREATE),
    ApiKey.DELETE_TOPICS: KeyHandler(admin.delete_topics, Action.DELETE),
    ApiKey.CREATE_PARTITIONS: KeyHandler(admin.create_partitions, Action.ALTER),
    ApiKey.DESCRIBE_CONFIGS: KeyHandler(offsets_topic.configs_with_positions, Action.DESCRIBE),
    ApiKey.ALTER_CONFIGS: KeyHandler(configs.alter_configs, Action.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: KeyHandler(configs.incremental_alter_configs, Action.ALTER),
    ApiKey.LIST_CONFIG_RESOURCES: KeyHandler(
        config_resources.list_config_resources, Action.DESCRIBE
    ),
    ApiKey.DELETE_RECORDS: KeyHandler(records_admin.delete_records, Action.DELETE),
    ApiKey.DESCRIBE_CLUSTER: KeyHandler(cluster_admin.describe_cluster, None),
    ApiKey.DESCRIBE_ACLS: KeyHandler(acls.describe_acls, Action.ADMINISTER),
    ApiKey.CREATE_ACLS: KeyHandler(acls.create_acls, Action.ADMINISTER),
    ApiKey.DELETE_ACLS: KeyHandler(acls.delete_acls, Action.ADMINISTER),
    ApiKey.DESCRIBE_LOG_DIRS: KeyHandler(records_admin.describe_log_dirs, Action.DESCRIBE),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: KeyHandler(
        consumer_groups.consumer_group_heartbeat, Action.CONSUME
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: KeyHandler(
        consumer_group_admin.describe_consumer_groups, Action.DESCRIBE
    ),
    ApiKey.OFFSET_DELETE: KeyHandler(offset_delete.delete_offsets, Action.DELETE),
    ApiKey.ELECT_LEADERS: KeyHandler(replica_admin.elect_leaders, Action.ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: KeyHandler(
        replica_admin.alter_reassignments, Action.ALTER
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: KeyHandler(
        replica_admin.list_reassignments, Action.DESCRIBE
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: KeyHandler(replica_admin.alter_log_dirs, Action.ALTER),
    ApiKey.DESCRIBE_QUORUM: KeyHandler(replica_admin.describe_quorum, Action.DESCRIBE),
    ApiKey.UPDATE_FEATURES: KeyHandler(replica_admin.update_features, Action.ALTER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: KeyHandler(
        client_quotas.describe_client_quotas, Action.DESCRIBE
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: KeyHandler(client_quotas.alter_client_quotas, Action.ALTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: KeyHandler(
        scram_users.describe_scram_users, Action.ADMINISTER
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: KeyHandler(
        scram_users.alter_scram_users, Action.ADMINISTER
    ),
    ApiKey.DESCRIBE_PRODUCERS: KeyHandler(producers_admin.describe_producers, Action.CONSUME),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: KeyHandler(
        offsets_topic.partitions_with_positions, Action.DESCRIBE
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: KeyHandler(share_groups.share_group_heartbeat, Action.CONSUME),
    ApiKey.SHARE_GROUP_DESCRIBE: KeyHandler(
        consumer_group_admin.describe_share_groups, Action.DESCRIBE
    ),
    ApiKey.SHARE_FETCH: KeyHandler(share_fetch.share_fetch, Action.CONSUME),
    ApiKey.SHARE_ACKNOWLEDGE: KeyHandler(share_fetch.share_acknowledge, Action.CONSUME),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: KeyHandler(
        share_offsets.describe_share_group_offsets, Action.DESCRIBE
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: KeyHandler(
        share_offsets.alter_share_group_offsets, Action.CONSUME
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: KeyHandler(
        share_offsets.delete_share_group_offsets, Action.DELETE
    ),
}


def request_type(key: ApiKey) -> type:
    """Return the class of a key's decoded requests: Produce has a class of its own."""
    return messages.ProduceRequest if key is ApiKey.PRODUCE else APIS[key].request


COMMANDS: Mapping[type, KeyHandler] = {
    request_type(key): handler for key, handler in HANDLERS.items()
}
API_NAMES: Mapping[type, str] = {
    request_type(key): handler.api or key.name.lower() for key, handler in HANDLERS.items()
}
