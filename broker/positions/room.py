"""Limits of subscriptions and cursors: names, and numbers in a topic and in all topics."""

from __future__ import annotations

from typing import Final

from braidlog.broker import errors
from braidlog.broker.limits import CURSORS_MAX, SUBSCRIPTIONS_MAX
from braidlog.broker.topics.topic import Topic
from braidlog.storage.metadata.positions import Positions

NAME_BYTES_MAX: Final = 32_767  # Kafka's longest string; names are kept in memory.
TOPIC_SUBSCRIPTIONS_MAX: Final = 100_000  # Some 50 MB with a cursor each; bounds random names.


def check_new(topic: Topic, name: bytes, cursors: Positions) -> None:
    """Check that a topic can have another subscription, of that name.

    Raises InvalidName, TopicNotFound, LimitExceeded, PolicyViolated.
    """
    if topic.deleted:
        raise errors.TopicNotFound(f"{topic.name} was deleted")
    if len(name) > NAME_BYTES_MAX:
        raise errors.InvalidName(f"a name has at most {NAME_BYTES_MAX} bytes")
    most = topic.client_limits.subscriptions
    if most is not None and cursors.count(topic.meta.topic_id) >= most:
        text = "Exceed the maximum number of subscriptions of the topic"  # Apache's words.
        raise errors.PolicyViolated(f"{text}: persistent://{topic.name.full}")
    if cursors.count(topic.meta.topic_id) >= TOPIC_SUBSCRIPTIONS_MAX:
        raise errors.LimitExceeded(f"{topic.name} has {TOPIC_SUBSCRIPTIONS_MAX} subscriptions")
    if cursors.totals.subscriptions >= SUBSCRIPTIONS_MAX:
        raise errors.LimitExceeded(f"there are {SUBSCRIPTIONS_MAX} subscriptions")


def check_cursors(cursors: Positions, more: int) -> None:
    """Check that there is room for more cursors. Raises LimitExceeded."""
    if cursors.totals.cursors + more > CURSORS_MAX:
        raise errors.LimitExceeded(f"all subscriptions together have at most {CURSORS_MAX} cursors")
