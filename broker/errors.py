"""Every error that the broker hands to a protocol adapter.

Each adapter's `errors.py` maps each class to a wire code.

BrokerError
 +- TopicNotFound, PartitionNotFound, NamespaceNotFound, SubscriptionNotFound
 +- TopicExists, NamespaceExists, InvalidName, InvalidRequest, NotSupported
 +- OffsetOutOfRange, RecordTooLarge, CorruptBatch, UnreadableRecord, DamagedLog
 +- SubscriptionBusy, ProducerBusy, ProducerFenced, TopicInUse, TopicTerminated
 +- NotAuthenticated, NotAuthorized, UserNotFound, UserExists
 +- LimitExceeded, PolicyViolated, StorageFull, StorageFailed, ShuttingDown
 +- Conflict, NotOwner, Unanswered
"""


class BrokerError(Exception):
    """Base of all broker errors; a failed request answers that request and nothing else."""


class TopicNotFound(BrokerError):
    """The topic does not exist, and this request does not create the topic."""


class PartitionNotFound(BrokerError):
    """The topic exists, the partition number does not."""


class NamespaceNotFound(BrokerError):
    """No such tenant and namespace (Iggy: stream)."""


class SubscriptionNotFound(BrokerError):
    """No such subscription (Kafka group, Iggy consumer) on that topic."""


class TopicExists(BrokerError):
    """A topic of that name, or of that client-chosen id, already exists."""


class NamespaceExists(BrokerError):
    """A namespace of that name, or of that client-chosen id, already exists."""


class InvalidName(BrokerError):
    """A topic, namespace or subscription name breaks the naming rules."""


class InvalidRequest(BrokerError):
    """Well-formed bytes with a meaningless request."""


class NotSupported(BrokerError):
    """Known to the protocol, not served here (yet)."""


class OffsetOutOfRange(BrokerError):
    """The requested offset is below the log start or above the high watermark."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class RecordTooLarge(BrokerError):
    """A record exceeds the limit of the listener that received the record."""


class CorruptBatch(BrokerError):
    """The client's bytes fail their checksum or cannot be parsed."""


class UnreadableRecord(BrokerError):
    """A stored record cannot be opened for readers of another protocol: the record is encrypted, or
    its compression is unknown here.
    """


class DamagedLog(BrokerError):
    """The stored bytes are damaged at this place."""


class SubscriptionBusy(BrokerError):
    """The subscription is in use in a way that excludes this use."""


class ProducerBusy(BrokerError):
    """A producer of that name, or an exclusive producer, is connected."""


class ProducerFenced(BrokerError):
    """A newer producer has taken over."""


class TopicInUse(BrokerError):
    """Not possible while clients use the topic."""


class TopicTerminated(BrokerError):
    """The topic was terminated: its records can still be read, but new records are refused."""


class Conflict(BrokerError):
    """Another change of the catalogue came first: this change was based on an older state."""


class NotOwner(BrokerError):
    """Another broker owns the topic or the catalogue. Nothing was done: the caller may ask the
    owner, and again after a pause.
    """

    def __init__(self, text: str, node_id: int = 0, *, is_unowned: bool = False) -> None:
        """`node_id` is the owner's number, 0 if unknown now. `is_unowned`: this broker knows of no
        owner, so another try makes sense only after news of owners.
        """
        super().__init__(text)
        self.node_id = node_id
        self.is_unowned = is_unowned


class Unanswered(BrokerError):
    """The asked broker did not answer a request for a change, or the owner of a changed topic has
    not followed the change. The change may have been made, so the caller must not ask again.
    """


class NotAuthorized(BrokerError):
    """The client lacks the permission, or has not logged in."""


class NotAuthenticated(BrokerError):
    """The client's login failed; a wrong name and a wrong password give the same text."""


class UserNotFound(BrokerError):
    """No such user, or no such token of that user."""


class UserExists(BrokerError):
    """A user, or a token of that user, has this name already."""


class LimitExceeded(BrokerError):
    """A named limit, or a limit of the settings, was reached."""


class PolicyViolated(BrokerError):
    """A setting of the topic or namespace forbids the request."""


class StorageFull(BrokerError):
    """The disk is full or read-only; reads continue."""


class StorageFailed(BrokerError):
    """A write or sync failed permanently; the broker is stopping."""


class ShuttingDown(BrokerError):
    """The broker is stopping and accepts no new work."""
