"""Limits of the HTTP listener, with their reasons. `docs/limits.md` shows them to users.

Limits that an operator may want to change are options in `options.py` instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

KIB = 1024
MIB = 1024 * KIB

# Messages of a produce request; clients should split larger requests.
MESSAGES_MAX = 10_000
# Key, value and properties of a record together: the limit of Pulsar's frames.
RECORD_BYTES_MAX = 5 * MIB
# All records of a request. Omitted Avro fields get their defaults, of any size, and a number of two
# characters becomes eight bytes. The limit is the larger of this minimum and this multiple of the
# request's size.
RECORDS_BYTES_MIN, RECORDS_EXPANSION = 16 * MIB, 4
PROPERTIES_MAX = 1000  # Of a message; a property costs a hundred bytes in memory.
# Messages checked or shown between two checkpoints: some ms of the loop.
TURN_MESSAGES = 100
# Messages between two turns for ready clients of other protocols: a tenth of a millisecond.
PIECE_MESSAGES = 20
# A larger body with slow values (Avro) is read in a thread.
INLINE_SLOW_BYTES = 4 * KIB
# A larger body is always read in a thread: 64 KiB of JSON take some ms, 10 MiB a second.
INLINE_BODY_BYTES = 64 * KIB
PROPERTIES_BYTES_INLINE = 64 * KIB  # Larger properties of a message are counted before parsing.

# All request bodies in memory at the same time; a body up to the small size is always accepted.
BODIES_BYTES_ALL_MAX = 64 * MIB
BODY_BYTES_SMALL = 64 * KIB
# Requests that wait for the rest of a body. They do not count as running; otherwise a few slow
# clients would block all others. Received parts of small bodies are not in the budget above.
UPLOADS_MAX = 1000
# Bodies served at the same time, except small bodies: JSON becomes objects of thirty times its
# size, and Python keeps half of a burst's memory. Further requests wait this long and are then
# refused.
SERVED_BYTES_MAX, SERVED_WAIT_S = 512 * KIB, 20.0
SERVED_BYTES_SMALL = 16 * KIB
# Reads and fetches that wait for records; they do not count as running requests.
WAITING_MAX = 5000
TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX = 3000, 60_000
READ_MESSAGES_DEFAULT, READ_MESSAGES_MAX = 100, 10_000
READ_BYTES_DEFAULT, READ_BYTES_MAX = MIB, 10 * MIB
# Memory of an answer, as a multiple of its keys and values: the bytes, their text and its JSON.
ANSWER_EXPANSION = 4
# Messages with a larger record are made in a thread: 62 MiB took a turn of a quarter of a second.
LARGE_RECORD_BYTES = MIB
# JSON encoded between two checkpoints and sent at once: a millisecond.
JSON_PIECE_BYTES = 256 * KIB

# Bytes of stored batches in an answer of the raw log: few requests, small share of the output
# budget.
RAW_BYTES_DEFAULT, RAW_BYTES_MAX = MIB, 4 * MIB

ACK_TIMEOUT_MS_DEFAULT = 60_000
ACK_TIMEOUT_MS_MIN, ACK_TIMEOUT_MS_MAX = 1000, 86_400_000
# Unacknowledged messages of a consumer over HTTP; each costs some hundred bytes.
CONSUMER_UNACKED_MAX = 10_000
CONSUMER_PARTITIONS_MAX = 1000  # In delivery each partition is a separate consumer.
NAME_CHARACTERS_MAX = 255  # Names of subscriptions and consumers.
MESSAGE_IDS_MAX = 10_000  # In an acknowledgement.
# Of the statistics of all topics in Pulsar's admin API.
PARTITIONS_SHOWN_MAX: Final = 2000  # Some 2 KB each.
SUBSCRIPTIONS_SHOWN_MAX: Final = 10_000  # Of partitions.


@dataclass(slots=True, frozen=True)
class HttpLimits:
    """The limits that tests lower."""

    consumer_unacked: int = CONSUMER_UNACKED_MAX
    consumer_partitions: int = CONSUMER_PARTITIONS_MAX
    partitions_shown: int = PARTITIONS_SHOWN_MAX
    subscriptions_shown: int = SUBSCRIPTIONS_SHOWN_MAX


HTTP_LIMITS: Final = HttpLimits()


def limits_of(broker: Broker) -> HttpLimits:
    """Return the limits of a broker's HTTP listeners."""
    limits: HttpLimits = broker.shared_states.get("http", HTTP_LIMITS)
    return limits
