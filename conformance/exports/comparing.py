"""The same records from the Parquet as a stock Kafka client reads them from the broker, whoever
wrote them: Kafka's, Pulsar's, Iggy's clients or HTTP, with every compression, of mixed sizes.

Both sides are summed up by a hash of each row, so that neither has to be held.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import iggy_py
import pulsar  # type: ignore[import-untyped]
import pyarrow.parquet as parquet
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from conformance.exports.writer import make_topic
from conformance.server import RunningBroker

KAFKA_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PULSAR_CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
PULSAR_SHARE, IGGY_SHARE, HTTP_SHARE = 0.2, 0.05, 0.01
IGGY_BATCH, HTTP_BATCH = 1000, 1000
READ_S = 120.0  # Nothing for so long: records are missing.
MASK = (1 << 64) - 1
POOL_BYTES = 1 << 20

Row = tuple[int, int, bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]
"""Partition, offset, key, value, time in ms, headers."""


@dataclass(slots=True)
class Sum:
    """Rows and the sum of their hashes: the same whatever the order."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Count rows in."""
        for row in rows:
            digest = blake2b(repr(row).encode(), digest_size=8).digest()
            self.total = self.total + int.from_bytes(digest, "little") & MASK
            self.rows += 1


def compare(records: int, seed: int) -> list[str]:
    """A line for each topic. Raises AssertionError where the two sides differ."""
    print("seed", seed, flush=True)
    lines = []
    with tempfile.TemporaryDirectory(prefix="braidlog-") as scratch, RunningBroker() as broker:
        counts = _write(broker, records, random.Random(seed))
        lake = Path(scratch) / "lake"
        command = [sys.executable, "-m", "broker.cli.main", "export", *counts]
        command += ["--to", str(lake), "--data-dir", str(broker.data_dir)]
        began = time.monotonic()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        lines.append(f"one export of all topics in {time.monotonic() - began:,.0f} s")
        for topic, count in counts.items():
            print(f"reading {topic}: {count}", flush=True)
            read, exported = Sum(), Sum()
            read.add(_consumed(broker, topic, count))
            exported.add(_exported(lake, topic))
            assert read.rows == count, f"{topic}: the client read {read.rows} of {count}"
            assert read == exported, f"{topic}: {read} was read, {exported} is in the files"
            lines.append(f"{topic}: {count:,} rows as confluent-kafka reads them, by their hashes")
    return lines


class _Values:
    """Values of mixed sizes, cut from one pool of text: Iggy's oldest clients take no other."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pool = rng.randbytes(POOL_BYTES // 2).hex()

    def text(self) -> str:
        """Mostly small, sometimes large."""
        chance, rng = self._rng.random(), self._rng
        size = 100 if chance < 0.95 else 1000 if chance < 0.999 else 20_000
        start = rng.randrange(POOL_BYTES - size)
        return self._pool[start : start + rng.randrange(1, size)]


def _write(broker: RunningBroker, records: int, rng: random.Random) -> dict[str, int]:
    """Topics and how many records each was given."""
    counts = {
        "pulsar": int(records * PULSAR_SHARE),
        "iggy": int(records * IGGY_SHARE),
        "http": int(records * HTTP_SHARE),
    }
    counts = {"kafka": records - sum(counts.values()), **counts}
    writers: dict[str, Callable[[RunningBroker, int, _Values], None]] = {
        "kafka": _write_kafka,
        "pulsar": _write_pulsar,
        "iggy": _write_iggy,
        "http": _write_http,
    }
    for topic, count in counts.items():
        print(f"writing {topic}: {count}", flush=True)
        make_topic(broker, topic, 2 if topic == "kafka" else 1)
        writers[topic](broker, count, _Values(rng))
    return counts


def _shares(count: int, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for number, name in enumerate(names):
        yield name, count // len(names) + (number < count % len(names))


def _write_kafka(broker: RunningBroker, count: int, values: _Values) -> None:
    for codec, share in _shares(count, KAFKA_CODECS):
        settings = {"bootstrap.servers": broker.addresses["kafka"], "compression.type": codec}
        producer = Producer(settings)
        for number in range(share):
            headers: Any = [("n", b"%d" % number), ("n", b"")] if number % 10 == 0 else None
            key = None if number % 3 else b"key %d" % number
            while True:
                try:
                    producer.produce("kafka", values.text(), key, headers=headers)
                    break
                except BufferError:
                    producer.poll(1)
        assert producer.flush(600) == 0


def _write_pulsar(broker: RunningBroker, count: int, values: _Values) -> None:
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}")
    for codec, share in _shares(count, PULSAR_CODECS):
        producer = client.create_producer(
            "pulsar",
            compression_type=getattr(pulsar.CompressionType, codec),
            batching_enabled=True,
            block_if_queue_full=True,
        )
        for number in range(share):
            properties = {"n": str(number)} if number % 10 == 0 else None
            key = f"key {number}" if number % 3 == 0 else None
            producer.send_async(
                values.text().encode(), None, properties=properties, partition_key=key
            )
        producer.flush()
        producer.close()
    client.close()


def _write_iggy(broker: RunningBroker, count: int, values: _Values) -> None:
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


def _write_http(broker: RunningBroker, count: int, values: _Values) -> None:
    url = f"{broker.url}/topics/public/default/http"
    for start in range(0, count, HTTP_BATCH):
        messages = [
            {"key": f"k{number}", "value": values.text(), "properties": {"a": "ä"}}
            for number in range(start, min(start + HTTP_BATCH, count))
        ]
        body = json.dumps({"messages": messages}).encode()
        urlopen(Request(url, body, {"Content-Type": "application/json"})).close()


def _consumed(broker: RunningBroker, topic: str, count: int) -> Iterator[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.addresses["kafka"],
            "group.id": "comparing",
            "enable.auto.commit": False,
        }
    )
    found = consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found])
    taken, heard = 0, time.monotonic()
    while taken < count:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            assert message.error() is None, message.error()
            yield _row(message)
        taken += len(messages)
        heard = time.monotonic() if messages else heard
        assert time.monotonic() - heard < READ_S, f"{topic}: {taken} of {count} came"
    consumer.close()


def _row(message: Any) -> Row:
    headers = tuple((name, value or b"") for name, value in message.headers() or ())
    time_ms = message.timestamp()[1]
    key, value = message.key(), message.value()
    return message.partition(), message.offset(), key, value, time_ms, headers


def _exported(lake: Path, topic: str) -> Iterator[Row]:
    columns = ["partition", "offset", "key", "value", "timestamp", "headers"]
    for path in (lake / f"topic=public%2Fdefault%2F{topic}").glob("**/*.parquet"):
        for batch in parquet.ParquetFile(path).iter_batches(20_000, columns=columns):
            times_us = batch["timestamp"].cast("int64").to_pylist()
            rows = [batch[name].to_pylist() for name in ("partition", "offset", "key", "value")]
            for *row, time_us, headers in zip(
                *rows, times_us, batch["headers"].to_pylist(), strict=True
            ):
                named = tuple((one["key"], one["value"]) for one in headers)
                yield (*row, time_us // 1000, named)
