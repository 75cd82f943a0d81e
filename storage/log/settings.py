"""The settings of a log, derived from its topic's settings. Knows no configuration file."""

from dataclasses import dataclass, field
from enum import StrEnum


class Durability(StrEnum):
    """The meaning of an acknowledgement: synced to the disk, or written to the page cache."""

    SYNCED = "synced"
    WRITTEN = "written"


class CleanupPolicy(StrEnum):
    """Treatment of old records, in Kafka's words."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_DELETE = "compact,delete"


class TimestampType(StrEnum):
    """The time of a record of Kafka's producers, in Kafka's words."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(StrEnum):
    """The compression of stored batches of Kafka's producers, in Kafka's words."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class UnreadableRecords(StrEnum):
    """Result for readers of other formats when a body cannot be opened for them."""

    REFUSE = "refuse"
    SKIP = "skip"
    RAW = "raw"


class UncarriedRecords(StrEnum):
    """Result for readers of other formats when their format cannot carry a record."""

    LEAVE_OUT = "leave_out"
    MARK = "mark"


NO_LIMITS = (None, None, None)
NEVER_MS = 2**63 - 1  # Kafka's default of a lag that never ends.


@dataclass(slots=True, frozen=True)
class LogSettings:
    """Settings of a log; None means no limit of that kind.

    Segment size and age are Kafka 0.8's defaults. The index interval is larger than Kafka's 4 KiB,
    because an entry has 32 bytes here, not 8.
    * `keep_unacknowledged`: the limits never drop records that a subscription has not acknowledged.
    * `delete_acknowledged`: records that every subscription has acknowledged are dropped at once,
      as in Pulsar.
    * `retention_hold`: the limits keep the records that this subscription (an export's) has still
      to read, except for records above `retention_hold_bytes` or older than `retention_hold_ms`.
    * `cleanup_policy`: deletion by the limits, compaction of closed segments, or both. Compaction
      has Kafka's defaults: compaction begins once `min_dirty_ppm` millionths of those segments are
      new, skips segments that were written to within `min_compaction_lag_ms`, and keeps tombstones
      for `delete_retention_ms`.
    * `compaction_threshold_bytes`: new bytes that trigger a compacted view (Pulsar's), None for
      never.
    * `unreadable_records`, `uncarried_records`: for readers of another format.
    * `batch_bytes_max`: the largest batch of Kafka's producers.
    * `timestamp_before_max_ms`, `timestamp_after_max_ms`: how far the time of a record of Kafka's
      producers may lie before and after the clock of the broker.
    * `timestamp_type`, `compression_type`: the times of these records, and the compression of their
      batches.
    * `max_compaction_lag_ms`: compaction begins without `min_dirty_ppm` for older new records.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3_600_000
    index_interval_bytes: int = 16 * 1024
    durability: Durability = Durability.SYNCED
    retention_bytes: int | None = None
    retention_ms: int | None = None
    keep_unacknowledged: bool = False
    delete_acknowledged: bool = False
    retention_hold: str | None = None
    retention_hold_bytes: int | None = None
    retention_hold_ms: int | None = None
    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    min_dirty_ppm: int = 500_000
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = 24 * 3_600_000
    compaction_threshold_bytes: int | None = None
    unreadable_records: UnreadableRecords = UnreadableRecords.REFUSE
    uncarried_records: UncarriedRecords = UncarriedRecords.LEAVE_OUT
    batch_bytes_max: int | None = None
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    compression_type: CompressionType = CompressionType.PRODUCER
    max_compaction_lag_ms: int = NEVER_MS

    # Each append asks for these two, which are computed once.
    checks_produced: bool = field(default=False, init=False, compare=False, repr=False)
    """True if the broker refuses or changes valid sets of Kafka's producers."""
    roll_ms: int = field(default=0, init=False, compare=False, repr=False)
    """Age at which the log begins the next segment: only closed segments are compacted."""

    def __post_init__(self) -> None:
        limits = (self.batch_bytes_max, self.timestamp_before_max_ms, self.timestamp_after_max_ms)
        checks = self.compacts or limits != NO_LIMITS or self.rewrites_produced
        object.__setattr__(self, "checks_produced", checks)
        compacted_ms = self.max_compaction_lag_ms if self.compacts else self.segment_ms
        object.__setattr__(self, "roll_ms", min(self.segment_ms, compacted_ms))

    @property
    def rewrites_produced(self) -> bool:
        """True if sets of Kafka's producers are not stored as they are."""
        return self.uses_append_time or self.compression_type != CompressionType.PRODUCER

    @property
    def uses_append_time(self) -> bool:
        """True if records of Kafka's producers get the time of their append."""
        return self.timestamp_type == TimestampType.LOG_APPEND_TIME

    @property
    def compacts(self) -> bool:
        """True if closed segments are compacted."""
        return self.cleanup_policy != CleanupPolicy.DELETE

    @property
    def deletes(self) -> bool:
        """True if the limits drop old segments."""
        return self.cleanup_policy != CleanupPolicy.COMPACT
