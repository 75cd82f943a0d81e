"""Every limit of the Pulsar listener on what one connection may ask for, with its reason.

What a client is told when it reaches one is in docs/limits.md.
"""

from typing import Final

# Commands that wait for one producer or consumer. Clients send them one after the other; a client
# that does not is slowed by the broker's answers, never by its memory.
LANE_MAX: Final = 1000
# Producers and consumers with commands that wait, each a task: beyond it nothing more is read from
# the client until one of them is done. Java opens 1000 partitions at once.
LANES_MAX: Final = 1000
# A client opens all partitions of a topic over one connection, and a topic has up to 10,000.
PRODUCERS_MAX: Final = 10_000
CONSUMERS_MAX: Final = 10_000

# Watching which topics a namespace has. A consumer by pattern has one watcher, and a program a few
# such consumers.
WATCHERS_MAX: Final = 100
# Of all connections: each may have a compiled pattern of its own, of PATTERN_MEMORY_BYTES_MAX.
ALL_WATCHERS_MAX: Final = 1000
# What a watcher remembers whose client may see a part of the namespace only; 100 bytes each.
SEEN_NAMES_MAX: Final = 1000
PATTERN_CHARACTERS_MAX: Final = 50  # Apache's default.
PATTERN_MEMORY_BYTES_MAX: Final = 128 * 1024
# A name takes at most as long as it has bytes times this; `\p{L}*` needs 1,200.
PATTERN_INSTRUCTIONS_MAX: Final = 2000
# Topics of a namespace that have changed, for connections that do not take what they are to be
# told; kept in short, however many partitions one has.
CHANGES_KEPT_MAX: Final = 10_000
# Names that a watcher goes through before it tells of them: some 10 ms of one turn.
CHANGED_NAMES_TOGETHER: Final = 10_000
# Names in one WATCH_TOPIC_UPDATE: a name has up to 300 bytes, a frame some MB.
UPDATED_NAMES_MAX: Final = 5000
# Changes that come soon after others are told together: each time all names are looked at.
UPDATE_PAUSE_S: Final = 0.1
