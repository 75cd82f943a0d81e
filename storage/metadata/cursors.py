"""Records of cursors: stored state, and changes as a journal holds them (storage/FORMAT.md, section
9.2). A record holds the outcome of a commit or an ack, as `broker/positions/` decided it.
"""

from typing import ClassVar

import msgspec

from braidlog.storage.metadata.ranges import RangeSet


class KafkaCommit(
    msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False
):
    """A Kafka commit as it was sent: any number; no metadata, or empty, or text; the time.

    The leader epoch is -1 if the client named none.
    """

    offset: int
    metadata: bytes | None
    time_us: int
    leader_epoch: int = -1


class StoredCursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A subscription on a partition. Changed by the store alone."""

    position: int
    """The next offset wanted: everything below is acknowledged."""
    floor: int
    """The position as last set by a commit or seek; acks moved it on from there."""
    acked: RangeSet | None = None
    """Acknowledged ranges above the position, or None."""
    kafka: KafkaCommit | None = None
    """Kafka's own commit, while no other listener has moved the cursor since."""


class StoredSubscription(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A subscription and its cursors by partition number. Changed by the store alone.

    `partitions` is how many the topic had; partitions added later begin with a cursor at 0.
    """

    partitions: int
    properties: dict[str, str]
    cursors: dict[int, StoredCursor]


class Subscribed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=1, gc=False):
    """Subscriptions of a topic exist: a new one, or many from a snapshot."""

    topic_id: int
    subscriptions: dict[bytes, StoredSubscription]


class Moved(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=2, gc=False):
    """A cursor is at `position` now, and `ranges` are acknowledged in addition to the earlier
    ranges.

    `cleared`: the earlier ranges are dropped. All ranges below the position are dropped too.
    """

    topic_id: int
    name: bytes
    index: int
    position: int
    floor: int
    kafka: KafkaCommit | None = None
    cleared: bool = False
    ranges: RangeSet | None = None


class CursorGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=3, gc=False):
    """A cursor is back to "never set"."""

    topic_id: int
    name: bytes
    index: int


class Unsubscribed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=4, gc=False):
    """A subscription was deleted."""

    topic_id: int
    name: bytes


class TopicDropped(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=5, gc=False):
    """All subscriptions of a topic were deleted."""

    topic_id: int


class TopicResized(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=6, gc=False):
    """The number of partitions of a topic changed: subscriptions get cursors at 0 on new
    partitions, and lose their cursors on removed partitions.
    """

    topic_id: int
    partitions: int


class PropertiesSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=9, gc=False):
    """The properties of a subscription are these, in place of the earlier properties."""

    LAYOUT: ClassVar[int] = 6  # Of a record with this change: earlier programs do not know it.
    topic_id: int
    name: bytes
    properties: dict[str, str]


CursorChange = (
    Subscribed | Moved | CursorGone | Unsubscribed | TopicDropped | TopicResized | PropertiesSet
)


def new_subscription(
    topic_id: int, name: bytes, partitions: int, properties: dict[str, str] | None = None
) -> Subscribed:
    """The change that makes a subscription with cursors never set."""
    return Subscribed(topic_id, {name: StoredSubscription(partitions, dict(properties or {}), {})})
