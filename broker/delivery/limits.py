"""Limits of dispatchers: a value object, so that a test hands in smaller limits."""

from dataclasses import dataclass
from typing import Final

# Per subscription and partition: a change of the position looks at all consumers.
CONSUMERS_MAX: Final = 1000
# Entries that a consumer takes before the next consumer has its turn, as in Apache Pulsar.
TURN_ENTRIES_SHARED: Final = 20
TURN_ENTRIES: Final = 200  # The same for a single consumer: a send for all entries.
# Messages of a Key_Shared subscription whose consumer is decided before the first is sent: eight
# for each of 1,000 consumers. Deciding takes some 4 us a message, in turns of TURN_ENTRIES.
SHARED_OUT_MAX: Final = 8000
# A turn ends with the entry that reaches this size: the connection's buffer holds 1 MiB.
TURN_BYTES: Final = 256 * 1024
READ_AHEAD_BYTES: Final = 512 * 1024  # A dispatcher's read; small reads cost half the throughput.
# The same for a Key_Shared subscription with many consumers: some eight small entries for each of
# 1,000 consumers.
READ_AHEAD_BYTES_MANY: Final = 1024 * 1024
# The same where records of another format are converted to entries: a read converts a limited
# number (`entry_reads.FOREIGN_RECORDS_MAX`) and would read the rest again.
READ_AHEAD_BYTES_FOREIGN: Final = 128 * 1024
# More records than these, or a read of that size, are delivered in a separate turn.
AT_ONCE_RECORDS_MAX: Final = 100
READ_AT_ONCE_BYTES: Final = 64 * 1024
# A read of entries that are sent again, if the entries lie close together. All entries found are
# sent in a turn of the loop: some ms.
READ_AGAIN_BYTES: Final = 64 * 1024
READY_LANES_MAX: Final = 100  # Lanes with waiting entries that a turn visits.
# Entries given back in a turn of the loop: some 10 ms if each has its own key.
RETURNED_TOGETHER: Final = 2000
# Delayed entries, some 50 bytes each; at the limit, reading ahead stops until some are due.
DELAYED_MAX: Final = 1_000_000
DUE_MAX: Final = 1000  # Delayed entries that are due are released this many at a time.
# Unacknowledged messages that a consumer may hold, as in Apache Pulsar; delivery resumes at half of
# that.
UNACKED_MAX_CONSUMER: Final = 50_000
UNACKED_MAX_SUBSCRIPTION: Final = 200_000  # All consumers together, likewise.
# Entries that may wait for their key's consumer before the other consumers have to wait, too;
# Apache's keySharedLookAheadMsgInReplayThresholdPerSubscription.
LOOK_AHEAD_MAX: Final = 20_000
# Delivered entries whose record counts are remembered for acks; older entries are looked up.
DELIVERED_MAX: Final = 100_000


@dataclass(slots=True, frozen=True, kw_only=True)
class DeliveryLimits:
    """Limits of a dispatcher; each field has the meaning of the constant of its name."""

    consumers_max: int = CONSUMERS_MAX
    turn_entries_shared: int = TURN_ENTRIES_SHARED
    turn_entries: int = TURN_ENTRIES
    shared_out_max: int = SHARED_OUT_MAX
    turn_bytes: int = TURN_BYTES
    read_ahead_bytes: int = READ_AHEAD_BYTES
    read_ahead_bytes_many: int = READ_AHEAD_BYTES_MANY
    read_ahead_bytes_foreign: int = READ_AHEAD_BYTES_FOREIGN
    at_once_records_max: int = AT_ONCE_RECORDS_MAX
    read_at_once_bytes: int = READ_AT_ONCE_BYTES
    read_again_bytes: int = READ_AGAIN_BYTES
    ready_lanes_max: int = READY_LANES_MAX
    returned_together: int = RETURNED_TOGETHER
    delayed_max: int = DELAYED_MAX
    due_max: int = DUE_MAX
    unacked_max_consumer: int = UNACKED_MAX_CONSUMER
    unacked_max_subscription: int = UNACKED_MAX_SUBSCRIPTION
    look_ahead_max: int = LOOK_AHEAD_MAX
    delivered_max: int = DELIVERED_MAX
