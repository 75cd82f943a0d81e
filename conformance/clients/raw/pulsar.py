"""Hand-made Pulsar commands, with a protobuf writer of a few lines (PulsarApi.proto, wire format of
proto2).
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

import crc32c

from conformance.clients.raw.wire import Wire

Value = int | bytes
Fields = list[tuple[int, Value]]

CONNECT, SUBSCRIBE, PRODUCER, SEND, RECEIPT, MESSAGE, ACK, FLOW = 2, 4, 5, 6, 7, 9, 10, 11
SUCCESS, ERROR, PING, PONG, SEND_ERROR = 13, 14, 18, 19, 8
UNSUBSCRIBE, CLOSE_CONSUMER, REDELIVER, SEEK, ACTIVE, ACK_RESPONSE = 12, 16, 20, 28, 31, 38
LOOKUP, LOOKED_UP = 23, 24


def varint(number: int) -> bytes:
    """Return base-128, little-endian groups; negative numbers as 64-bit two's complement."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def encode(fields: Fields) -> bytes:
    """Return a protobuf message: ints as varints, bytes length-delimited."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def parse(data: bytes) -> Fields:
    """Return the fields of a protobuf message, in order; varints and length-delimited fields only
    (Pulsar uses no others).
    """
    fields: Fields = []
    pos = 0
    while pos < len(data):
        tag, pos = _varint_at(data, pos)
        number, pos = _varint_at(data, pos)
        if tag & 7 == 0:
            fields.append((tag >> 3, number))
        else:
            assert tag & 7 == 2, f"wire type {tag & 7}"
            fields.append((tag >> 3, data[pos : pos + number]))
            pos += number
    return fields


def _varint_at(data: bytes, pos: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[pos]
        number |= (byte & 0x7F) << shift
        pos += 1
        shift += 7
        if byte < 0x80:
            return number, pos


def field_of(fields: Fields, number: int) -> Value | None:
    """Return the first value of a field."""
    return next((value for field_number, value in fields if field_number == number), None)


def frame(kind: int, fields: Fields, payload: bytes = b"") -> bytes:
    """Return a whole command, followed by a SEND's payload section."""
    command = encode([(1, kind), (kind, encode(fields))])
    head = struct.pack(">II", 4 + len(command) + len(payload), len(command))
    return head + command + payload


def entry(metadata: Fields, payload: bytes, *, checksum: bool = True) -> bytes:
    """Return the part behind a SEND's command: checksum, metadata and payload."""
    head = encode(metadata)
    rest = struct.pack(">I", len(head)) + head + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(rest)) + rest if checksum else rest


def batch(values: Iterable[bytes]) -> bytes:
    """Return the payload of a batch: each value behind its minimal metadata."""
    parts = []
    for value in values:
        head = encode([(3, len(value))])
        parts += (struct.pack(">I", len(head)), head, value)
    return b"".join(parts)


@dataclass(slots=True)
class Delivered:
    """A MESSAGE frame: its id, the metadata's fields and the received payload."""

    ledger: int
    entry: int
    metadata: Fields
    payload: bytes
    command: Fields = field(default_factory=list)


class PulsarWire(Wire):
    """A connection after CONNECT."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.command(CONNECT, [(1, b"raw frames"), (4, 20)])
        self.expect(3)

    def command(self, kind: int, fields: Fields, payload: bytes = b"") -> None:
        """Send a command, followed by a SEND's payload section."""
        self.send(frame(kind, fields, payload))

    def take_command(self) -> tuple[int, Fields, bytes]:
        """Return (type, fields of the command, rest of the frame); answer PINGs on the way."""
        while True:
            frame = self.take_frame()
            (size,) = struct.unpack_from(">I", frame)
            (_, kind), *rest = parse(frame[4 : 4 + size])
            assert isinstance(kind, int)
            if kind != PING:
                inner = rest[0][1] if rest else b""
                assert isinstance(inner, bytes)
                return kind, parse(inner), frame[4 + size :]
            self.command(PONG, [])

    def expect(self, kind: int) -> Fields:
        """Return the fields of the next command, which must be of this type."""
        received, fields, _ = self.take_command()
        assert received == kind, f"command {received} {fields}, expected {kind}"
        return fields

    def look_up(self, topic: str) -> None:
        """Look up the topic, as every client does first: Pulsar serves no topic
        without a lookup.
        """
        name = f"persistent://public/default/{topic}".encode()
        self.command(LOOKUP, [(1, name), (2, 0)])
        self.expect(LOOKED_UP)

    def open_producer(self, topic: str) -> None:
        """Open producer 0."""
        name = f"persistent://public/default/{topic}".encode()
        self.command(PRODUCER, [(1, name), (2, 0), (3, 1)])
        self.expect(17)

    def publish(self, sequence_id: int, metadata: Fields, payload: bytes) -> tuple[int, int]:
        """Send a message without a checksum; return the (ledger, entry) of its receipt."""
        sent = entry([(1, b"raw"), (2, sequence_id), *metadata], payload, checksum=False)
        self.command(SEND, [(1, 0), (2, sequence_id)], sent)
        message_id = field_of(self.expect(RECEIPT), 3)
        assert isinstance(message_id, bytes)
        return _ids(message_id)

    def subscribe(self, topic: str, subscription: str, permits: int = 1000) -> None:
        """Subscribe consumer 0: Exclusive, durable, from the earliest message."""
        name = f"persistent://public/default/{topic}".encode()
        fields: Fields = [(1, name), (2, subscription.encode()), (3, 0), (4, 0), (5, 2), (13, 1)]
        self.command(SUBSCRIBE, fields)
        self.expect(SUCCESS)
        self.command(FLOW, [(1, 0), (2, permits)])

    def next_message(self) -> Delivered:
        """Return the next MESSAGE."""
        kind, fields, rest = self.take_command()
        assert kind == MESSAGE, f"command {kind} {fields}"
        message_id = field_of(fields, 2)
        assert isinstance(message_id, bytes)
        if rest[:2] == b"\x0e\x01":
            rest = rest[6:]
        (size,) = struct.unpack_from(">I", rest)
        ledger, entry = _ids(message_id)
        return Delivered(ledger, entry, parse(rest[4 : 4 + size]), rest[4 + size :], fields)


def _ids(message_id: bytes) -> tuple[int, int]:
    fields = parse(message_id)
    ledger, entry = field_of(fields, 1), field_of(fields, 2)
    assert isinstance(ledger, int) and isinstance(entry, int)
    return ledger, entry
