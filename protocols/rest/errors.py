"""Broker errors, and refusals of the HTTP layer's own, as answers. Knows no route.

Numbers are those of PIP-64's error list where it has one (it took them from the Kafka REST proxy),
our own in the same pattern elsewhere: the HTTP status and two digits. `code` is the stable name
that programs test.
"""

from dataclasses import dataclass, field

from broker import errors


@dataclass(frozen=True, slots=True)
class WireCode:
    """How one kind of error is told: HTTP status, number and stable name."""

    status: int
    number: int
    code: str


@dataclass(slots=True)
class Refused(Exception):
    """A request that this listener refuses before the broker is asked."""

    wire: WireCode
    message: str
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


BAD_BODY = WireCode(400, 40001, "bad_body")
BAD_QUERY = WireCode(400, 40002, "bad_query")
NO_SUCH_PATH = WireCode(404, 40400, "no_such_path")
METHOD_NOT_ALLOWED = WireCode(405, 40500, "method_not_allowed")
BODY_TIMEOUT = WireCode(408, 40801, "body_timeout")
INVALID_NAME = WireCode(412, 41201, "invalid_name")
BODY_TOO_LARGE = WireCode(413, 41301, "body_too_large")
NOT_JSON = WireCode(415, 41501, "not_json")
TOO_BUSY = WireCode(429, 42901, "limit_exceeded")
INTERNAL = WireCode(500, 50001, "internal_error")
SHUTTING_DOWN = WireCode(503, 50301, "shutting_down")

WIRE_CODES: dict[type[errors.BrokerError], WireCode] = {
    errors.TopicNotFound: WireCode(404, 40401, "topic_not_found"),
    errors.PartitionNotFound: WireCode(404, 40402, "partition_not_found"),
    errors.SubscriptionNotFound: WireCode(404, 40404, "group_not_found"),
    errors.NamespaceNotFound: WireCode(404, 40405, "namespace_not_found"),
    errors.TopicExists: WireCode(409, 40901, "topic_exists"),
    errors.SubscriptionBusy: WireCode(409, 40903, "group_busy"),
    errors.NamespaceExists: WireCode(409, 40904, "namespace_exists"),
    errors.ProducerBusy: WireCode(409, 40905, "producer_busy"),
    errors.ProducerFenced: WireCode(409, 40906, "producer_fenced"),
    errors.TopicInUse: WireCode(409, 40907, "topic_in_use"),
    errors.InvalidName: INVALID_NAME,
    errors.InvalidRequest: WireCode(422, 42200, "invalid_request"),
    errors.CorruptBatch: WireCode(422, 42207, "corrupt_batch"),
    errors.OffsetOutOfRange: WireCode(416, 41601, "offset_out_of_range"),
    errors.RecordTooLarge: WireCode(413, 41302, "record_too_large"),
    errors.NotAuthorized: WireCode(403, 40301, "not_authorized"),
    errors.NotAuthenticated: WireCode(401, 40101, "not_authenticated"),
    errors.UserNotFound: WireCode(404, 40406, "user_not_found"),
    errors.UserExists: WireCode(409, 40908, "user_exists"),
    errors.LimitExceeded: TOO_BUSY,
    errors.NotSupported: WireCode(501, 50101, "not_supported"),
    errors.UnreadableRecord: WireCode(500, 50002, "unreadable_record"),
    errors.DamagedLog: WireCode(500, 50003, "damaged_log"),
    errors.ShuttingDown: SHUTTING_DOWN,
    errors.StorageFull: WireCode(503, 50302, "storage_full"),
    errors.StorageFailed: WireCode(503, 50303, "storage_failed"),
}


def wire_code(error: errors.BrokerError) -> WireCode:
    """How this broker error is told."""
    return WIRE_CODES[type(error)]
