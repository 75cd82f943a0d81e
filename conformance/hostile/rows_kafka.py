"""Rows of Kafka: every served key in every served version, and sets and batches with correct
checksums (Kafka protocol guide; schemas of apache/kafka 3.9).
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import cramjam
import crc32c

from conformance.clients.raw import kafka
from conformance.hostile.mutation import KAFKA
from conformance.hostile.rows import TOPIC, CommandRow, ConnectionKind, Protocol, recorded
from conformance.hostile.rows_kafka_flexible import by_id, flexible_rows

NAME = kafka.string(TOPIC.encode())
GROUP = kafka.string(b"hostile group")
ONE = struct.pack(">i", 1)
NONE = struct.pack(">i", 0)
TO_PARTITION = ONE + NAME + ONE + struct.pack(">i", 0)
MESSAGE = kafka.message(b"key", b"value")
# Target of commands that an attack may complete: separate groups and topics.
PASSING = kafka.string(b"hostile-passing")
HEADER_BYTES = 4 + 8 + 5  # Size, kind and correlation id, client id.
NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)


def kafka_request(key: int, version: int, body: bytes) -> bytes:
    """Return a whole request."""
    return KAFKA.with_length(struct.pack(">hhi", key, version, 7) + kafka.string(b"raw") + body)


def if_(condition: bool, field: bytes) -> bytes:
    """Return a field of some versions, or nothing."""
    return field if condition else b""


def record_batch(records: bytes, count: int = 1, codec: int = 0) -> bytes:
    """Return a record batch of format 2 around records, with a correct checksum."""
    body = struct.pack(">hiqq", codec, count - 1, 1_700_000_000_000, 1_700_000_000_000)
    body += NO_PRODUCER + struct.pack(">i", count) + records
    crc = crc32c.crc32c(body)
    return struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc) + body


# length, attributes, time delta, offset delta, key, value, a header: varints, zigzag.
RECORD = bytes((32, 0, 0, 0, 6)) + b"key" + bytes((10,)) + b"value" + bytes((2, 2, 104, 2, 118))


def produce(version: int, records: bytes) -> bytes:
    """Return a Produce request of a single set or batch."""
    body = if_(version >= 3, kafka.string(None)) + struct.pack(">hi", 1, 1000)
    return kafka_request(0, version, body + TO_PARTITION + kafka.data(records))


def fetch(version: int, topic: bytes = NAME) -> bytes:
    """Return a Fetch request that does not wait."""
    body = struct.pack(">iii", -1, 0, 1) + if_(version >= 3, struct.pack(">i", 1 << 20))
    body += if_(version >= 4, b"\0") + if_(version >= 7, struct.pack(">ii", 0, -1))
    body += ONE + topic + ONE + struct.pack(">i", 0) + if_(version >= 9, struct.pack(">i", -1))
    body += struct.pack(">q", 0) + if_(version >= 5, struct.pack(">q", -1))
    body += struct.pack(">i", 1 << 16) + if_(version >= 7, NONE)
    return kafka_request(1, version, body + if_(version >= 11, kafka.string(b"")))


def _offsets(version: int) -> bytes:
    body = struct.pack(">i", -1) + if_(version >= 2, b"\0") + TO_PARTITION
    body += if_(version >= 4, struct.pack(">i", -1)) + struct.pack(">q", -1)
    return body + if_(version == 0, struct.pack(">i", 10))


def _metadata(version: int) -> bytes:
    return ONE + NAME + if_(version >= 4, b"\x01") + if_(version >= 8, b"\0\0")


def _offset_commit(version: int) -> bytes:
    body = GROUP + if_(version >= 1, struct.pack(">i", -1) + kafka.string(b""))
    body += if_(version >= 7, kafka.string(None))
    body += if_(2 <= version <= 4, struct.pack(">q", -1)) + TO_PARTITION + struct.pack(">q", 1)
    body += if_(version >= 6, struct.pack(">i", -1)) + if_(version == 1, struct.pack(">q", -1))
    return body + kafka.string(b"meta")


def _offset_fetch(version: int) -> bytes:
    return GROUP + TO_PARTITION


def _find_coordinator(version: int) -> bytes:
    return GROUP + if_(version >= 1, b"\0")


def _init_producer_id(version: int) -> bytes:
    return kafka.string(None) + struct.pack(">i", 60_000)


def _join_group(version: int) -> bytes:
    body = GROUP + struct.pack(">i", 1000) + if_(version >= 1, struct.pack(">i", 1000))
    body += kafka.string(b"") + if_(version >= 5, kafka.string(None)) + kafka.string(b"consumer")
    return body + ONE + kafka.string(b"range") + kafka.data(b"\0\0\0\0\0\1\0\7hostile\0\0\0\0")


def _member(version: int) -> bytes:
    return kafka.string(b"member-1") + if_(version >= 3, kafka.string(None))


def _sync_group(version: int) -> bytes:
    body = GROUP + struct.pack(">i", 1) + _member(version)
    return body + ONE + kafka.string(b"member-1") + kafka.data(bytes(20))


def _heartbeat(version: int) -> bytes:
    return GROUP + struct.pack(">i", 1) + _member(version)


def _leave_group(version: int) -> bytes:
    return GROUP + (ONE + _member(3) if version >= 3 else kafka.string(b"member-1"))


def _describe_groups(version: int) -> bytes:
    return ONE + GROUP + if_(version >= 3, b"\0")


def _create_topics(version: int) -> bytes:
    config = ONE + kafka.string(b"retention.ms") + kafka.string(b"1000")
    body = ONE + PASSING + struct.pack(">ih", 1, 1) + NONE + config + struct.pack(">i", 1000)
    return body + if_(version >= 1, b"\0")


def _describe_configs(version: int) -> bytes:
    body = ONE + b"\x02" + NAME + ONE + kafka.string(b"retention.ms")
    return body + if_(version >= 1, b"\0") + if_(version >= 3, b"\0")


def _delete_records(version: int) -> bytes:
    return TO_PARTITION + struct.pack(">qi", 0, 1000)


def _offset_for_leader_epoch(version: int) -> bytes:
    body = if_(version >= 3, struct.pack(">i", -1)) + TO_PARTITION
    return body + if_(version >= 2, struct.pack(">i", -1)) + struct.pack(">i", 0)


def _alter_configs(operation: bytes) -> bytes:
    change = ONE + kafka.string(b"retention.ms") + operation + kafka.string(b"1000000")
    return ONE + b"\x02" + PASSING + change + b"\0"


# By key: the name, the highest version, and the builder of a body.
BODIES: dict[int, tuple[str, int, Callable[[int], bytes]]] = {
    2: ("offsets", 5, _offsets),
    3: ("metadata", 8, _metadata),
    8: ("offset_commit", 7, _offset_commit),
    9: ("offset_fetch", 5, _offset_fetch),
    10: ("consumer_metadata", 2, _find_coordinator),
    11: ("join_group", 5, _join_group),
    12: ("heartbeat", 3, _heartbeat),
    13: ("leave_group", 3, _leave_group),
    14: ("sync_group", 3, _sync_group),
    15: ("describe_groups", 4, _describe_groups),
    16: ("list_groups", 2, lambda _: b""),
    18: ("api_versions", 2, lambda _: b""),
    19: ("create_topics", 4, _create_topics),
    20: ("delete_topics", 3, lambda _: ONE + PASSING + struct.pack(">i", 1000)),
    # An unknown mechanism: a failed login would end the connection.
    17: ("sasl_handshake", 1, lambda _: kafka.string(b"NONE")),
    21: ("delete_records", 1, _delete_records),
    22: ("init_producer_id", 1, _init_producer_id),
    23: ("offset_for_leader_epoch", 3, _offset_for_leader_epoch),
    32: ("describe_configs", 3, _describe_configs),
    33: ("alter_configs", 1, lambda _: _alter_configs(b"")),
    35: ("describe_log_dirs", 1, lambda _: ONE + NAME + ONE + struct.pack(">i", 0)),
    36: ("sasl_authenticate", 1, lambda _: kafka.data(b"\0name\0password")),
    37: (
        "create_partitions",
        1,
        lambda _: ONE + PASSING + struct.pack(">iii", 2, -1, 1000) + b"\0",
    ),
    42: ("delete_groups", 1, lambda _: ONE + GROUP),
    44: ("incremental_alter_configs", 0, lambda _: _alter_configs(b"\0")),
}
PRODUCE_VERSIONS, FETCH_VERSIONS = range(9), range(12)


def _commands() -> Iterator[CommandRow]:
    for key, (name, highest, body) in BODIES.items():
        for version in range(highest + 1):
            yield CommandRow(f"{name} v{version}", kafka_request(key, version, body(version)))
    for version in FETCH_VERSIONS:
        yield CommandRow(f"fetch v{version}", fetch(version))
    for version in PRODUCE_VERSIONS:
        records = MESSAGE if version < 3 else record_batch(RECORD)
        yield CommandRow(f"produce v{version}", produce(version, records))
    newest = {key: body(highest) for key, (_, highest, body) in BODIES.items()}
    newest[0] = produce(8, record_batch(RECORD))[HEADER_BYTES:]
    newest[1] = fetch(11)[HEADER_BYTES:]
    yield from flexible_rows({0: 8, 1: 11, **{key: row[1] for key, row in BODIES.items()}}, newest)
    for row in recorded("kafka/golden-frames.tsv"):
        yield CommandRow(f"{row[0]}, recorded", bytes.fromhex(row[5]))


def wrapped_message(codec: int, inner: bytes) -> bytes:
    """Return a message of format 0 with a compressed value and a correct checksum."""
    body = struct.pack(">bb", 0, codec) + kafka.data(None) + kafka.data(inner)
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def packed_batch(codec: int, inner: bytes) -> bytes:
    """Return a compressed record batch of a single record."""
    return record_batch(inner, 1, codec)


def _summed(body: bytes) -> bytes:
    """Return a message of format 0 around the bytes behind its checksum."""
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


PACK: dict[int, Callable[[bytes], bytes]] = {
    1: partial(gzip.compress, mtime=0),  # The time of now would change the frames of a seed.
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),  # For batches only.
}


def _deep() -> Iterator[CommandRow]:
    """Yield sets and batches that are bad behind a correct checksum."""

    def row(name: str, inner: bytes, make: Callable[[bytes], bytes], version: int) -> CommandRow:
        def wrap(bad: bytes) -> bytes:
            return produce(version, make(bad))

        return CommandRow(f"produce, {name}", wrap(inner), inner, wrap)

    yield row("message", MESSAGE[16:], _summed, 0)
    yield row("batch", RECORD, record_batch, 3)
    yield row("batch of many", RECORD, lambda bad: record_batch(bad, 1 << 20), 3)
    for codec, pack in PACK.items():
        for name, inner, wrap, version in (
            ("set", MESSAGE, wrapped_message, 0),
            ("batch", RECORD, packed_batch, 3),
        ):
            packed, of = pack(inner), f"{name}, codec {codec}"
            yield row(f"packed {of}", packed, partial(wrap, codec), version)
            yield row(f"packed bad {of}", inner, _packing(wrap, codec), version)


def _packing(wrap: Callable[[int, bytes], bytes], codec: int) -> Callable[[bytes], bytes]:
    return lambda bad: wrap(codec, PACK[codec](bad))


def protocol() -> Protocol:
    """Return the attack on the Kafka listener."""
    rows = [*_commands(), *_deep()]
    return Protocol("kafka", [ConnectionKind(KAFKA, [], [], rows, weight=3), by_id(rows)])
