"""Settings of the ZooKeeper listener alone."""

from typing import Annotated

import msgspec


class ZooKeeperOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a ZooKeeper listener; `listeners.NAME.` stands before each in the settings."""

    kafka: str = "kafka"  # name of the Kafka listener whose topics and address are shown
    chroot: str = ""  # path below which the tree is shown again, as in `host:2181/kafka`
    tick_ms: Annotated[int, msgspec.Meta(ge=50, le=60_000)] = 2000  # tickTime: see the timeouts
    # A node of 1 MiB, its path and its access list.
    frame_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=16 * 2**20)] = 1_114_112
