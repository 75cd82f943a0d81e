"""Every limit of the Pulsar listener on what one connection may ask for, with its reason.

docs/limits.md says what a client is told when it reaches one.
"""

from typing import Final

# Commands that wait for one producer or consumer. Clients send the next one once the last one is
# answered; the limit keeps one that does not from using up the broker's memory.
LANE_MAX: Final = 1000
# Producers and consumers with waiting commands, each a task. At this number nothing more is read
# from the client until one of them is done. Java opens 1000 partitions at once.
LANES_MAX: Final = 1000
# A client opens all partitions of a topic over one connection, and a topic has up to 10,000.
PRODUCERS_MAX: Final = 10_000
CONSUMERS_MAX: Final = 10_000

# Keys and values that a client gives a producer or consumer, kept for tools while it is open:
# Apache's limit for consumers. Those of a producer are not kept beyond it.
METADATA_BYTES_MAX: Final = 1024

# Watchers of a namespace's topics. A consumer by pattern has one, and a program has a few such
# consumers.
WATCHERS_MAX: Final = 100
# Of all connections: each may have a compiled pattern of its own, of PATTERN_MEMORY_BYTES_MAX.
ALL_WATCHERS_MAX: Final = 1000
# Names that a watcher remembers if its client may see only a part of the namespace; 100 bytes each.
SEEN_NAMES_MAX: Final = 1000
PATTERN_CHARACTERS_MAX: Final = 50  # Apache's default.
PATTERN_MEMORY_BYTES_MAX: Final = 128 * 1024
# The time to match a name is bounded by its bytes times this; `\p{L}*` needs 1,200.
PATTERN_INSTRUCTIONS_MAX: Final = 2000
# Changed topics of a namespace, kept for connections that are slow to take their updates; a change
# takes little memory however many partitions the topic has.
CHANGES_KEPT_MAX: Final = 10_000
# Names that a watcher goes through before it sends an update: some 10 ms of one turn.
CHANGED_NAMES_TOGETHER: Final = 10_000
# Names in one WATCH_TOPIC_UPDATE: a name has up to 300 bytes, a frame some MB.
UPDATED_NAMES_MAX: Final = 5000
# Pause between updates, so that changes in it are sent together: each update looks at all names.
UPDATE_PAUSE_S: Final = 0.1
