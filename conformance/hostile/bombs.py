"""Bodies that unpack to a thousand times their size, or claim that size, in every codec of Kafka's
sets and batches and of Pulsar's messages, read through every protocol at the same time.
"""

import contextlib
import gzip
import struct
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import cramjam

from conformance.clients.raw import iggy, kafka
from conformance.clients.raw.iggy import FIRST, IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire
from conformance.hostile.rows_kafka import record_batch, wrapped_message
from conformance.server import RunningBroker

MIB = 1 << 20
ZEROS = bytes(900_000)
READERS = 8  # At the same time.
NOW_MS = 1_700_000_000_000
PATIENCE_S = 300

# By Kafka's codec number: the compressor, and a number of values that keeps the packed set below a
# megabyte.
KAFKA: dict[int, tuple[Callable[[bytes], bytes], int]] = {
    1: (gzip.compress, 60),
    2: (lambda data: bytes(cramjam.snappy.compress_raw(data)), 18),
    3: (lambda data: bytes(cramjam.lz4.compress(data)), 60),
    4: (lambda data: bytes(cramjam.zstd.compress(data)), 60),  # For batches only.
}
# By Pulsar's codec number: compressors of messages that unpack to 5 MiB.
PULSAR: dict[int, Callable[[bytes], bytes]] = {
    1: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    2: zlib.compress,
    3: lambda data: bytes(cramjam.zstd.compress(data)),
    4: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
LIES = b"\x28\xb5\x2f\xfd garbage"  # Claimed to be 64 MiB.


def make_bombs(broker: RunningBroker) -> list[str]:
    """Store all bombs; return their topics. Raises AssertionError if a valid body is refused."""
    topics: list[str] = []
    with KafkaWire(broker.address("kafka")) as wire:
        for codec, (pack, count) in KAFKA.items():
            for kind, version, body in _kafka_bombs(codec, pack, count):
                topics.append(f"bomb-{kind}-{codec}")
                wire.create(topics[-1])
                request = kafka.produce_body(topics[-1], body)
                if version >= 3:
                    request = kafka.string(None) + request
                answer = wire.ask(kafka.PRODUCE, version, request)
                tail = answer[:-4] if version else answer  # Without the throttle time.
                size = 18 if version >= 3 else 10
                (error,) = struct.unpack_from(">h", tail, len(tail) - size)
                assert error == 0, (topics[-1], error)
    with PulsarWire(broker.address("pulsar")) as producer:
        topics.append("bomb-pulsar")
        producer.open_producer(topics[-1])
        sequence = 0
        for codec, pack in PULSAR.items():
            whole = bytes(5 * MIB)
            for declared, payload in ((len(whole), pack(whole)), (1 << 26, LIES)):
                metadata = [(3, NOW_MS), (8, codec), (9, declared)]
                with contextlib.suppress(AssertionError):  # A refusal is as good.
                    producer.publish(sequence, metadata, payload)
                sequence += 1
    return topics


def _kafka_bombs(
    codec: int, pack: Callable[[bytes], bytes], count: int
) -> Iterator[tuple[str, int, bytes]]:
    if codec < 4:
        yield "set", 0, wrapped_message(codec, pack(kafka.message(None, ZEROS) * count))
    records = b"".join(map(_record, range(count)))
    yield "batch", 3, record_batch(pack(records), count, codec)


def _record(number: int) -> bytes:
    """Return a record of a batch: attributes, deltas of time and offset, no key, the value, no
    header.
    """
    body = b"\0\0" + zigzag(number) + zigzag(-1) + zigzag(len(ZEROS)) + ZEROS + zigzag(0)
    return zigzag(len(body)) + body


def zigzag(number: int) -> bytes:
    """Return a number as in record batches (KIP-98)."""
    rest, out = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(out) + bytes([rest])


def read_bombs(broker: RunningBroker, topics: list[str], times: int) -> None:
    """Read each topic `times` times through every protocol."""
    with ThreadPoolExecutor(READERS) as readers:
        done = [
            readers.submit(read, broker, topic)
            for _ in range(times)
            for topic in topics
            for read in (_by_kafka, _by_iggy, _by_pulsar, _by_http)
        ]
    for future in done:
        future.result()


def _by_kafka(broker: RunningBroker, topic: str) -> None:
    with KafkaWire(broker.address("kafka")) as wire:
        wire.fetch(topic, 0, wait_ms=0)


def _by_iggy(broker: RunningBroker, topic: str) -> None:
    with IggyWire(broker.address("iggy")) as wire:
        wire.ask(iggy.POLL, iggy.poll_body(topic, 100, FIRST, 0, "bomb"))


def _by_pulsar(broker: RunningBroker, topic: str) -> None:
    with PulsarWire(broker.address("pulsar")) as wire:
        name = f"persistent://public/default/{topic}".encode()
        # A reader: Exclusive, non-durable, from the earliest message.
        wire.command(4, [(1, name), (2, b"bomb"), (3, 1), (4, 0), (5, 2), (8, 0), (13, 1)])
        wire.expect(13)
        wire.command(11, [(1, 0), (2, 100)])
        wire.socket.settimeout(1.0)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(4):
                wire.take_frame()


def _by_http(broker: RunningBroker, topic: str) -> None:
    path = f"/topics/public/default/{topic}/partitions/0/messages?timeout=0&max_bytes=10485760"
    with (
        contextlib.suppress(urllib.error.HTTPError),
        urllib.request.urlopen(f"{broker.url}{path}", timeout=PATIENCE_S) as answer,
    ):
        while answer.read(MIB):
            pass
