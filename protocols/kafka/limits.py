"""Limits of the Kafka listeners that tests lower; docs/limits.md lists the effect of each limit."""

from dataclasses import dataclass
from typing import Final

# In an answer of this size or more, large sets go straight from the file to the socket. A smaller
# answer is copied within the processor's cache, which costs less on processors that copy quickly
# (docs/benchmarks.md).
FETCH_IN_PLACE_BYTES_MIN: Final = 2 * 1024 * 1024


@dataclass(slots=True, frozen=True)
class KafkaLimits:
    """A broker's Kafka listeners take these from its `shared_states`."""

    in_place_bytes_min: int = FETCH_IN_PLACE_BYTES_MIN


KAFKA_LIMITS: Final = KafkaLimits()
