"""Every error that the broker hands to a protocol adapter.

Each adapter's `errors.py` maps each class to a wire code.

BrokerError
 +- TopicNotFound, PartitionNotFound, NamespaceNotFound, SubscriptionNotFound
 +- TopicExists, NamespaceExists, InvalidName, InvalidRequest, NotSupported
 +- OffsetOutOfRange, RecordTooLarge, CorruptBatch, UnreadableRecord, DamagedLog
 +- SubscriptionBusy, ProducerBusy, ProducerFenced, TopicInUse, TopicTerminated
 +- NotAuthenticated, NotAuthorized, UserNotFound, UserExists
 +- LimitExceeded, StorageFull, StorageFailed, ShuttingDown
 +- Conflict, NotOwner, Unanswered
"""


class BrokerError(Exception):
    """Base of all; a failed request answers that request and nothing else."""


class TopicNotFound(BrokerError):
    """No such topic, and it is not to be created by this request."""


class PartitionNotFound(BrokerError):
    """The topic exists, the partition number does not."""


class NamespaceNotFound(BrokerError):
    """No such tenant and namespace (Iggy: stream)."""


class SubscriptionNotFound(BrokerError):
    """No such subscription (Kafka group, Iggy consumer) on that topic."""


class TopicExists(BrokerError):
    """A topic of that name, or of that client-chosen id, is there already."""


class NamespaceExists(BrokerError):
    """A namespace of that name, or of that client-chosen id, is there already."""


class InvalidName(BrokerError):
    """A topic, namespace or subscription name breaks the naming rules."""


class InvalidRequest(BrokerError):
    """Well-formed bytes that ask for something that makes no sense."""


class NotSupported(BrokerError):
    """Known to the protocol, not served here (yet)."""


class OffsetOutOfRange(BrokerError):
    """The offset asked for is below the log start or above the high watermark."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class RecordTooLarge(BrokerError):
    """A record is above the limit of the listener it came in by."""


class CorruptBatch(BrokerError):
    """What the client sent fails its checksum or cannot be parsed."""


class UnreadableRecord(BrokerError):
    """A stored record cannot be opened for readers of another protocol (encrypted, or compressed in
    a way that is not known here).
    """


class DamagedLog(BrokerError):
    """The stored bytes are damaged at this place."""


class SubscriptionBusy(BrokerError):
    """The subscription is in use in a way that excludes this one."""


class ProducerBusy(BrokerError):
    """A producer of that name is connected, or an exclusive one is."""


class ProducerFenced(BrokerError):
    """A newer producer has taken over."""


class TopicInUse(BrokerError):
    """Not possible while clients use the topic."""


class TopicTerminated(BrokerError):
    """The topic was terminated: its records can still be read, but it takes no more."""


class Conflict(BrokerError):
    """Another change of the catalogue came first: this one was based on an older state."""


class NotOwner(BrokerError):
    """Another broker owns the topic or the catalogue. Nothing was done: the caller may ask the
    owner, and again after a pause.
    """

    def __init__(self, text: str, node_id: int = 0, *, is_unowned: bool = False) -> None:
        """`node_id` is the owner's number, 0 if it is unknown now. `is_unowned`: this broker knows
        of no owner, so another try makes sense only after news of owners.
        """
        super().__init__(text)
        self.node_id = node_id
        self.is_unowned = is_unowned


class Unanswered(BrokerError):
    """The broker that was asked for a change did not answer. The change may have been made, so the
    caller must not ask for it again.
    """


class NotAuthorized(BrokerError):
    """The client may not do this, or has not said who it is."""


class NotAuthenticated(BrokerError):
    """The client did not prove who it is; a wrong name and a wrong password give the same text."""


class UserNotFound(BrokerError):
    """No such user, or no such token of that user."""


class UserExists(BrokerError):
    """A user, or a token of that user, has this name already."""


class LimitExceeded(BrokerError):
    """A named limit, or one that the settings give, was reached."""


class StorageFull(BrokerError):
    """No space left on the disk, or it is read-only; reading goes on."""


class StorageFailed(BrokerError):
    """A write or sync failed for good; the broker is stopping."""


class ShuttingDown(BrokerError):
    """The broker is stopping and takes nothing new."""
