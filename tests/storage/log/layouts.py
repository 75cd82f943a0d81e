"""An independent description of FORMAT.md, in construct, to check the fast code."""

import construct as c

SEGMENT_HEADER = c.Struct(
    "magic" / c.Const(b"BRAIDLOG"),
    "version" / c.Const(1, c.Int16ul),
    "kind" / c.Int16ul,
    "salt" / c.Int32ul,
    "partition_id" / c.Int64ul,
    "base_offset" / c.Int64sl,
    "flags" / c.Int16ul,
    "reserved" / c.Const(bytes(26)),
    "crc" / c.Int32ul,
)

NAMED_SEGMENT_HEADER = c.Struct(
    "magic" / c.Const(b"BRLG"),
    "salt" / c.Int32ul,
    "version" / c.Const(2, c.Int16ul),
    "kind" / c.Int8ul,
    "flags" / c.Int8ul,
    "directory_id" / c.Int64ul,
    "partition_id" / c.Int64ul,
    "base_offset" / c.Int64sl,
    "end_offset" / c.Int64sl,
    "tombstones_below" / c.Int64sl,
    "tombstones_us" / c.Int64sl,
    "crc" / c.Int32ul,
)

BATCH_HEADER = c.Struct(
    "magic" / c.Const(bytes.fromhex("f34241d7")),
    "header_crc" / c.Int32ul,
    "version" / c.Const(1, c.Int8ul),
    "body_version" / c.Int8ul,
    "body_format" / c.Int16ul,
    "flags" / c.Int32ul,
    "partition_id" / c.Int64ul,
    "owner_epoch" / c.Int64ul,
    "base_offset" / c.Int64sl,
    "last_offset_delta" / c.Int32ul,
    "record_count" / c.Int32ul,
    "durable_offset" / c.Int64sl,
    "first_publish_us" / c.Int64sl,
    "max_publish_us" / c.Int64sl,
    "append_us" / c.Int64sl,
    "producer_id" / c.Int64ul,
    "producer_epoch" / c.Int64sl,
    "first_sequence" / c.Int64sl,
    "last_sequence" / c.Int64sl,
    "positions_bytes" / c.Int32ul,
    "body_bytes" / c.Int32ul,
    "body_crc" / c.Int32ul,
    "reserved" / c.Const(bytes(4)),
)

INDEX_HEADER = c.Struct(
    "magic" / c.Const(b"BRAIDIDX"),
    "version" / c.Const(1, c.Int16ul),
    "reserved" / c.Const(bytes(2)),
    "salt" / c.Int32ul,
    "base_offset" / c.Int64sl,
    "reserved_2" / c.Const(bytes(4)),
    "crc" / c.Int32ul,
)

INDEX_ENTRY = c.Struct(
    "offset" / c.Int64sl,
    "file_pos" / c.Int64ul,
    "max_time_us" / c.Int64sl,
    "reserved" / c.Const(bytes(4)),
    "crc" / c.Int32ul,
)

TOPIC_FILE = c.Struct(
    "magic" / c.Const(b"BRAIDTOP"),
    "version" / c.Const(1, c.Int16ul),
    "reserved" / c.Const(bytes(2)),
    "name_bytes" / c.Int32ul,
    "partition_id" / c.Int64ul,
    "partition_index" / c.Int32ul,
    "reserved_2" / c.Const(bytes(4)),
    "name" / c.Bytes(c.this.name_bytes),
    "crc" / c.Int32ul,
    c.Terminated,
)

SLOT = c.Struct(
    "magic" / c.Bytes(8),
    "version" / c.Const(1, c.Int16ul),
    "kind" / c.Int16ul,
    "reserved" / c.Const(bytes(4)),
    "partition_id" / c.Int64ul,
    "sequence" / c.Int64ul,
    "log_start_offset" / c.Int64sl,
    "offset" / c.Int64sl,
    "reserved_2" / c.Const(bytes(12)),
    "crc" / c.Int32ul,
)
