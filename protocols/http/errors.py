"""Wire codes of broker errors and of the HTTP layer's own refusals. Knows no route.

Numbers are from PIP-64's error list where possible (PIP-64 took them from the Kafka REST proxy).
The other numbers are ours, in the same pattern: the HTTP status and two digits. `code` is the
stable name that programs test.
"""

from dataclasses import dataclass, field

import msgspec

from braidlog.broker import errors


@dataclass(frozen=True, slots=True)
class WireCode:
    """The report of an error kind: HTTP status, number and stable name."""

    status: int
    number: int
    code: str


@dataclass(slots=True)
class RequestRefused(Exception):
    """Refusal of a request by this listener, before any call of the broker."""

    wire: WireCode
    message: str
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


class ErrorBody(msgspec.Struct):
    """The answer to a refused request, except on the paths of Pulsar's admin API."""

    error_code: int
    code: str
    message: str
    reason: str


# Paths on which errors have the form of Apache Pulsar.
PULSAR_PATHS = ("/admin/", "/lookup/")


class PulsarErrorBody(msgspec.Struct):
    """The answer to a refused request of Pulsar's admin API and lookup.

    Go's admin client reads `code` as a number, so that a name there breaks the client.
    """

    reason: str


BAD_REQUEST = WireCode(400, 40000, "bad_request")
BAD_BODY = WireCode(400, 40001, "bad_body")
BAD_QUERY = WireCode(400, 40002, "bad_query")
BAD_QUERY_ID = WireCode(400, 40003, "bad_message_id")
NO_SUCH_PATH = WireCode(404, 40400, "no_such_path")
TOPIC_NOT_FOUND = WireCode(404, 40401, "topic_not_found")
PARTITION_NOT_FOUND = WireCode(404, 40402, "partition_not_found")
CONSUMER_NOT_FOUND = WireCode(404, 40403, "consumer_not_found")
GROUP_NOT_FOUND = WireCode(404, 40404, "group_not_found")
METHOD_NOT_ALLOWED = WireCode(405, 40500, "method_not_allowed")
NOT_ACCEPTABLE = WireCode(406, 40601, "not_acceptable")
BODY_TIMEOUT = WireCode(408, 40801, "body_timeout")
CONSUMER_EXISTS = WireCode(409, 40902, "consumer_exists")
GROUP_BUSY = WireCode(409, 40903, "group_busy")
INVALID_NAME = WireCode(412, 41201, "invalid_name")
BODY_TOO_LARGE = WireCode(413, 41301, "body_too_large")
RECORD_TOO_LARGE = WireCode(413, 41302, "record_too_large")
NOT_JSON = WireCode(415, 41501, "not_json")
OFFSET_OUT_OF_RANGE = WireCode(416, 41601, "offset_out_of_range")
PAIR_SCHEMA_MISSING = WireCode(422, 42201, "pair_schema_missing")
VALUE_SCHEMA_MISSING = WireCode(422, 42202, "value_schema_missing")
BAD_KEY_SCHEMA = WireCode(422, 42203, "bad_key_schema")
BAD_VALUE_SCHEMA = WireCode(422, 42204, "bad_value_schema")
BAD_MESSAGES = WireCode(422, 42205, "bad_messages")
BAD_ACK_TYPE = WireCode(422, 42206, "bad_ack_type")
# Pulsar's admin API; the statuses are those that Pulsar's clients know.
BAD_LIMIT = WireCode(412, 41204, "bad_limit")
BAD_TTL = WireCode(412, 41203, "bad_ttl")
NOTHING_TO_EXPIRE = WireCode(409, 40924, "nothing_to_expire")
NOT_ON_NON_PERSISTENT = WireCode(405, 40521, "not_on_non_persistent")
MESSAGE_NOT_FOUND = WireCode(404, 40420, "message_not_found")
SCHEMA_NOT_FOUND = WireCode(404, 40421, "schema_not_found")
ONE_PARTITION_WANTED = WireCode(405, 40520, "one_partition_wanted")
BAD_PARTITIONS = WireCode(406, 40620, "bad_partitions")
CLUSTER_EXISTS = WireCode(409, 40926, "cluster_exists")
BAD_CLUSTER = WireCode(403, 40320, "bad_cluster")
TENANT_IN_USE = WireCode(409, 40920, "tenant_in_use")
TENANT_EXISTS = WireCode(409, 40923, "tenant_exists")
OTHER_KIND_OF_TOPIC = WireCode(409, 40925, "other_kind_of_topic")
SUBSCRIPTION_EXISTS = WireCode(409, 40921, "subscription_exists")
INCOMPATIBLE_SCHEMA = WireCode(409, 40922, "incompatible_schema")
TOPIC_BUSY = WireCode(412, 41220, "topic_busy")
SUBSCRIPTION_BUSY = WireCode(412, 41221, "subscription_busy")
PERMISSIONS_NOT_SET = WireCode(412, 41222, "permissions_not_set")
NOTHING_TO_EXAMINE = WireCode(412, 41223, "nothing_to_examine")
POLICY_VIOLATED = WireCode(412, 41224, "policy_violated")
NOT_OF_A_PARTITION = WireCode(412, 41225, "not_of_a_partition")
BAD_POSITION = WireCode(422, 42220, "bad_position")
UNREADABLE_SCHEMA = WireCode(422, 42221, "unreadable_schema")
FEWER_PARTITIONS = WireCode(422, 42222, "fewer_partitions")
TOO_BUSY = WireCode(429, 42901, "limit_exceeded")
HEAD_TOO_LARGE = WireCode(431, 43101, "head_too_large")
INTERNAL = WireCode(500, 50001, "internal_error")
NOT_SUPPORTED = WireCode(501, 50101, "not_supported")
NOT_IMPLEMENTED = WireCode(501, 50102, "not_implemented")
OWNER_LOST = WireCode(502, 50201, "owner_lost")
NO_OWNER = WireCode(503, 50304, "no_owner")
SHUTTING_DOWN = WireCode(503, 50301, "shutting_down")

WIRE_CODES: dict[type[errors.BrokerError], WireCode] = {
    errors.TopicNotFound: TOPIC_NOT_FOUND,
    errors.PartitionNotFound: PARTITION_NOT_FOUND,
    errors.SubscriptionNotFound: GROUP_NOT_FOUND,
    errors.NamespaceNotFound: WireCode(404, 40405, "namespace_not_found"),
    errors.TopicExists: WireCode(409, 40901, "topic_exists"),
    errors.SubscriptionBusy: GROUP_BUSY,
    errors.NamespaceExists: WireCode(409, 40904, "namespace_exists"),
    errors.ProducerBusy: WireCode(409, 40905, "producer_busy"),
    errors.ProducerFenced: WireCode(409, 40906, "producer_fenced"),
    errors.TopicInUse: WireCode(409, 40907, "topic_in_use"),
    errors.Conflict: WireCode(409, 40909, "conflict"),
    errors.TopicTerminated: WireCode(409, 40910, "topic_terminated"),
    errors.NotOwner: NO_OWNER,
    errors.Unanswered: OWNER_LOST,
    errors.InvalidName: INVALID_NAME,
    errors.InvalidRequest: WireCode(422, 42200, "invalid_request"),
    errors.CorruptBatch: WireCode(422, 42207, "corrupt_batch"),
    errors.OffsetOutOfRange: OFFSET_OUT_OF_RANGE,
    errors.RecordTooLarge: RECORD_TOO_LARGE,
    errors.NotAuthorized: WireCode(403, 40301, "not_authorized"),
    errors.NotAuthenticated: WireCode(401, 40101, "not_authenticated"),
    errors.UserNotFound: WireCode(404, 40406, "user_not_found"),
    errors.UserExists: WireCode(409, 40908, "user_exists"),
    errors.LimitExceeded: TOO_BUSY,
    errors.PolicyViolated: POLICY_VIOLATED,
    errors.NotSupported: NOT_SUPPORTED,
    errors.UnreadableRecord: WireCode(500, 50002, "unreadable_record"),
    errors.DamagedLog: WireCode(500, 50003, "damaged_log"),
    errors.ShuttingDown: SHUTTING_DOWN,
    errors.StorageFull: WireCode(503, 50302, "storage_full"),
    errors.StorageFailed: WireCode(503, 50303, "storage_failed"),
}


def wire_code(error: errors.BrokerError) -> WireCode:
    """Return the wire code of a broker error; an error class of a plug-in has the code of its
    nearest base.
    """
    return next(WIRE_CODES[kind] for kind in type(error).__mro__ if kind in WIRE_CODES)
