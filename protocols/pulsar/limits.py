"""Every limit of the Pulsar listener per connection, with its reason.

docs/limits.md lists the error of each limit.
"""

from dataclasses import dataclass
from typing import Final

from braidlog.protocols.pulsar.machine import MESSAGE_BYTES_MAX

# Commands that wait for a producer or consumer. Clients send a command after the previous answer;
# the limit protects the broker's memory from clients that do not wait.
LANE_MAX: Final = 1000
# Producers and consumers with waiting commands, each a task. At this limit the broker stops reading
# from the client until a task is done. Java opens 1000 partitions at once.
LANES_MAX: Final = 1000
# A client opens all partitions of a topic over a single connection, and a topic has up to 10,000.
PRODUCERS_MAX: Final = 10_000
CONSUMERS_MAX: Final = 10_000

# Keys and values of a producer or consumer, kept for tools while the producer or consumer is open:
# Apache's limit for consumers. Longer metadata of a producer is not kept.
METADATA_BYTES_MAX: Final = 1024

# Watchers of a namespace's topics. A consumer by pattern has a watcher, and a program has few such
# consumers.
WATCHERS_MAX: Final = 100
# Watchers of all connections: each may have a compiled pattern of PATTERN_MEMORY_BYTES_MAX.
ALL_WATCHERS_MAX: Final = 1000
# Names that a watcher remembers if its client may see only a part of the namespace; 100 bytes each.
SEEN_NAMES_MAX: Final = 1000
PATTERN_CHARACTERS_MAX: Final = 50  # Apache's default.
PATTERN_MEMORY_BYTES_MAX: Final = 128 * 1024
# Instructions of a compiled pattern. The time to match a name is at most this times the name's
# bytes; `\p{L}*` needs 1,200.
PATTERN_INSTRUCTIONS_MAX: Final = 2000
# Changed topics of a namespace, kept for connections that are slow to take their updates; a change
# takes little memory however many partitions the topic has.
CHANGES_KEPT_MAX: Final = 10_000
# Names that a watcher checks before sending an update: some 10 ms of a turn.
CHANGED_NAMES_TOGETHER: Final = 10_000
# Names in a WATCH_TOPIC_UPDATE: a name has up to 300 bytes, a frame some MB.
UPDATED_NAMES_MAX: Final = 5000
# Pause between updates, to send changes together: each update reads all names.
UPDATE_PAUSE_S: Final = 0.1

# Seconds for a topic to have an owner: a lease and a takeover.
FIND_S: Final = 10.0


@dataclass(slots=True, frozen=True)
class PulsarLimits:
    """The limits that tests lower: of a connection, of a watcher, and of all watchers."""

    producers: int = PRODUCERS_MAX
    consumers: int = CONSUMERS_MAX
    watchers: int = WATCHERS_MAX
    all_watchers: int = ALL_WATCHERS_MAX
    topic_list_bytes: int = MESSAGE_BYTES_MAX
    seen_names: int = SEEN_NAMES_MAX
    changes_kept: int = CHANGES_KEPT_MAX
    changed_names_together: int = CHANGED_NAMES_TOGETHER
    updated_names: int = UPDATED_NAMES_MAX
    find_s: float = FIND_S


PULSAR_LIMITS: Final = PulsarLimits()
