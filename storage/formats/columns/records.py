"""The columns of a run of records, from numpy arrays or from plain records, as one RecordBatch.

Knows the schema of tables and no stored format.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from braidlog.storage.formats.columns.schema import (
    FILE_SCHEMA,
    HEADER_KINDS,
    HEADERS,
    SET_BY_PRODUCER,
    SET_ON_APPEND,
    TIMESTAMP,
)
from braidlog.storage.formats.columns.vectors import (
    ABSENT,
    Array,
    Bytes,
    Slices,
    hex_texts,
    longs,
    text_of,
    texts,
)
from braidlog.storage.formats.record import Record

# Body formats whose name differs from their protocol's name.
PROTOCOL_OF = {"plain": "rest", "iggy_typed": "iggy", "kafka_batches": "kafka"}

_UINT64_RANGE = 1 << 64


@dataclass(slots=True)
class HeaderSlices:
    """Headers of all rows: `rows` (ascending) has the row of each header."""

    rows: Array
    names: Slices
    values: Slices
    kinds: Array

    @classmethod
    def of_steps(cls, steps: Sequence[tuple[Array, ...]]) -> "HeaderSlices":
        """Build from (row, name start, name end, value start, value end, kind) of each row's next
        header in turn.
        """
        joined = [np.concatenate(column) for column in zip(*steps, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        rows, name_start, name_end, value_start, value_end, kinds = (part[order] for part in joined)
        names, values = Slices(name_start, name_end), Slices(value_start, value_end)
        return cls(rows, names, values, kinds)

    def where(self, keep: Array) -> "HeaderSlices":
        """Return the headers of the rows that `keep` selects, renumbered."""
        rows_kept = keep[self.rows]
        rows = (np.cumsum(keep) - 1)[self.rows[rows_kept]]
        return HeaderSlices(
            rows, self.names.where(rows_kept), self.values.where(rows_kept), self.kinds[rows_kept]
        )


@dataclass(slots=True)
class Columns:
    """Records of a body format over an arena; None if no row has the field.

    Times are microseconds, ABSENT for a row without a time. `sequence_id` is unsigned in the log
    and kept as the same bits. `entry` is the offset of the Pulsar entry of each row, `batch_index`
    the index in that entry (-1: not batched); `message_id` has 16 little-endian bytes a row.
    """

    arena: bytes
    offset: Array
    append_us: Array
    publish_us: Array | None = None
    event_us: Array | None = None
    key: Bytes | None = None
    value: Bytes | None = None
    headers: HeaderSlices | None = None
    ordering_key: Bytes | None = None
    producer_name: Bytes | None = None
    sequence_id: Array | None = None
    sequence_absent: Array | None = None
    message_id: Array | None = None
    schema_version: Bytes | None = None
    entry: Array | None = None
    batch_index: Array | None = None
    deliver_at_us: Array | None = None

    def where(self, keep: Array) -> "Columns":
        """Return the rows that `keep` selects."""
        if keep.all():
            return self
        columns: dict[str, Any] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, np.ndarray):
                value = value[keep]
            elif value is not None and column.name != "arena":
                value = value.where(keep)
            columns[column.name] = value
        return Columns(**columns)


@dataclass(slots=True, frozen=True)
class ColumnTarget:
    """The partition of the columns, and the wanted columns."""

    partition_id: int
    partition: int
    names: frozenset[str] = field(default_factory=lambda: frozenset(FILE_SCHEMA.names))

    @property
    def schema(self) -> pa.Schema:
        """Return the wanted columns, in the order of files."""
        return pa.schema([column for column in FILE_SCHEMA if column.name in self.names])


def to_batch(columns: Columns, target: ColumnTarget, codec_name: str) -> pa.RecordBatch:
    """Return the wanted columns as Arrow arrays."""
    schema = target.schema
    arrays = [_ARRAYS[name](columns, target, codec_name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def records_to_batch(
    records: Sequence[Record],
    target: ColumnTarget,
    codec_name: str,
    places: Mapping[int, tuple[int, int]] | None = None,
) -> pa.RecordBatch:
    """Return the same for plain records; `places` has Pulsar's (entry, batch index) by offset."""
    schema = target.schema
    arrays = []
    for column in schema:
        if column.name in _OF_RECORDS:
            arrays.append(pa.array(_OF_RECORDS[column.name](records), column.type))
        elif column.name == "headers":
            arrays.append(_record_headers(records))
        elif column.name == "messageId":
            ids = [_message_id(record, target, places) for record in records]
            arrays.append(pa.array(ids, pa.string()))
        else:
            arrays.append(_constant(column.name, len(records), target, codec_name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _constant(name: str, count: int, target: ColumnTarget, codec_name: str) -> pa.Array:
    if name == "partition":
        return pa.repeat(pa.scalar(target.partition, pa.int32()), count)
    return pa.repeat(pa.scalar(PROTOCOL_OF.get(codec_name, codec_name), pa.string()), count)


def _bytes(column: Bytes | None, columns: Columns) -> pa.Array:
    if column is None:
        return pa.nulls(len(columns.offset), pa.binary())
    return column.to_arrow(columns.arena)


def _timestamp(columns: Columns, target: ColumnTarget, codec_name: str) -> pa.Array:
    times = columns.append_us
    if columns.publish_us is not None:
        times = np.where(columns.publish_us == ABSENT, times, columns.publish_us)
    return pa.array(times, pa.int64()).cast(TIMESTAMP)


def _timestamp_type(columns: Columns, target: ColumnTarget, codec_name: str) -> pa.Array:
    if columns.publish_us is None:
        return pa.repeat(pa.scalar(SET_ON_APPEND, pa.int32()), len(columns.offset))
    types = np.where(columns.publish_us == ABSENT, SET_ON_APPEND, SET_BY_PRODUCER)
    return pa.array(types, pa.int32())


def _header_ends(columns: Columns) -> pa.Array:
    ends = np.zeros(len(columns.offset) + 1, np.int32)
    if columns.headers is not None:
        counts = np.bincount(columns.headers.rows, minlength=len(columns.offset))
        np.cumsum(counts, out=ends[1:])
    return pa.array(ends)


def _headers(columns: Columns, target: ColumnTarget, codec_name: str) -> pa.Array:
    headers = columns.headers
    names, values = pa.array([], pa.string()), pa.array([], pa.binary())
    if headers is not None:
        names = texts(headers.names.to_arrow(columns.arena))
        values = headers.values.to_arrow(columns.arena)
    items = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(_header_ends(columns), items, type=HEADERS)


def _header_kinds(columns: Columns, target: ColumnTarget, codec_name: str) -> pa.Array:
    headers = columns.headers
    items = pa.array([] if headers is None else headers.kinds, pa.int32())
    return pa.ListArray.from_arrays(_header_ends(columns), items, type=HEADER_KINDS)


def _ids(columns: Columns, target: ColumnTarget, codec_name: str) -> pa.Array:
    """Return Pulsar's ledger:entry:partition[:batch index], or a 128-bit id in hex if there is any.

    The text is that of MessageIdImpl and BatchMessageIdImpl of Pulsar's Java client.
    """
    if columns.message_id is not None:
        return hex_texts(columns.message_id)
    if columns.entry is None or columns.batch_index is None:
        return pa.nulls(len(columns.offset), pa.string())
    entries = pa.array(columns.entry).cast(pa.string())
    joined = pa.compute.binary_join_element_wise(
        str(target.partition_id), entries, str(target.partition), ":"
    )
    places = columns.batch_index
    if (places < 0).all():
        return joined
    numbers = pa.array(places).cast(pa.string())
    batched = pa.compute.binary_join_element_wise(joined, numbers, ":")
    return pa.compute.if_else(pa.array(places >= 0), batched, joined)


def _sequence_ids(columns: Columns, target: ColumnTarget, codec_name: str) -> pa.Array:
    if columns.sequence_id is None:
        return pa.nulls(len(columns.offset), pa.int64())
    return pa.array(columns.sequence_id, pa.int64(), mask=columns.sequence_absent)


def _times(name: str) -> "Maker":
    return lambda columns, *_: longs(getattr(columns, name), len(columns.offset), TIMESTAMP)


def _blobs(name: str) -> "Maker":
    return lambda columns, *_: _bytes(getattr(columns, name), columns)


Maker = Callable[[Columns, ColumnTarget, str], pa.Array]

_ARRAYS: dict[str, Maker] = {
    "key": _blobs("key"),
    "value": _blobs("value"),
    "partition": lambda columns, target, name: _constant(
        "partition", len(columns.offset), target, name
    ),
    "offset": lambda columns, *_: pa.array(columns.offset, pa.int64()),
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
    "headerKinds": _header_kinds,
    "protocol": lambda columns, target, name: _constant(
        "protocol", len(columns.offset), target, name
    ),
    "eventTime": _times("event_us"),
    "appendTime": _times("append_us"),
    "messageId": _ids,
    "producerName": lambda columns, *_: texts(_bytes(columns.producer_name, columns)),
    "sequenceId": _sequence_ids,
    "schemaVersion": _blobs("schema_version"),
    "orderingKey": _blobs("ordering_key"),
    "deliverAt": _times("deliver_at_us"),
}


def _message_id(
    record: Record, target: ColumnTarget, places: Mapping[int, tuple[int, int]] | None
) -> str | None:
    if record.message_id:
        return f"{record.message_id:032x}"
    if places is None:
        return None
    entry, batch_index = places[record.offset]
    suffix = f":{batch_index}" if batch_index >= 0 else ""
    return f"{target.partition_id}:{entry}:{target.partition}{suffix}"


def _record_headers(records: Sequence[Record]) -> pa.Array:
    """Build from flat lists: only existing headers cost an object."""
    names: list[str] = []
    values: list[bytes] = []
    ends = [0]
    for record in records:
        for header in record.headers:
            names.append(text_of(header.name))
            values.append(header.value)
        ends.append(len(names))
    items = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())],
        fields=list(HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=HEADERS)


def signed(number: int) -> int:
    """Return the int64 with the same bits as a u64: a table has no unsigned numbers in Spark."""
    number %= _UINT64_RANGE
    return number - _UINT64_RANGE if number >= _UINT64_RANGE // 2 else number


_OF_RECORDS: dict[str, Callable[[Sequence[Record]], Iterable[Any]]] = {
    "key": lambda records: [r.key for r in records],
    "value": lambda records: [r.value for r in records],
    "offset": lambda records: [r.offset for r in records],
    "timestamp": lambda records: [
        r.append_us if r.publish_us is None else r.publish_us for r in records
    ],
    "timestampType": lambda records: [
        SET_ON_APPEND if r.publish_us is None else SET_BY_PRODUCER for r in records
    ],
    "headerKinds": lambda records: [[h.kind for h in r.headers] for r in records],
    "eventTime": lambda records: [r.event_us for r in records],
    "appendTime": lambda records: [r.append_us for r in records],
    "producerName": lambda records: [
        None if r.producer_name is None else text_of(r.producer_name) for r in records
    ],
    "sequenceId": lambda records: [
        None if r.sequence_id is None else signed(r.sequence_id) for r in records
    ],
    "schemaVersion": lambda records: [r.schema_version for r in records],
    "orderingKey": lambda records: [r.ordering_key for r in records],
    "deliverAt": lambda records: [r.deliver_at_us for r in records],
}
