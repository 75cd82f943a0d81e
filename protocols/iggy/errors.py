"""Iggy's error numbers, and the number for each broker error. Knows no layout: `dialects.py` frames
an error.

Numbers are those of the crate `iggy` 0.5 to 0.11 (core `error.rs`). The numbers below 3000 that are
used here have the same meaning in the oldest dialect.
"""

import enum

from braidlog.broker import errors


class ErrorCode(enum.IntEnum):
    """Status of a refused request."""

    ERROR = 1
    INVALID_COMMAND = 3
    INVALID_FORMAT = 4
    FEATURE_UNAVAILABLE = 5
    DISCONNECTED = 8
    RESOURCE_NOT_FOUND = 20
    UNAUTHENTICATED = 40
    UNAUTHORIZED = 41
    INVALID_CREDENTIALS = 42
    INVALID_USERNAME = 43
    INVALID_PASSWORD = 44
    INVALID_USER_STATUS = 45
    USER_ALREADY_EXISTS = 46
    USER_INACTIVE = 47
    CANNOT_DELETE_USER = 48
    CANNOT_CHANGE_PERMISSIONS = 49
    INVALID_TOKEN_NAME = 50
    TOKEN_ALREADY_EXISTS = 51
    TOKENS_LIMIT_REACHED = 52
    INVALID_TOKEN = 53
    TOKEN_EXPIRED = 54
    USERS_LIMIT_REACHED = 55
    HISTORY_UNAVAILABLE = 87
    NOT_PRIMARY = 89
    DEFERRED_POLLS_LIMIT_REACHED = 90
    PRODUCER_SEQUENCE_OUT_OF_ORDER = 92
    PRODUCER_EPOCH_FENCED = 93
    PRODUCER_UNKNOWN = 94
    PRODUCER_NEEDS_PARTITION = 95
    CLIENT_NOT_FOUND = 100
    CANNOT_PARSE_SLICE = 204
    CONNECTION_CLOSED = 206
    STREAM_ID_NOT_FOUND = 1009
    STREAM_NAME_NOT_FOUND = 1010
    STREAM_ID_ALREADY_EXISTS = 1011
    STREAM_NAME_ALREADY_EXISTS = 1012
    INVALID_STREAM_NAME = 1013
    INVALID_STREAM_ID = 1014
    INVALID_TOPIC_SIZE = 1019
    TOPIC_ID_NOT_FOUND = 2010
    TOPIC_NAME_NOT_FOUND = 2011
    TOPIC_ID_ALREADY_EXISTS = 2012
    TOPIC_NAME_ALREADY_EXISTS = 2013
    INVALID_TOPIC_NAME = 2014
    INVALID_REPLICATION_FACTOR = 2018
    PARTITION_RESIZE_DISABLED = 2023
    TOO_MANY_PARTITIONS = 2015
    INVALID_TOPIC_ID = 2016
    PARTITION_NOT_FOUND = 3007
    NO_PARTITIONS = 3008
    CONSUMER_OFFSET_NOT_FOUND = 3021
    INVALID_MESSAGES_COUNT = 4009
    CANNOT_APPEND_MESSAGE = 4010
    CANNOT_READ_MESSAGE = 4011
    TOO_BIG_HEADERS_PAYLOAD = 4017
    TOO_BIG_MESSAGE_PAYLOAD = 4022
    INVALID_MESSAGE_CHECKSUM = 4027
    NON_ZERO_OFFSET = 4031
    NON_ZERO_TIMESTAMP = 4032
    INVALID_BATCH_CHECKSUM = 4039
    UNSUPPORTED_OPTION_KEY = 4041
    INVALID_OPTION_VALUE = 4042
    OPTIONS_BLOCK_TOO_LARGE = 4043
    INVALID_OFFSET = 4100
    OPTION_NOT_UPDATABLE = 4103
    OPTION_NOT_RESETTABLE = 4104
    STREAM_ENCRYPTION_UNAVAILABLE = 4106
    GROUP_ID_NOT_FOUND = 5000
    GROUP_ID_ALREADY_EXISTS = 5001
    INVALID_GROUP_ID = 5002
    GROUP_NAME_NOT_FOUND = 5003
    GROUP_NAME_ALREADY_EXISTS = 5004
    INVALID_GROUP_NAME = 5005
    GROUP_MEMBER_NOT_FOUND = 5006
    GROUP_PARTITION_NOT_OWNED = 5009
    TOO_MANY_GROUPS = 5010
    INVALID_SESSION = 14001


class Refusal(Exception):
    """A request is refused for a reason that has a number of its own in Iggy."""

    def __init__(self, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or code.name.lower().replace("_", " "))
        self.code = code


class Absent(Refusal):
    """The named resource does not exist: an error for old clients, an empty OK for clients since
    crate 0.6.10.
    """


WIRE_CODES: dict[type[errors.BrokerError], ErrorCode] = {
    errors.BrokerError: ErrorCode.ERROR,
    errors.TopicNotFound: ErrorCode.TOPIC_ID_NOT_FOUND,
    errors.PartitionNotFound: ErrorCode.PARTITION_NOT_FOUND,
    errors.NamespaceNotFound: ErrorCode.STREAM_ID_NOT_FOUND,
    errors.SubscriptionNotFound: ErrorCode.CONSUMER_OFFSET_NOT_FOUND,
    errors.TopicExists: ErrorCode.TOPIC_NAME_ALREADY_EXISTS,
    errors.NamespaceExists: ErrorCode.STREAM_NAME_ALREADY_EXISTS,
    errors.InvalidName: ErrorCode.INVALID_FORMAT,
    errors.InvalidRequest: ErrorCode.INVALID_COMMAND,
    errors.NotSupported: ErrorCode.FEATURE_UNAVAILABLE,
    errors.OffsetOutOfRange: ErrorCode.INVALID_OFFSET,
    errors.RecordTooLarge: ErrorCode.TOO_BIG_MESSAGE_PAYLOAD,
    errors.CorruptBatch: ErrorCode.INVALID_COMMAND,
    errors.UnreadableRecord: ErrorCode.CANNOT_READ_MESSAGE,
    errors.DamagedLog: ErrorCode.CANNOT_READ_MESSAGE,
    errors.SubscriptionBusy: ErrorCode.ERROR,
    errors.ProducerBusy: ErrorCode.CANNOT_APPEND_MESSAGE,
    errors.ProducerFenced: ErrorCode.CANNOT_APPEND_MESSAGE,
    errors.TopicInUse: ErrorCode.ERROR,
    errors.TopicTerminated: ErrorCode.CANNOT_APPEND_MESSAGE,
    errors.Conflict: ErrorCode.ERROR,
    errors.NotOwner: ErrorCode.ERROR,
    # The command may have been carried out, and a repeated DELETE_PARTITIONS removes more
    # partitions. Rust's client, since crate 0.6, repeats a command after Disconnected (8),
    # EmptyResponse (304), and lately TcpError (31) too, but not after this error.
    errors.Unanswered: ErrorCode.CONNECTION_CLOSED,
    errors.NotAuthorized: ErrorCode.UNAUTHORIZED,
    errors.NotAuthenticated: ErrorCode.INVALID_CREDENTIALS,
    errors.UserNotFound: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UserExists: ErrorCode.USER_ALREADY_EXISTS,
    errors.LimitExceeded: ErrorCode.ERROR,
    errors.PolicyViolated: ErrorCode.ERROR,
    errors.StorageFull: ErrorCode.CANNOT_APPEND_MESSAGE,
    errors.StorageFailed: ErrorCode.CANNOT_APPEND_MESSAGE,
    # Clients from crate 0.6 on reconnect and resend after this error, which is safe: the command
    # was not carried out.
    errors.ShuttingDown: ErrorCode.DISCONNECTED,
}


def wire_code(error: errors.BrokerError) -> ErrorCode:
    """Return the number of an error, or of the nearest base class that has a number: a plug-in may
    define subclasses.
    """
    return next(WIRE_CODES[kind] for kind in type(error).__mro__ if kind in WIRE_CODES)
