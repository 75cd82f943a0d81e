"""The api keys that are served, with their structures and versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from braidlog.protocols.kafka import wire
from braidlog.protocols.kafka.codec import KeptList
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire.api_versions import ApiVersion
from braidlog.protocols.kafka.wire.keys import ApiKey


@dataclass(frozen=True, slots=True)
class Api:
    """An API key: versions `version_min` to `version_max` are served."""

    version_min: int
    version_max: int
    request: type[Struct]
    reply: type[Struct]


# The newest served version of each request.
NEWEST: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 13,
    ApiKey.FETCH: 18,
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.METADATA: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.API_VERSIONS: 4,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 5,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_QUORUM: 2,
    ApiKey.UPDATE_FEATURES: 2,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.LIST_CONFIG_RESOURCES: 1,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.SHARE_GROUP_HEARTBEAT: 1,
    ApiKey.SHARE_GROUP_DESCRIBE: 1,
    ApiKey.SHARE_FETCH: 2,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 1,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
}


def _api(key: ApiKey, newest: int) -> Api:
    """Return a served key; only the modules of served keys are loaded."""
    module = import_module(f"{wire.__name__}.{key.name.lower()}")
    return Api(module.REQUEST.VERSIONS[0], newest, module.REQUEST, module.RESPONSE)


APIS: Mapping[int, Api] = {int(key): _api(key, newest) for key, newest in NEWEST.items()}

# The requests that are answered, by api key and version.
SERVED = frozenset(
    (key, version)
    for key, api in APIS.items()
    for version in range(api.version_min, api.version_max + 1)
)
# Those in which headers and structures end with tagged fields (KIP-482).
FLEXIBLE = frozenset(
    (key, version) for key, version in SERVED if version >= APIS[key].request.FLEXIBLE
)


def is_served(api_key: int, version: int) -> bool:
    """Return True if requests of that key and version are answered."""
    return (api_key, version) in SERVED


@cache
def ranges() -> KeptList[ApiVersion]:
    """Return the served versions of each key, for ApiVersions: the first request of a client."""
    return KeptList(
        ApiVersion(api_key=key, min_version=api.version_min, max_version=api.version_max)
        for key, api in sorted(APIS.items())
    )
