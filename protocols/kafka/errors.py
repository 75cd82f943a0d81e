"""Broker errors to Kafka error codes: a table. Knows no request.

Codes -1 to 20 are those of 0.8.2. Later codes are used if 0.8 has no equivalent: 0.8 clients
read an unknown code as -1, newer clients that speak 0.8 know it (Kafka protocol guide, "Error
codes").
"""

import enum

from braidlog.broker import errors


class Code(enum.IntEnum):
    """Error codes on the wire, as far as they are used here."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_FOR_PARTITION = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_SIZE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    CONSUMER_COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE = 45
    DUPLICATE_SEQUENCE = 46
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_NOT_FOUND = 70
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


class CodeRefused(Exception):
    """A request, or a part of a request, is refused with this code."""

    def __init__(self, code: Code, reason: str = "") -> None:
        super().__init__(code.name)
        self.code = code
        self.reason = reason  # for people, where the answer has room for a text


class GroupNotAuthorized(errors.NotAuthorized):
    """The client may not do this to a group; Kafka has a separate code for that."""


class UnknownTopicId(errors.TopicNotFound):
    """No topic of this listener has the id."""


class UnknownEpoch(errors.BrokerError):
    """The client knows a later leader than this broker does."""


class FencedEpoch(errors.BrokerError):
    """The client knows an earlier leader than the present leader."""


WIRE_CODES: dict[type[errors.BrokerError], Code] = {
    errors.BrokerError: Code.UNKNOWN,
    errors.TopicNotFound: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.PartitionNotFound: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NamespaceNotFound: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.SubscriptionNotFound: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: Code.TOPIC_ALREADY_EXISTS,
    errors.NamespaceExists: Code.UNKNOWN,
    errors.InvalidName: Code.INVALID_TOPIC,
    errors.InvalidRequest: Code.UNKNOWN,
    errors.NotSupported: Code.UNKNOWN,
    errors.OffsetOutOfRange: Code.OFFSET_OUT_OF_RANGE,
    errors.RecordTooLarge: Code.MESSAGE_SIZE_TOO_LARGE,
    errors.CorruptBatch: Code.INVALID_MESSAGE,
    # 0.8's own answer to what it cannot unpack; clients raise it instead of retrying for ever.
    errors.UnreadableRecord: Code.UNKNOWN,
    errors.DamagedLog: Code.INVALID_MESSAGE,
    errors.SubscriptionBusy: Code.UNKNOWN,
    errors.ProducerBusy: Code.UNKNOWN,
    errors.ProducerFenced: Code.INVALID_PRODUCER_EPOCH,
    errors.TopicInUse: Code.UNKNOWN,
    errors.TopicTerminated: Code.POLICY_VIOLATION,
    # Retriable: the client asks for metadata again.
    errors.Conflict: Code.LEADER_NOT_AVAILABLE,
    errors.NotOwner: Code.NOT_LEADER_FOR_PARTITION,
    errors.Unanswered: Code.REQUEST_TIMED_OUT,  # Kafka's own code for an unknown outcome.
    errors.NotAuthorized: Code.TOPIC_AUTHORIZATION_FAILED,
    UnknownTopicId: Code.UNKNOWN_TOPIC_ID,
    UnknownEpoch: Code.UNKNOWN_LEADER_EPOCH,
    FencedEpoch: Code.FENCED_LEADER_EPOCH,
    GroupNotAuthorized: Code.GROUP_AUTHORIZATION_FAILED,
    errors.NotAuthenticated: Code.SASL_AUTHENTICATION_FAILED,
    errors.UserNotFound: Code.UNKNOWN,
    errors.UserExists: Code.UNKNOWN,
    errors.LimitExceeded: Code.POLICY_VIOLATION,
    errors.PolicyViolated: Code.POLICY_VIOLATION,
    # Retriable for clients that know it: producing goes on once there is space again.
    errors.StorageFull: Code.STORAGE_ERROR,
    errors.StorageFailed: Code.STORAGE_ERROR,
    # Retriable for every client: it asks for metadata again and retries elsewhere, or later.
    errors.ShuttingDown: Code.NOT_LEADER_FOR_PARTITION,
}


def wire_code(error: errors.BrokerError) -> Code:
    """The code of an error, or of its nearest base for a class that a plug-in defines."""
    return next(WIRE_CODES[kind] for kind in type(error).__mro__ if kind in WIRE_CODES)
