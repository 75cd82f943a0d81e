"""Rows of Pulsar: every served command (PulsarApi.proto), the refused commands, and messages with
correct checksums.
"""

import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import crc32c

from conformance.clients.raw import pulsar
from conformance.hostile.mutation import PULSAR
from conformance.hostile.rows import TOPIC, CommandRow, ConnectionKind, Protocol, recorded

FULL_NAME = f"persistent://public/default/{TOPIC}".encode()
NON_PERSISTENT_NAME = f"non-persistent://public/default/{TOPIC}".encode()
EARLIEST, PLACE = pulsar.encode([(1, 0), (2, 0)]), pulsar.encode([(1, 1), (2, 0)])
SCHEMA = pulsar.encode(
    [(1, b"n"), (3, b'"string"'), (4, 4), (5, pulsar.encode([(1, b"k"), (2, b"v")]))]
)
SHARED, FAILOVER, KEY_SHARED = 1, 2, 3
LZ4, ZLIB, ZSTD, SNAPPY = 1, 2, 3, 4
# Patterns that cost much: for backtracking engines, and for engines that unfold repeats first.
COSTLY, HUGE = b"(.*a.{12}){4}(x+x+)+y", b"((((.{9}){9}){9}){9})*"


def pulsar_command(kind: int, field: int, fields: pulsar.Fields, payload: bytes = b"") -> bytes:
    """Return a whole command; `field` is its field of BaseCommand."""
    command = pulsar.encode([(1, kind), (field, pulsar.encode(fields))])
    return PULSAR.with_length(struct.pack(">I", len(command)) + command + payload)


def subscribe(name: bytes, kind: int, consumer: int, *more: tuple[int, int | bytes]) -> bytes:
    """Return a SUBSCRIBE from the earliest message."""
    fields = [(1, FULL_NAME), (2, name), (3, kind), (4, consumer), (5, 9), (13, 1), *more]
    return pulsar_command(4, 4, fields)


def message(metadata: pulsar.Fields, payload: bytes) -> bytes:
    """Return the part behind a SEND: checksum, metadata, payload."""
    return pulsar.entry([(1, b"raw"), (2, 1), (3, 1_700_000_000_000), *metadata], payload)


def summed(rest: bytes) -> bytes:
    """Return the same part for given metadata and payload, with a correct checksum."""
    return b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(rest)) + rest


def single(payload: bytes, *more: tuple[int, int | bytes]) -> bytes:
    """Return a message of a batch."""
    metadata = pulsar.encode([*more, (3, len(payload))])
    return struct.pack(">I", len(metadata)) + metadata + payload


# Name, type and field of BaseCommand, fields, payload section.
TABLE: list[tuple[str, int, int, pulsar.Fields, bytes]] = [
    ("PRODUCER", 5, 5, [(1, FULL_NAME), (2, 5), (3, 9), (4, b"p")], b""),
    ("PRODUCER with schema", 5, 5, [(1, FULL_NAME), (2, 6), (3, 9), (7, SCHEMA)], b""),
    ("PRODUCER, non-persistent", 5, 5, [(1, NON_PERSISTENT_NAME), (2, 7), (3, 9)], b""),
    ("SEND, non-persistent", 6, 6, [(1, 1), (2, 1)], message([(4, PLACE)], b"payload")),
    ("PARTITIONED_METADATA, non-persistent", 21, 21, [(1, NON_PERSISTENT_NAME), (2, 9)], b""),
    ("SEND", 6, 6, [(1, 0), (2, 1)], message([(4, PLACE)], b"payload")),
    ("ACK", 10, 10, [(1, 0), (2, 0), (3, PLACE)], b""),
    ("ACK cumulative", 10, 10, [(1, 1), (2, 1), (3, PLACE), (8, 9)], b""),
    ("FLOW", 11, 11, [(1, 0), (2, 100)], b""),
    ("UNSUBSCRIBE", 12, 12, [(1, 5), (2, 9)], b""),
    ("CLOSE_PRODUCER", 15, 15, [(1, 5), (2, 9)], b""),
    ("CLOSE_CONSUMER", 16, 16, [(1, 5), (2, 9)], b""),
    ("REDELIVER", 20, 20, [(1, 0), (2, PLACE)], b""),
    ("PARTITIONED_METADATA", 21, 21, [(1, FULL_NAME), (2, 9)], b""),
    ("LOOKUP", 23, 23, [(1, FULL_NAME), (2, 9), (3, 0)], b""),
    ("CONSUMER_STATS", 25, 25, [(1, 9), (4, 0)], b""),
    ("SEEK", 28, 28, [(1, 0), (2, 9), (3, PLACE)], b""),
    ("SEEK to a time", 28, 28, [(1, 0), (2, 9), (4, 1_700_000_000_000)], b""),
    ("GET_LAST_MESSAGE_ID", 29, 29, [(1, 0), (2, 9)], b""),
    ("GET_TOPICS_OF_NAMESPACE", 32, 32, [(1, 9), (2, b"public/default")], b""),
    ("GET_SCHEMA", 34, 34, [(1, 9), (2, FULL_NAME)], b""),
    ("AUTH_RESPONSE", 37, 37, [(1, b"raw"), (2, pulsar.encode([(1, b"token"), (2, b"t")]))], b""),
    ("GET_OR_CREATE_SCHEMA", 39, 39, [(1, 9), (2, FULL_NAME), (3, SCHEMA)], b""),
    ("PING", 18, 18, [], b""),
    ("PONG", 19, 19, [], b""),
    ("WATCH_TOPIC_LIST", 64, 64, [(1, 9), (2, 1), (3, b"public/default"), (4, b".*")], b""),
    (
        "WATCH_TOPIC_LIST, costly",
        64,
        64,
        [(1, 9), (2, 2), (3, b"public/default"), (4, COSTLY)],
        b"",
    ),
    ("WATCH_TOPIC_LIST, huge", 64, 64, [(1, 9), (2, 3), (3, b"public/default"), (4, HUGE)], b""),
    ("WATCH_TOPIC_LIST_CLOSE", 67, 67, [(1, 9), (2, 1)], b""),
    # Transactions: refused.
    ("NEW_TXN", 50, 50, [(1, 9), (2, 1000), (3, 0)], b""),
    ("ADD_PARTITION_TO_TXN", 52, 52, [(1, 9), (2, 1), (3, 1), (4, FULL_NAME)], b""),
    ("ADD_SUBSCRIPTION_TO_TXN", 54, 54, [(1, 9), (2, 1), (3, 1)], b""),
    ("END_TXN", 56, 56, [(1, 9), (2, 1), (3, 1), (4, 1)], b""),
    ("END_TXN_ON_PARTITION", 58, 58, [(1, 9), (2, 1), (3, 1), (4, FULL_NAME), (5, 0)], b""),
    ("END_TXN_ON_SUBSCRIPTION", 60, 60, [(1, 9), (2, 1), (3, 1), (4, PLACE), (5, 0)], b""),
    ("TC_CLIENT_CONNECT", 62, 62, [(1, 9), (2, 1)], b""),
]


def _commands() -> Iterator[CommandRow]:
    for name, kind, field, fields, tail in TABLE:
        yield CommandRow(name, pulsar_command(kind, field, fields, tail))
    for name, kind in (("Exclusive", 0), ("Shared", 1), ("Failover", 2), ("Key_Shared", 3)):
        yield CommandRow(f"SUBSCRIBE {name}", subscribe(name.encode(), kind, 5 + kind))
    sticky = pulsar.encode([(1, 1), (2, pulsar.encode([(1, 0), (2, 65_535)]))])
    yield CommandRow("SUBSCRIBE sticky", subscribe(b"sticky", KEY_SHARED, 10, (17, sticky)))
    for name, kind in (
        ("non_persistent", 0),
        ("non_persistent shared", 1),
        ("non_persistent key", 3),
    ):
        fields = [(1, NON_PERSISTENT_NAME), (2, name.encode()), (3, kind), (4, 20 + kind), (5, 9)]
        yield CommandRow(f"SUBSCRIBE {name}", pulsar_command(4, 4, [*fields]))
    yield CommandRow("SUBSCRIBE reader", subscribe(b"r", 0, 11, (8, 0), (9, EARLIEST)))
    pair = pulsar.encode([(1, b"k"), (2, b"v")])
    yield CommandRow(
        "SUBSCRIBE, all of it",
        subscribe(b"all", SHARED, 12, (7, 1), (10, pair), (12, SCHEMA), (18, pair)),
    )
    for row in recorded("pulsar/golden-frames.tsv"):
        if row[1] == "C" and not row[0].startswith("connect"):
            yield CommandRow(f"{row[0]}, recorded", bytes.fromhex(row[2]))


def _send(tail: bytes) -> bytes:
    return pulsar_command(6, 6, [(1, 0), (2, 1), (3, 2)], tail)


def _deep() -> Iterator[CommandRow]:
    """Yield messages that are bad behind a correct checksum."""

    def row(name: str, inner: bytes, make: Callable[[bytes], bytes]) -> CommandRow:
        def wrap(bad: bytes) -> bytes:
            return _send(make(bad))

        return CommandRow(f"SEND, {name}", wrap(inner), inner, wrap)

    yield row("metadata", message([(4, PLACE), (19, 9)], b"payload")[6:], summed)
    batch = single(b"one", (2, b"key")) + single(b"two", (1, pulsar.encode([(1, b"k"), (2, b"v")])))
    yield row("batch", batch, lambda bad: message([(11, 2)], bad))
    yield row("chunk", b"piece", lambda bad: message([(26, b"c"), (27, 3), (28, 9), (29, 1)], bad))
    packed = {
        LZ4: bytes(cramjam.lz4.compress_block(batch, store_size=False)),
        ZLIB: zlib.compress(batch),
        ZSTD: bytes(cramjam.zstd.compress(batch)),
        SNAPPY: bytes(cramjam.snappy.compress_raw(batch)),
    }
    for codec, inner in packed.items():
        metadata: pulsar.Fields = [(8, codec), (9, len(batch)), (11, 2)]
        yield row(f"packed batch, codec {codec}", inner, lambda bad, m=metadata: message(m, bad))


def protocol() -> Protocol:
    """Return the attack on the Pulsar listener, over connections with a producer and consumers."""
    flow = pulsar_command(11, 11, [(1, 0), (2, 10)])
    opening = [
        pulsar_command(2, 2, [(1, b"hostile"), (4, 20)]),
        pulsar_command(5, 5, [(1, FULL_NAME), (2, 0), (3, 1)]),
        subscribe(b"s", SHARED, 0),
        flow,
    ]
    other = [
        opening[0],
        opening[1],
        pulsar_command(5, 5, [(1, NON_PERSISTENT_NAME), (2, 1), (3, 1)]),
        subscribe(b"f", FAILOVER, 0),
        subscribe(b"k", KEY_SHARED, 1),
        flow,
    ]
    rows = [*_commands(), *_deep()]
    apis = ["CONNECT", "PRODUCER", "SUBSCRIBE", "FLOW"]
    before = [pulsar_command(2, 2, [(1, b"hostile"), (4, 20), (5, b"token"), (3, b"no token")])]
    before += [pulsar_command(2, 2, [(1, b"hostile"), (4, 20), (9, 1), (17, b"v")])]
    connects = [CommandRow(f"CONNECT {number}", frame) for number, frame in enumerate(before)]
    return Protocol(
        "pulsar",
        [
            ConnectionKind(PULSAR, opening, apis, rows, weight=12),
            ConnectionKind(PULSAR, other, [*apis, "PRODUCER", "SUBSCRIBE"], rows, weight=6),
            ConnectionKind(PULSAR, [], [], connects),
        ],
    )
