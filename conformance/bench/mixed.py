"""Messages that differ as real messages do: sizes, keys, properties and times, from a seed.

Equal messages allow shortcuts that help no real client, so rates are published for these messages.
"""

import random
import struct
import time

from conformance.bench.iggy_load import D2
from conformance.clients.raw import iggy
from conformance.clients.raw.kafka import message
from conformance.clients.raw.pulsar import SEND, Fields, encode, entry, frame

SEED = 20
KEYED_OF_TEN = 7  # Messages of ten with a key of KEY_BYTES.
KEY_BYTES = 8
SET_BYTES = 128 * 1024
PROPERTIES_MAX = 3


def sizes(chance: random.Random, mean: int, count: int) -> list[int]:
    """Return sizes from a quarter of the mean to seven quarters."""
    return [chance.randint(mean // 4, mean * 7 // 4) for _ in range(count)]


def kafka_sets(value_bytes: int, number: int) -> tuple[list[bytes], int]:
    """Return `number` sets of format 0, each of about 128 KiB, and the messages per set."""
    chance = random.Random(SEED)
    count = SET_BYTES // (value_bytes + KEY_BYTES + 26)
    return [_kafka_set(chance, value_bytes, count) for _ in range(number)], count


def _kafka_set(chance: random.Random, value_bytes: int, count: int) -> bytes:
    parts = []
    for size in sizes(chance, value_bytes, count):
        key = chance.randbytes(KEY_BYTES) if chance.random() * 10 < KEYED_OF_TEN else None
        parts.append(message(key, chance.randbytes(size)))
    return b"".join(parts)


def pulsar_blocks(payload_bytes: int, block: int, number: int) -> list[bytes]:
    """Return `number` blocks of SENDs with increasing publish times, as from a real clock."""
    chance = random.Random(SEED)
    now_ms = int(time.time() * 1000)
    frames = [
        _pulsar_send(chance, sequence_id, size, now_ms + sequence_id // 7)
        for sequence_id, size in enumerate(sizes(chance, payload_bytes, block * number))
    ]
    return [b"".join(frames[at : at + block]) for at in range(0, len(frames), block)]


def _pulsar_send(chance: random.Random, sequence_id: int, size: int, publish_ms: int) -> bytes:
    metadata: Fields = [(1, b"bench"), (2, sequence_id), (3, publish_ms)]
    for at in range(chance.randint(0, PROPERTIES_MAX)):
        metadata.append((4, encode([(1, b"name%d" % at), (2, b"%d" % chance.randrange(10**6))])))
    if chance.random() * 10 < KEYED_OF_TEN:
        metadata.append((6, b"%08d" % chance.randrange(10**8)))
    return frame(SEND, [(1, 0), (2, sequence_id)], entry(metadata, chance.randbytes(size)))


class MixedD2(D2):
    """Iggy's dialect D2 with messages that differ. Implements `Dialect`."""

    def sends(self, topic: str, count: int, payload_bytes: int) -> bytes:
        return iggy.frame(iggy.SEND, iggy.send_body(topic, iggy_messages(count, payload_bytes)))


def iggy_messages(count: int, payload_bytes: int) -> bytes:
    """Return the messages of a SEND (dialect D2); three of ten have an id, a fifth has a header."""
    chance = random.Random(SEED)
    parts = []
    for size in sizes(chance, payload_bytes, count):
        message_id = chance.randbytes(16) if chance.random() < 0.3 else bytes(16)
        headers = b""
        if chance.random() < 0.2:
            value = b"%d" % chance.randrange(10**6)
            headers = struct.pack("<I", 4) + b"name" + struct.pack("<BI", 2, len(value)) + value
        parts.append(message_id + struct.pack("<I", len(headers)) + headers)
        parts.append(struct.pack("<I", size) + chance.randbytes(size))
    return b"".join(parts)
