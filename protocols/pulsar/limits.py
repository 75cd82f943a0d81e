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
