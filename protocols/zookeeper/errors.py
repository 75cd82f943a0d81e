"""ZooKeeper's error codes, and broker errors as codes: a table. Knows no request.

Only codes that clients of 3.4 know are used: the Java client fails on any other.
"""

import enum

from braidlog.broker import errors


class Code(enum.IntEnum):
    """Error codes on the wire (`KeeperException.Code`), as far as they are used here."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115


class NodeError(Exception):
    """A request is refused with this code."""

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(text or code.name)
        self.code = code


WIRE_CODES: dict[type[errors.BrokerError], Code] = {
    errors.BrokerError: Code.SYSTEM_ERROR,
    errors.TopicNotFound: Code.NO_NODE,
    errors.PartitionNotFound: Code.NO_NODE,
    errors.NamespaceNotFound: Code.NO_NODE,
    errors.SubscriptionNotFound: Code.NO_NODE,
    errors.TopicExists: Code.NODE_EXISTS,
    errors.NamespaceExists: Code.NODE_EXISTS,
    errors.InvalidName: Code.BAD_ARGUMENTS,
    errors.InvalidRequest: Code.BAD_ARGUMENTS,
    errors.NotSupported: Code.UNIMPLEMENTED,
    errors.OffsetOutOfRange: Code.BAD_ARGUMENTS,
    errors.RecordTooLarge: Code.BAD_ARGUMENTS,
    errors.CorruptBatch: Code.BAD_ARGUMENTS,
    errors.UnreadableRecord: Code.SYSTEM_ERROR,
    errors.DamagedLog: Code.SYSTEM_ERROR,
    errors.SubscriptionBusy: Code.NOT_EMPTY,
    errors.ProducerBusy: Code.SYSTEM_ERROR,
    errors.ProducerFenced: Code.SYSTEM_ERROR,
    errors.TopicInUse: Code.NOT_EMPTY,
    errors.TopicTerminated: Code.BAD_ARGUMENTS,
    errors.Conflict: Code.BAD_VERSION,
    errors.NotOwner: Code.CONNECTION_LOSS,
    errors.Unanswered: Code.OPERATION_TIMEOUT,
    errors.NotAuthorized: Code.NO_AUTH,
    errors.NotAuthenticated: Code.AUTH_FAILED,
    errors.UserNotFound: Code.SYSTEM_ERROR,
    errors.UserExists: Code.SYSTEM_ERROR,
    errors.LimitExceeded: Code.SYSTEM_ERROR,
    errors.PolicyViolated: Code.SYSTEM_ERROR,
    errors.StorageFull: Code.SYSTEM_ERROR,
    errors.StorageFailed: Code.SYSTEM_ERROR,
    errors.ShuttingDown: Code.CONNECTION_LOSS,
}


def wire_code(error: errors.BrokerError) -> Code:
    """Return the code of an error, or of its nearest base for a class that a plug-in defines."""
    return next(WIRE_CODES[kind] for kind in type(error).__mro__ if kind in WIRE_CODES)
