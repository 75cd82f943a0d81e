"""Layouts in `construct`, from the protocols' documents: an independent description for checks."""

from construct import (
    Bytes,
    GreedyBytes,
    GreedyRange,
    If,
    Int8ub,
    Int8ul,
    Int32sb,
    Int32ub,
    Int32ul,
    Int64sb,
    Int64ul,
    Prefixed,
    Struct,
    Terminated,
    this,
)

NULLABLE = Struct("size" / Int32sb, "data" / If(this.size >= 0, Bytes(this.size)))

KAFKA_MESSAGE = Struct(
    "crc" / Int32ub,
    "magic" / Int8ub,
    "attributes" / Int8ub,
    "key" / NULLABLE,
    "value" / NULLABLE,
    Terminated,
)
KAFKA_ENTRY = Struct("offset" / Int64sb, "message" / Prefixed(Int32ub, KAFKA_MESSAGE))
KAFKA_SET = Struct("entries" / GreedyRange(KAFKA_ENTRY), Terminated)

IGGY_HEADER = Struct(
    "name" / Prefixed(Int32ul, GreedyBytes),
    "kind" / Int8ul,
    "value" / Prefixed(Int32ul, GreedyBytes),
)
IGGY_POLLED = Struct(
    "offset" / Int64ul,
    "state" / Int8ul,
    "timestamp" / Int64ul,
    "id" / Bytes(16),
    "checksum" / Int32ul,
    "headers" / Prefixed(Int32ul, GreedyRange(IGGY_HEADER)),
    "payload" / Prefixed(Int32ul, GreedyBytes),
)
IGGY_POLLS = Struct("messages" / GreedyRange(IGGY_POLLED), Terminated)
