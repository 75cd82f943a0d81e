"""The request FETCH_MESSAGES (W): a wait for messages of several partitions, and their reading."""

from __future__ import annotations

import msgspec

from braidlog.protocols.iggy.messages import ConsumerRef, Name, PollingStrategy


class FetchedPlace(msgspec.Struct):
    """A partition to read. `max_bytes` is the limit of this partition's messages; `incarnation` is
    the partition's lasting number, `generation` that of the group's assignment.
    """

    partition: int
    strategy: PollingStrategy
    max_bytes: int
    incarnation: int
    generation: int


class FetchMessages(msgspec.Struct):
    """Asks for up to `count` messages of all partitions together, and waits for `min_count`."""

    consumer: ConsumerRef
    stream: Name
    topic: Name
    wait_us: int
    request_timeout_us: int
    min_count: int
    count: int
    max_bytes: int
    auto_commit: bool
    targets: list[FetchedPlace]
