"""Records of every protocol, with every compression and of mixed sizes, by stock clients."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.request import Request, urlopen

import apache_iggy
import iggy_py
import pulsar  # type: ignore[import-untyped]
from confluent_kafka import Producer

from conformance.exports.writer import make_topic
from conformance.server import RunningBroker

OLD_CODECS = ("none", "gzip", "snappy", "lz4")
KAFKA_CODECS = (*OLD_CODECS, "zstd")
PULSAR_CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
IGGY_BATCH, HTTP_BATCH = 1000, 1000
FLUSH_S = 600.0
POOL_BYTES = 1 << 20
# Settings of librdkafka for a 0.8 broker: message sets of format 0, no groups.
OLD_SETTINGS = {"api.version.request": False, "broker.version.fallback": "0.8.2.1", "log_level": 3}
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)


class TextValues:
    """Values of mixed sizes, cut from a pool of text: Iggy's oldest clients take only text."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pool = rng.randbytes(POOL_BYTES // 2).hex()

    def text(self) -> str:
        """Return a text, mostly small, sometimes large."""
        chance, rng = self._rng.random(), self._rng
        size = 100 if chance < 0.95 else 1000 if chance < 0.999 else 20_000
        start = rng.randrange(POOL_BYTES - size)
        return self._pool[start : start + rng.randrange(1, size)]


Writer = Callable[[RunningBroker, int, TextValues], None]


def write_all(broker: RunningBroker, records: int, rng: random.Random) -> dict[str, int]:
    """Write the records; return the topics and their numbers of records."""
    counts = {name: int(records * share) for name, (share, _) in WRITERS.items()}
    counts["kafka"] += records - sum(counts.values())
    for topic, count in counts.items():
        print(f"writing {topic}: {count}", flush=True)
        make_topic(broker, topic, 2 if topic.startswith("kafka") else 1)
        WRITERS[topic][1](broker, count, TextValues(rng))
    return counts


def _shares(count: int, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for number, name in enumerate(names):
        yield name, count // len(names) + (number < count % len(names))


def _write_kafka(broker: RunningBroker, count: int, values: TextValues) -> None:
    for codec, share in _shares(count, KAFKA_CODECS):
        _produce(broker, "kafka", share, values, {"compression.type": codec})


def _write_old(broker: RunningBroker, count: int, values: TextValues) -> None:
    for codec, share in _shares(count, OLD_CODECS):
        _produce(broker, "kafka-old", share, values, {"compression.type": codec, **OLD_SETTINGS})


def _produce(
    broker: RunningBroker, topic: str, count: int, values: TextValues, settings: dict[str, Any]
) -> None:
    producer = Producer({"bootstrap.servers": broker.addresses["kafka"], **settings})
    has_headers = "api.version.request" not in settings
    for number in range(count):
        tenth = has_headers and number % 10 == 0
        headers: Any = [("n", b"%d" % number), ("n", b"")] if tenth else None
        key = None if number % 3 else b"key %d" % number
        value = None if key and number % 7 == 0 else values.text()
        while True:
            try:
                producer.produce(topic, value, key, headers=headers)
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(FLUSH_S) == 0


def _write_pulsar(broker: RunningBroker, count: int, values: TextValues) -> None:
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}", logger=QUIET)
    for codec, share in _shares(count, PULSAR_CODECS):
        producer = client.create_producer(
            "pulsar",
            compression_type=getattr(pulsar.CompressionType, codec),
            batching_enabled=True,
            block_if_queue_full=True,
        )
        for number in range(share):
            tenth = number % 10 == 0
            producer.send_async(
                values.text().encode(),
                None,
                properties={"n": str(number), "ä": ""} if tenth else None,
                partition_key=f"key {number}" if number % 3 == 0 else None,
                ordering_key=f"order {number}" if number % 4 == 0 else None,
                event_timestamp=1_700_000_000_000 + number if number % 5 == 0 else None,
            )
        producer.flush()
        producer.close()
    client.close()


def _write_iggy(broker: RunningBroker, count: int, values: TextValues) -> None:
    async def send() -> None:
        client: Any = iggy_py.IggyClient(broker.addresses["iggy"])
        await client.connect()
        await client.login_user("iggy", "iggy")
        for start in range(0, count, IGGY_BATCH):
            batch = [
                iggy_py.SendMessage(values.text()) for _ in range(min(IGGY_BATCH, count - start))
            ]
            await client.send_messages("default", "iggy", 1, batch)

    asyncio.run(send())


def _headers(number: int) -> dict[str, Any]:
    """Return a header of each kind, in turn."""
    kinds = (
        apache_iggy.HeaderValue.Raw(b"\x00\xff"),
        apache_iggy.HeaderValue.String("ä"),
        apache_iggy.HeaderValue.Bool(number % 2 == 0),
        apache_iggy.HeaderValue.Int8(-5),
        apache_iggy.HeaderValue.Int16(-300),
        apache_iggy.HeaderValue.Int32(-number),
        apache_iggy.HeaderValue.Int64(-number << 32),
        apache_iggy.HeaderValue.Int128(-number << 80),
        apache_iggy.HeaderValue.UnsignedInt8(200),
        apache_iggy.HeaderValue.UnsignedInt16(60_000),
        apache_iggy.HeaderValue.UnsignedInt32(number),
        apache_iggy.HeaderValue.UnsignedInt64(number << 40),
        apache_iggy.HeaderValue.UnsignedInt128(number << 100),
        apache_iggy.HeaderValue.Float32(number / 4),
        apache_iggy.HeaderValue.Float64(number / 3),
    )
    return {"kind": kinds[number % len(kinds)], "n": apache_iggy.HeaderValue.UnsignedInt64(number)}


def _write_typed(broker: RunningBroker, count: int, values: TextValues) -> None:
    async def send() -> None:
        client = apache_iggy.IggyClient(broker.addresses["iggy"])
        await client.connect()
        await client.login_user("iggy", "iggy")
        for start in range(0, count, IGGY_BATCH):
            batch = [
                apache_iggy.SendMessage(
                    values.text().encode(),
                    _headers(number) if number % 3 == 0 else None,
                    number + 1,
                )
                for number in range(start, min(start + IGGY_BATCH, count))
            ]
            await client.send_messages("default", "iggy-typed", 0, batch)

    asyncio.run(send())


def _write_http(broker: RunningBroker, count: int, values: TextValues) -> None:
    url = f"{broker.url}/topics/public/default/http"
    for start in range(0, count, HTTP_BATCH):
        messages = [
            {"key": f"k{number}", "value": values.text(), "properties": {"a": "ä"}}
            for number in range(start, min(start + HTTP_BATCH, count))
        ]
        body = json.dumps({"messages": messages}).encode()
        urlopen(Request(url, body, {"Content-Type": "application/json"})).close()


# Share of all records, and the writer.
WRITERS: dict[str, tuple[float, Writer]] = {
    "kafka": (0.5, _write_kafka),
    "kafka-old": (0.2, _write_old),
    "pulsar": (0.2, _write_pulsar),
    "iggy": (0.07, _write_iggy),
    "iggy-typed": (0.02, _write_typed),
    "http": (0.01, _write_http),
}
