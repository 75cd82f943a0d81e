"""Settings of the Kafka listener alone, with Kafka's own defaults where Kafka has the setting."""

from typing import Annotated

import msgspec

from braidlog.protocols.kafka.migration import MigrationPolicy

Positive = Annotated[int, msgspec.Meta(ge=1)]


class KafkaOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a Kafka listener; `listeners.NAME.` stands before each in the settings."""

    namespace: str = "public/default"  # tenant/namespace whose topics this listener serves
    auto_create: bool = True  # whether Metadata creates topics, where topics.auto_create allows it
    message_bytes_max: Annotated[int, msgspec.Meta(ge=64, le=2**30)] = 1_000_012
    # The same for record batches (format 2): message.max.bytes of later Kafka.
    batch_bytes_max: Annotated[int, msgspec.Meta(ge=64, le=2**30)] = 1_048_588
    frame_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=2**31 - 1)] = 104_857_600
    # The most that a compressed set may unpack to: a 1 MB wrapper of zeros would give a gigabyte.
    inflated_bytes_max: Positive = 64 * 1024 * 1024
    # The most that an answer to a fetch holds, whatever its partitions ask for together. The
    # default of Kafka's later fetch.max.bytes.
    fetch_bytes_max: Annotated[int, msgspec.Meta(ge=1024)] = 52_428_800
    offset_metadata_chars_max: Annotated[int, msgspec.Meta(ge=0, le=32_767)] = 4096
    # How long a group waits for more members after the first (Kafka:
    # group.initial.rebalance.delay.ms, 3000). kafka-python 3 needs some of it: it joins before it
    # has the topics' metadata, and a leader without metadata never assigns any partitions.
    group_initial_delay_ms: Annotated[int, msgspec.Meta(ge=0, le=300_000)] = 250
    # Whether a group with members may change between the classic and the consumer protocol.
    group_migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # Whether clients see a read-only topic `__consumer_offsets` with the newest position of each
    # group and partition (`offsets_topic.py`).
    offsets_topic: bool = False
    idle_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0  # connections.max.idle.ms
