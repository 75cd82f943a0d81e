"""The settings of a topic that Kafka's clients alone know: limits and form of produced records, and
settings that its tools set and read again, without an effect here.
"""

import enum
from typing import Annotated, Final

import msgspec

from braidlog.storage.log.settings import NEVER_MS, CompressionType, TimestampType

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
INT64_MAX: Final = 2**63 - 1
NOT_NEEDED: Final = "not needed here"
BY_DURABILITY: Final = "`durability` decides"

# Name, Kafka's name, effect.
KAFKA_LIMITS: Final = (
    (
        "batch_bytes_max",
        "max.message.bytes",
        "size of a batch of Kafka's producers at most, within the limit of the listener",
    ),
    (
        "timestamp_before_max_ms",
        "message.timestamp.before.max.ms",
        "time by which a record of Kafka's producers may be older than the broker's clock",
    ),
    (
        "timestamp_after_max_ms",
        "message.timestamp.after.max.ms",
        "time by which a record of Kafka's producers may be ahead of the broker's clock",
    ),
)
# Name, annotation of the values, default, Kafka's name, effect.
KAFKA_SETTINGS: Final[tuple[tuple[str, object, int | enum.Enum, str, str], ...]] = (
    (
        "timestamp_type",
        TimestampType,
        TimestampType.CREATE_TIME,
        "message.timestamp.type",
        "time of a record of Kafka's producers: `CreateTime` is the producer's, `LogAppendTime` "
        "that of the append",
    ),
    (
        "compression_type",
        CompressionType,
        CompressionType.PRODUCER,
        "compression.type",
        "compression of the stored batches of Kafka's producers; `producer` keeps theirs",
    ),
    (
        "max_compaction_lag_ms",
        Positive,
        NEVER_MS,
        "max.compaction.lag.ms",
        "age of a new record at which compaction begins whatever `min_dirty_ppm` says; a compacted "
        "partition begins the next file at this age",
    ),
)
# Name, annotation of the values, default, Kafka's name, reason.
KEPT_SETTINGS: Final[tuple[tuple[str, object, str | int | bool, str, str], ...]] = (
    ("min_insync_replicas", Positive, 1, "min.insync.replicas", "a partition has one replica"),
    ("flush_messages", Positive, INT64_MAX, "flush.messages", BY_DURABILITY),
    ("flush_ms", Count, INT64_MAX, "flush.ms", BY_DURABILITY),
    ("file_delete_delay_ms", Count, 60_000, "file.delete.delay.ms", NOT_NEEDED),
    ("kafka_index_interval_bytes", Count, 4096, "index.interval.bytes", NOT_NEEDED),
    ("message_downconversion", bool, True, "message.downconversion.enable", NOT_NEEDED),
    ("preallocate", bool, False, "preallocate", NOT_NEEDED),
    ("segment_index_bytes", Count, 10 << 20, "segment.index.bytes", NOT_NEEDED),
    ("segment_jitter_ms", Count, 0, "segment.jitter.ms", NOT_NEEDED),
    ("unclean_leader_election", bool, False, "unclean.leader.election.enable", NOT_NEEDED),
)
