"""The records that stock clients read from the broker, and the same records from an export's files,
as rows.

Each view is a client with the record fields that it returns, and the columns of the same fields.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import apache_iggy
import pulsar  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as parquet
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from conformance.server import RunningBroker

READ_S = 120.0  # After this time without a record, records are missing.
BATCH_ROWS = 20_000
IGGY_POLL = 1000
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)

Row = tuple[Any, ...]
Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class ReadView:
    """A client's records of a topic, and the equal rows from exported columns."""

    client: str
    consumed: Callable[[RunningBroker, str, int], Iterator[Row]]
    columns: tuple[str, ...]
    exported: Callable[[Columns], Iterator[Row]]


def exported_rows(lake: Path, topic: str, view: ReadView) -> Iterator[Row]:
    """Yield the rows of every file of a topic; times are in microseconds."""
    for path in (lake / f"topic=public%2Fdefault%2F{topic}").glob("**/*.parquet"):
        for batch in parquet.ParquetFile(path).iter_batches(BATCH_ROWS, columns=view.columns):
            yield from view.exported({name: _values(batch[name]) for name in view.columns})


def _values(column: pa.Array) -> list[Any]:
    """Return a column as `to_pylist` does; headers as tuples of name and value,
    times as numbers.
    """
    if pa.types.is_timestamp(column.type):
        column = column.cast("int64")
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    if pa.types.is_list(column.type):
        items = column.values
        if pa.types.is_struct(items.type):
            each = list(zip(*map(_values, items.flatten()), strict=True))
        else:
            each = items.to_numpy().tolist()
        ends = column.offsets.to_numpy().tolist()
        return [tuple(each[start:end]) if start < end else () for start, end in pairwise(ends)]
    if column.null_count:
        return column.to_pylist()
    return column.to_numpy().tolist()


# Kafka's view: every topic.


def _kafka_consumed(broker: RunningBroker, topic: str, count: int) -> Iterator[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.addresses["kafka"],
            "group.id": "comparing",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    received, heard = 0, time.monotonic()
    while received < count:
        messages = consumer.consume(10_000, 1.0)
        failed = [message.error() for message in messages if message.error() is not None]
        assert not failed, failed[0]
        yield from map(_kafka_row, messages)
        received += len(messages)
        heard = time.monotonic() if messages else heard
        assert time.monotonic() - heard < READ_S, f"{topic}: {received} of {count} came"
    consumer.close()


def _kafka_row(message: Any) -> Row:
    headers = message.headers()
    return (
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp()[1],
        tuple((name, value or b"") for name, value in headers) if headers else (),
    )


def _kafka_exported(columns: Columns) -> Iterator[Row]:
    *others, times_us, headers = columns.values()
    return zip(*others, [time_us // 1000 for time_us in times_us], headers, strict=True)


# Pulsar's view: properties have their own order, and unique names.


def _pulsar_consumed(broker: RunningBroker, topic: str, count: int) -> Iterator[Row]:
    client = pulsar.Client(f"pulsar://{broker.addresses['pulsar']}", logger=QUIET)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    for _ in range(count):
        message = reader.read_next(int(READ_S * 1000))
        place = message.message_id()
        batch_index = max(place.batch_index(), 0)
        yield (
            place.entry_id() + batch_index,
            message.partition_key() or None,
            message.data(),
            message.publish_timestamp(),
            message.event_timestamp(),
            tuple(sorted(message.properties().items())),
            message.ordering_key() or None,
            message.producer_name(),
        )
    client.close()


def _pulsar_exported(columns: Columns) -> Iterator[Row]:
    for offset, key, value, time_us, event_us, headers, order, name in zip(
        *columns.values(), strict=True
    ):
        yield (
            offset,
            None if key is None else key.decode(),
            value,
            time_us // 1000,
            (event_us or 0) // 1000,
            tuple(sorted((name, value.decode()) for name, value in headers)),
            None if order is None else order.decode(),
            name,
        )


# Iggy's view: kinds of headers, ids.

KINDS = {
    "Raw": (1, bytes),
    "String": (2, str.encode),
    "Bool": (3, lambda value: bytes([value])),
    "Float32": (14, struct.Struct("<f").pack),
    "Float64": (15, struct.Struct("<d").pack),
    **{
        f"Int{8 << at}": (
            4 + at,
            lambda value, at=at: value.to_bytes(1 << at, "little", signed=True),
        )
        for at in range(5)
    },
    **{
        f"UnsignedInt{8 << at}": (9 + at, lambda value, at=at: value.to_bytes(1 << at, "little"))
        for at in range(5)
    },
}


def _iggy_consumed(broker: RunningBroker, topic: str, count: int) -> Iterator[Row]:
    with asyncio.Runner() as runner:

        async def connected() -> Any:
            client = apache_iggy.IggyClient(broker.addresses["iggy"])
            await client.connect()
            await client.login_user("iggy", "iggy")
            return client

        async def poll(client: Any, offset: int) -> list[Any]:
            polled: list[Any] = await client.poll_messages(
                "default",
                topic,
                consumer=apache_iggy.Consumer.Single("comparing"),
                polling_strategy=apache_iggy.PollingStrategy.Offset(offset),
                count=IGGY_POLL,
                auto_commit=False,
                partition_id=0,
            )
            return polled

        client, received = runner.run(connected()), 0
        while received < count:
            messages = runner.run(poll(client, received))
            assert messages, f"{topic}: {received} of {count} came"
            yield from map(_iggy_row, messages)
            received += len(messages)


def _iggy_row(message: Any) -> Row:
    headers = []
    for name, value in (message.user_headers() or {}).items():
        kind, to_bytes = KINDS[type(value).__name__]
        headers.append((name.value, kind, to_bytes(value.value)))
    return (
        message.offset(),
        message.id(),
        bytes(message.payload()),
        message.timestamp(),
        message.origin_timestamp(),
        tuple(sorted(headers)),
    )


def _iggy_exported(columns: Columns) -> Iterator[Row]:
    for offset, given_id, value, append_us, time_us, headers, kinds in zip(
        *columns.values(), strict=True
    ):
        named = zip(headers, kinds, strict=True)
        yield (
            offset,
            int(given_id, 16),
            value,
            append_us,
            time_us,
            tuple(sorted((name, kind, value) for (name, value), kind in named)),
        )


KAFKA = ReadView(
    "confluent-kafka",
    _kafka_consumed,
    ("partition", "offset", "key", "value", "timestamp", "headers"),
    _kafka_exported,
)
# Kafka receives numbers in Iggy's headers as text (docs/mapping.md): compare without headers.
KAFKA_BARE = ReadView(
    "confluent-kafka, but for headers",
    lambda broker, topic, count: (row[:-1] for row in _kafka_consumed(broker, topic, count)),
    KAFKA.columns[:-1],
    lambda columns: (
        (*row, time_us // 1000) for *row, time_us in zip(*columns.values(), strict=True)
    ),
)
PULSAR = ReadView(
    "pulsar-client",
    _pulsar_consumed,
    (
        "offset",
        "key",
        "value",
        "timestamp",
        "eventTime",
        "headers",
        "orderingKey",
        "producerName",
    ),
    _pulsar_exported,
)
IGGY = ReadView(
    "apache-iggy",
    _iggy_consumed,
    ("offset", "messageId", "value", "appendTime", "timestamp", "headers", "headerKinds"),
    _iggy_exported,
)
VIEWS = {"pulsar": (KAFKA, PULSAR), "iggy-typed": (KAFKA_BARE, IGGY)}


def views(topic: str) -> tuple[ReadView, ...]:
    """Return the views of a topic: Kafka's, and that of the client whose records
    have more fields.
    """
    return VIEWS.get(topic, (KAFKA,))
