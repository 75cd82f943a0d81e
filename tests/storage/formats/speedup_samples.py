"""Messages like real clients', seeded: sizes, keys, headers and times differ. Optionally with
changed bytes.
"""

import struct
import zlib

from crc32c import crc32c

from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    BaseCommand,
    CommandSend,
    MessageMetadata,
)
from braidlog.storage.formats.record import Record


def mutated(chance, data):
    """Return the data, or the data with bytes changed, cut off or inserted."""
    if chance.random() < 0.5 or not data:
        return data
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        place = chance.randrange(len(changed))
        kind = chance.random()
        if kind < 0.6:
            changed[place] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif kind < 0.8:
            del changed[place : place + chance.choice([1, 4, 20])]
        else:
            changed[place:place] = chance.randbytes(chance.choice([1, 4, 20]))
        if not changed:
            break
    return bytes(changed)


def sized(data):
    return struct.pack(">i", -1 if data is None else len(data)) + (data or b"")


def kafka_set(chance):
    """Return a set of format 0; a tenth of the sets has a compressed message."""
    parts = []
    for number in range(chance.randrange(1, 12)):
        key = chance.choice([None, b"", chance.randbytes(8)])
        value = chance.choice([None, b"", chance.randbytes(chance.randrange(1, 200))])
        attributes = 1 if chance.random() < 0.01 else chance.choice([0, 0, 8])
        body = bytes((0, attributes)) + sized(key) + sized(value)
        message = struct.pack(">I", zlib.crc32(body)) + body
        parts.append(struct.pack(">qi", number, len(message)) + message)
    if chance.random() < 0.2:
        parts.append(parts[0][: chance.randrange(1, len(parts[0]))])
    return b"".join(parts)


def pulsar_entry(chance, *, sequence_id, payload=None, **fields):
    """Return the part of a SEND behind its command."""
    metadata = MessageMetadata(producer_name="p-1", sequence_id=sequence_id, **fields)
    if "publish_time" not in fields:
        metadata.publish_time = 1_700_000_000_000 + chance.randrange(5000)
    if chance.random() < 0.5:
        metadata.partition_key = f"key-{chance.randrange(100)}"
    for number in range(chance.choice([0, 0, 1, 3])):
        metadata.properties.add(key=f"name{number}", value="v" * chance.randrange(20))
    if chance.random() < 0.2:
        metadata.event_time = chance.randrange(1 << 42)
    if chance.random() < 0.2:
        metadata.uncompressed_size = chance.randrange(1 << 20)
    packed = metadata.SerializeToString()
    if payload is None:
        payload = chance.randbytes(chance.randrange(150))
    checked = struct.pack(">I", len(packed)) + packed + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(checked)) + checked


def pulsar_send(chance, *, producer_id, sequence_id, payload=None, **fields):
    """Return the frame of a SEND."""
    rest = pulsar_entry(chance, sequence_id=sequence_id, payload=payload, **fields)
    send = CommandSend(producer_id=producer_id, sequence_id=sequence_id)
    if chance.random() < 0.3:
        send.num_messages = 1
    command = BaseCommand(type=BaseCommand.SEND, send=send).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(rest), len(command)) + command + rest


def pulsar_sends(chance):
    """Return (producer id, frames) of a producer."""
    producer_id, first = chance.randrange(1 << 20), chance.randrange(1 << 40)
    return producer_id, b"".join(
        pulsar_send(chance, producer_id=producer_id, sequence_id=first + number)
        for number in range(chance.randrange(1, 8))
    )


def iggy_messages(chance, *, with_ids=True):
    """Return messages of a SEND of the classic dialects."""
    parts = []
    for _ in range(chance.randrange(1, 12)):
        message_id = chance.randbytes(16) if with_ids and chance.random() < 0.5 else bytes(16)
        headers = b""
        for number in range(chance.choice([0, 0, 1, 2])):
            name = f"name{number}".encode() if chance.random() < 0.9 else "näme".encode()
            value = chance.randbytes(chance.randrange(1, 30))
            headers += struct.pack("<I", len(name)) + name
            headers += struct.pack("<BI", chance.randrange(1, 16), len(value)) + value
        payload = chance.randbytes(chance.randrange(1, 150))
        parts.append(message_id + struct.pack("<I", len(headers)) + headers)
        parts.append(struct.pack("<I", len(payload)) + payload)
    return b"".join(parts)


def kafka_batch(chance):
    """Return a record batch, often of a producer with sequences, sometimes said to be packed."""
    records = [
        Record(i, i, value=chance.randbytes(chance.randrange(60)), publish_us=i * 1000)
        for i in range(chance.randrange(1, 4))
    ]
    data = bytearray(KAFKA_BATCHES.encode(records, 0))
    if chance.random() < 0.5:
        place = chance.choice(((21, 2, (1, 4, 8)), (27, 8, (-1, 1 << 62, -(1 << 62)))))
        pos, size, values = place
        data[pos : pos + size] = chance.choice(values).to_bytes(size, "big", signed=True)
    if chance.random() < 0.5:
        data[43:57] = struct.pack(">qhi", chance.choice((0, 5, 1 << 61)), 3, 2**31 - 1)
    return bytes(sealed(data))


def resealed(chance, batch):
    """Return a record batch with a wrong field behind a good checksum."""
    data = bytearray(batch)
    pos = chance.choice((8, 16, 21, 22, 26, 43, 51, 53, 57, 60))
    data[pos] ^= chance.choice((1, 2, 0x20, 0x80, 0xFF))
    return bytes(sealed(data))


def sealed(data):
    """Return a record batch with the checksum of its bytes."""
    data[17:21] = struct.pack(">I", crc32c(data[21:]))
    return data
