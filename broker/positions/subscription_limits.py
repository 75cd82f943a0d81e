"""Limits of subscriptions and cursors: names, and numbers in a topic and in all topics."""

from __future__ import annotations

from typing import Final

from braidlog.broker import errors
from braidlog.broker.limits import StateLimits
from braidlog.broker.topics.topic import Topic
from braidlog.storage.metadata.positions import Positions

NAME_BYTES_MAX: Final = 32_767  # Kafka's longest string; names are kept in memory.


def check_new(topic: Topic, name: bytes, cursors: Positions, limits: StateLimits) -> None:
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
    if cursors.count(topic.meta.topic_id) >= limits.topic_subscriptions:
        raise errors.LimitExceeded(
            f"limit of {limits.topic_subscriptions} subscriptions of {topic.name} reached"
        )
    if cursors.totals.subscriptions >= limits.subscriptions:
        raise errors.LimitExceeded(f"limit of {limits.subscriptions} subscriptions reached")


def check_cursors(cursors: Positions, more: int, limits: StateLimits) -> None:
    """Check that there is room for more cursors. Raises LimitExceeded."""
    if cursors.totals.cursors + more > limits.cursors:
        text = f"all subscriptions together have at most {limits.cursors} cursors"
        raise errors.LimitExceeded(text)
