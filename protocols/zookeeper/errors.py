"""ZooKeeper's error codes, and broker errors as codes: a table. Knows no request.

Only codes that clients of 3.4 know are used: the Java client fails on any other.
"""

import enum

from braidlog.broker import errors


class ZkCode(enum.IntEnum):
    """Error codes on the wire (`KeeperException.Code`), as far as they are used here."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    UNIMPLEMENTED = -6
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

    def __init__(self, code: ZkCode, text: str = "") -> None:
        super().__init__(text or code.name)
        self.code = code


WIRE_CODES: dict[type[errors.BrokerError], ZkCode] = {
    errors.BrokerError: ZkCode.SYSTEM_ERROR,
    errors.TopicNotFound: ZkCode.NO_NODE,
    errors.PartitionNotFound: ZkCode.NO_NODE,
    errors.NamespaceNotFound: ZkCode.NO_NODE,
    errors.SubscriptionNotFound: ZkCode.NO_NODE,
    errors.TopicExists: ZkCode.NODE_EXISTS,
    errors.NamespaceExists: ZkCode.NODE_EXISTS,
    errors.InvalidName: ZkCode.BAD_ARGUMENTS,
    errors.InvalidRequest: ZkCode.BAD_ARGUMENTS,
    errors.NotSupported: ZkCode.UNIMPLEMENTED,
    errors.OffsetOutOfRange: ZkCode.BAD_ARGUMENTS,
    errors.RecordTooLarge: ZkCode.BAD_ARGUMENTS,
    errors.CorruptBatch: ZkCode.BAD_ARGUMENTS,
    errors.UnreadableRecord: ZkCode.SYSTEM_ERROR,
    errors.DamagedLog: ZkCode.SYSTEM_ERROR,
    errors.SubscriptionBusy: ZkCode.NOT_EMPTY,
    errors.ProducerBusy: ZkCode.SYSTEM_ERROR,
    errors.ProducerFenced: ZkCode.SYSTEM_ERROR,
    errors.TopicInUse: ZkCode.NOT_EMPTY,
    errors.TopicTerminated: ZkCode.BAD_ARGUMENTS,
    errors.Conflict: ZkCode.BAD_VERSION,
    errors.NotOwner: ZkCode.CONNECTION_LOSS,
    errors.Unanswered: ZkCode.CONNECTION_LOSS,  # Clients repeat a request after no other error.
    errors.NotAuthorized: ZkCode.NO_AUTH,
    errors.NotAuthenticated: ZkCode.AUTH_FAILED,
    errors.UserNotFound: ZkCode.SYSTEM_ERROR,
    errors.UserExists: ZkCode.SYSTEM_ERROR,
    errors.LimitExceeded: ZkCode.SYSTEM_ERROR,
    errors.PolicyViolated: ZkCode.SYSTEM_ERROR,
    errors.StorageFull: ZkCode.SYSTEM_ERROR,
    errors.StorageFailed: ZkCode.SYSTEM_ERROR,
    errors.ShuttingDown: ZkCode.CONNECTION_LOSS,
}


def wire_code(error: errors.BrokerError) -> ZkCode:
    """Return the code of an error, or of its nearest base for a class that a plug-in defines."""
    return next(WIRE_CODES[kind] for kind in type(error).__mro__ if kind in WIRE_CODES)
