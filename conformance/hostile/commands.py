"""The served commands of every protocol, a row each: a good frame to make bad ones of.

Recorded frames of real clients (`conformance/vectors/`) are rows too. A new command is a new row.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.hostile.mutation import HTTP, IGGY, KAFKA, PULSAR, Layout
from conformance.raw import iggy, kafka, pulsar

VECTORS = Path(__file__).parent.parent / "vectors"
TOPIC = "hostile"
KAFKA_KEYS = (0, 1, 2, 3, 8, 9, 10)


@dataclass(frozen=True, slots=True)
class Command:
    """One row: what it is called in the report, and a good frame."""

    name: str
    frame: bytes


@dataclass(frozen=True, slots=True)
class Protocol:
    """How to attack a listener."""

    name: str  # of the listener
    layout: Layout
    opening: Sequence[bytes]  # frames that a connection begins with
    opening_apis: Sequence[str]  # the same as the broker's metrics call them
    commands: Sequence[Command]


def kafka_request(key: int, version: int, body: bytes) -> bytes:
    """A whole request."""
    return KAFKA.with_length(struct.pack(">hhi", key, version, 7) + kafka.string(b"raw") + body)


def pulsar_command(kind: int, field: int, fields: pulsar.Fields, payload: bytes = b"") -> bytes:
    """A whole command; `field` is its field of BaseCommand."""
    command = pulsar.encode([(1, kind), (field, pulsar.encode(fields))])
    return PULSAR.with_length(struct.pack(">I", len(command)) + command + payload)


def iggy_command(code: int, payload: bytes) -> bytes:
    """A whole command of dialect D2."""
    return IGGY.with_length(struct.pack("<I", code) + payload)


def _kafka() -> Iterator[Command]:
    name = kafka.string(TOPIC.encode())
    group = kafka.string(b"hostile group")
    message = kafka.message(b"key", b"value")
    one = struct.pack(">i", 1)
    target = one + name + one
    yield Command(
        "produce",
        kafka_request(
            0,
            0,
            struct.pack(">hi", 1, 1000) + target + struct.pack(">ii", 0, len(message)) + message,
        ),
    )
    yield Command(
        "fetch",
        kafka_request(
            1, 0, struct.pack(">iii", -1, 0, 1) + target + struct.pack(">iqi", 0, 0, 1 << 16)
        ),
    )
    yield Command(
        "offsets",
        kafka_request(2, 0, struct.pack(">i", -1) + target + struct.pack(">iqi", 0, -1, 10)),
    )
    yield Command("metadata", kafka_request(3, 0, one + name))
    yield Command(
        "offset_commit v0",
        kafka_request(8, 0, group + target + struct.pack(">iq", 0, 1) + kafka.string(b"meta")),
    )
    yield Command(
        "offset_commit v1",
        kafka_request(
            8,
            1,
            group
            + struct.pack(">i", -1)
            + kafka.string(b"")
            + target
            + struct.pack(">iqq", 0, 1, -1)
            + kafka.string(b"meta"),
        ),
    )
    for version in (0, 1):
        yield Command(
            f"offset_fetch v{version}",
            kafka_request(9, version, group + target + struct.pack(">i", 0)),
        )
    yield Command("consumer_metadata", kafka_request(10, 0, group))
    for row in _rows("kafka/golden-frames.tsv"):
        if int(row[1]) in KAFKA_KEYS and int(row[2]) <= (1 if int(row[1]) in (8, 9) else 0):
            yield Command(f"{row[0]}, recorded", bytes.fromhex(row[5]))


def _pulsar() -> Iterator[Command]:
    topic = f"persistent://public/default/{TOPIC}".encode()
    head = pulsar.encode(
        [(1, b"raw"), (2, 1), (3, 1_700_000_000_000), (4, pulsar.encode([(1, b"k"), (2, b"v")]))]
    )
    payload = struct.pack(">I", len(head)) + head + b"payload"
    place = pulsar.encode([(1, 1), (2, 0)])
    table: list[tuple[str, int, int, pulsar.Fields, bytes]] = [
        ("PRODUCER", 5, 5, [(1, topic), (2, 5), (3, 9), (4, b"p")], b""),
        ("SUBSCRIBE", 4, 4, [(1, topic), (2, b"s2"), (3, 1), (4, 5), (5, 9), (13, 1)], b""),
        ("SEND", 6, 6, [(1, 0), (2, 1)], payload),
        ("ACK", 10, 10, [(1, 0), (2, 0), (3, place)], b""),
        ("FLOW", 11, 11, [(1, 0), (2, 100)], b""),
        ("UNSUBSCRIBE", 12, 12, [(1, 5), (2, 9)], b""),
        ("CLOSE_PRODUCER", 15, 15, [(1, 5), (2, 9)], b""),
        ("CLOSE_CONSUMER", 16, 16, [(1, 5), (2, 9)], b""),
        ("REDELIVER", 20, 20, [(1, 0), (2, place)], b""),
        ("PARTITIONED_METADATA", 21, 21, [(1, topic), (2, 9)], b""),
        ("LOOKUP", 23, 23, [(1, topic), (2, 9), (3, 0)], b""),
        ("CONSUMER_STATS", 25, 25, [(1, 9), (4, 0)], b""),
        ("SEEK", 28, 28, [(1, 0), (2, 9), (3, place)], b""),
        ("GET_LAST_MESSAGE_ID", 29, 29, [(1, 0), (2, 9)], b""),
        ("GET_TOPICS_OF_NAMESPACE", 32, 32, [(1, 9), (2, b"public/default")], b""),
        ("GET_SCHEMA", 34, 34, [(1, 9), (2, topic)], b""),
        (
            "GET_OR_CREATE_SCHEMA",
            39,
            39,
            [(1, 9), (2, topic), (3, pulsar.encode([(1, b"n"), (3, b""), (4, 0)]))],
            b"",
        ),
        ("PING", 18, 18, [], b""),
        ("PONG", 19, 19, [], b""),
    ]
    for name, kind, field, fields, tail in table:
        yield Command(name, pulsar_command(kind, field, fields, tail))
    for row in _rows("pulsar/golden-frames.tsv"):
        if row[1] == "C" and not row[0].startswith("connect"):
            yield Command(f"{row[0]}, recorded", bytes.fromhex(row[2]))


def _iggy() -> Iterator[Command]:
    for row in _rows("iggy/d2-server-0.4.300.tsv"):
        if not row[0].startswith(("length", "name")):
            yield Command(f"{row[0]}, recorded", bytes.fromhex(row[1]))


def _http() -> Iterator[Command]:
    base = "/api/v1"
    for method, path, body in (
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/metrics", ""),
        ("GET", f"{base}/topics", ""),
        ("GET", f"{base}/topics/public/default/{TOPIC}", ""),
        ("PUT", f"{base}/topics/public/default/{TOPIC}-http", '{"partitions": 2}'),
        (
            "PATCH",
            f"{base}/topics/public/default/{TOPIC}-http",
            '{"settings": {"retention_ms": 9}}',
        ),
        ("GET", f"{base}/groups", ""),
        ("GET", f"{base}/groups/public/default/{TOPIC}/s", ""),
    ):
        head = f"{method} {path} HTTP/1.1\r\nHost: broker\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        yield Command(f"{method} {path}", (head + body).encode())


def _rows(path: str) -> Iterator[list[str]]:
    for line in (VECTORS / path).read_text().splitlines():
        if line and not line.startswith("#"):
            row = line.split("\t")
            if row[0] != "name":
                yield row


def protocols() -> dict[str, Protocol]:
    """Everything that can be attacked, by the name of its listener."""
    topic = f"persistent://public/default/{TOPIC}".encode()
    login = iggy.text8("iggy") + iggy.text8("iggy") + struct.pack("<I", 7) + b"0.6.202" + bytes(4)
    connecting = [
        pulsar_command(2, 2, [(1, b"hostile"), (4, 20)]),
        pulsar_command(5, 5, [(1, topic), (2, 0), (3, 1)]),
        pulsar_command(4, 4, [(1, topic), (2, b"s"), (3, 1), (4, 0), (5, 2), (13, 1)]),
    ]
    found = (
        Protocol("kafka", KAFKA, [], [], list(_kafka())),
        Protocol(
            "pulsar", PULSAR, connecting, ["CONNECT", "PRODUCER", "SUBSCRIBE"], list(_pulsar())
        ),
        Protocol("iggy", IGGY, [iggy_command(iggy.LOGIN, login)], ["login_user"], list(_iggy())),
        Protocol("http", HTTP, [], [], list(_http())),
    )
    return {protocol.name: protocol for protocol in found}
