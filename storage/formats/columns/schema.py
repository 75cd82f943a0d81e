"""The schema of records in tables, the same for all protocols.

Names, types and order of the first columns follow Spark's own Kafka source. Needs pyarrow.
"""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
HEADER_KINDS = pa.list_(pa.field("element", pa.int32()))

# Source of the timestamp, numbered as in Spark's Kafka source.
SET_BY_PRODUCER, SET_ON_APPEND = 0, 1

# The columns of exported files; `topic` is in the folder's name.
FILE_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
        ("headerKinds", HEADER_KINDS),
        ("protocol", pa.string()),
        ("eventTime", TIMESTAMP),
        ("appendTime", TIMESTAMP),
        ("messageId", pa.string()),
        ("producerName", pa.string()),
        ("sequenceId", pa.int64()),
        ("schemaVersion", pa.binary()),
        ("orderingKey", pa.binary()),
        ("deliverAt", TIMESTAMP),
    ]
)

# `topic` stands where Spark's Kafka source has it.
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADER_COLUMNS = ("headers",)
METADATA_COLUMNS = (
    "headerKinds",
    "protocol",
    "eventTime",
    "appendTime",
    "messageId",
    "producerName",
    "sequenceId",
    "schemaVersion",
    "orderingKey",
    "deliverAt",
)
