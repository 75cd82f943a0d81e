"""Broker errors to Pulsar's ServerError numbers: a table. Knows no command.

Clients differ in what they do with an error (Pulsar's C++ client retries UnknownError and
MetadataError until it times out, and fails at once on NotAllowedError), so a permanent refusal gets
a number that ends the attempt.
"""

from braidlog.broker import errors
from braidlog.broker.positions.backlog import BacklogFull
from braidlog.broker.topics.client_limits import EncryptionRequired
from braidlog.broker.topics.settings_table import QuotaPolicy
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError

WIRE_CODES: dict[type[errors.BrokerError], ServerError] = {
    errors.BrokerError: ServerError.UnknownError,
    errors.TopicNotFound: ServerError.TopicNotFound,
    errors.PartitionNotFound: ServerError.TopicNotFound,
    errors.NamespaceNotFound: ServerError.TopicNotFound,
    errors.SubscriptionNotFound: ServerError.SubscriptionNotFound,
    errors.TopicExists: ServerError.NotAllowedError,
    errors.NamespaceExists: ServerError.NotAllowedError,
    # C++ (Python, Node) retries InvalidTopicName until its timeout; on this all fail at once.
    errors.InvalidName: ServerError.NotAllowedError,
    errors.InvalidRequest: ServerError.MetadataError,
    errors.NotSupported: ServerError.NotAllowedError,
    errors.OffsetOutOfRange: ServerError.MetadataError,
    errors.RecordTooLarge: ServerError.NotAllowedError,
    errors.CorruptBatch: ServerError.ChecksumError,
    errors.UnreadableRecord: ServerError.NotAllowedError,
    errors.DamagedLog: ServerError.PersistenceError,
    errors.SubscriptionBusy: ServerError.ConsumerBusy,
    errors.ProducerBusy: ServerError.ProducerBusy,
    errors.ProducerFenced: ServerError.ProducerFenced,
    errors.TopicInUse: ServerError.NotAllowedError,
    errors.TopicTerminated: ServerError.TopicTerminatedError,
    # Clients look up the topic again.
    errors.Conflict: ServerError.ServiceNotReady,
    errors.NotOwner: ServerError.ServiceNotReady,
    errors.Unanswered: ServerError.ServiceNotReady,  # Lookups, and what follows, may be repeated.
    errors.NotAuthorized: ServerError.AuthorizationError,
    errors.NotAuthenticated: ServerError.AuthenticationError,
    errors.UserNotFound: ServerError.NotAllowedError,
    errors.UserExists: ServerError.NotAllowedError,
    errors.LimitExceeded: ServerError.TooManyRequests,
    errors.PolicyViolated: ServerError.NotAllowedError,
    EncryptionRequired: ServerError.MetadataError,
    BacklogFull: ServerError.ProducerBlockedQuotaExceededException,
    # Clients reconnect and send again, until there is space.
    errors.StorageFull: ServerError.PersistenceError,
    errors.StorageFailed: ServerError.PersistenceError,
    errors.ShuttingDown: ServerError.ServiceNotReady,
}


class CommandRefused(Exception):
    """Answer a request with this Pulsar error; for cases that no broker error covers."""

    def __init__(self, code: ServerError, text: str) -> None:
        super().__init__(text)
        self.code = code
        # An error may quote what a client sent, such as half a surrogate pair out of JSON.
        self.text = text.encode(errors="backslashreplace").decode()


def refusal(error: errors.BrokerError | CommandRefused) -> CommandRefused:
    """The error to send; an error class of a plug-in gets the number of its nearest base."""
    if isinstance(error, CommandRefused):
        return error
    if isinstance(error, BacklogFull) and error.policy is QuotaPolicy.HOLD:
        return CommandRefused(ServerError.ProducerBlockedQuotaExceededError, str(error))
    code = next(WIRE_CODES[kind] for kind in type(error).__mro__ if kind in WIRE_CODES)
    return CommandRefused(code, str(error))
