"""Values as JSON or Avro, decoded into the column `data`. Knows Arrow and no log.

Arrow's reader parses JSON, many values at a time. A block that does not parse is halved until the
bad values are alone.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json

from braidlog.storage.export.source.options import ValueFormat
from braidlog.storage.export.source.value_types import struct_type

VERSION_BYTES = 8  # Size of a schema version in Pulsar's records.
BLOCK_BYTES = 64 << 20  # Larger than any block, because Arrow must see a single block.


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A row whose value does not match the schema: its place in the batch, and the reason."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class ValueDecoder:
    """Decodes values of a format and type; `schema` is Avro's, as JSON.

    `writers` are the topic's registered schemas by version, for values with a schema version.
    """

    name: str
    type: pa.StructType
    schema: str
    writers: tuple[str, ...] = ()

    def knows(self, versions: pa.Array) -> bool:
        """Return True if all of these schema versions of records are known."""
        named = (version for version in versions.unique().to_pylist() if version is not None)
        return all(self._writer(version) is not None for version in named)

    def _writer(self, version: bytes) -> str | None:
        number = int.from_bytes(version, "big") if len(version) == VERSION_BYTES else -1
        return (self.writers[number] or None) if 0 <= number < len(self.writers) else None

    def decode(
        self, values: pa.Array, versions: pa.Array | None = None
    ) -> tuple[pa.Array, list[Undecodable]]:
        """Return `data` for each value, null for values that are null or do not decode.

        `versions` are the schema versions of the records.
        """
        raw_values = values.to_pylist()
        rows = [row for row, value in enumerate(raw_values) if value is not None]
        bad: list[Undecodable] = []
        if self.name == "avro":
            named = [None] * len(raw_values) if versions is None else versions.to_pylist()
            parts = self._avro(raw_values, named, rows, bad)
        else:  # Arrow skips a blank line, which would hide that another value makes two rows.
            bad += [
                Undecodable(row, "not JSON: blank") for row in rows if not raw_values[row].strip()
            ]
            parts = self._json(raw_values, [row for row in rows if raw_values[row].strip()], bad)
        failed = {undecodable.row for undecodable in bad}
        good = [row for row in rows if row not in failed]
        whole = pa.concat_arrays(parts) if parts else pa.array([], self.type)
        places = np.full(len(raw_values), -1, np.int64)
        places[good] = np.arange(len(good))
        return whole.take(pa.array(places, mask=places < 0)), bad

    def _json(
        self, values: Sequence[bytes], rows: Sequence[int], bad: list[Undecodable]
    ) -> list[pa.Array]:
        if not rows:
            return []
        try:
            return [self._parsed([values[row] for row in rows])]
        except (pa.ArrowException, msgspec.DecodeError, ValueError) as error:
            if len(rows) == 1:
                bad.append(Undecodable(rows[0], f"not JSON of the schema: {error}"))
                return []
        middle = len(rows) // 2
        return [
            *self._json(values, rows[:middle], bad),
            *self._json(values, rows[middle:], bad),
        ]

    def _parsed(self, values: Sequence[bytes]) -> pa.Array:
        lines = [_line(value) for value in values]
        content = b"\n".join(lines)
        table = pyarrow.json.read_json(
            io.BytesIO(content),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=max(len(content) + 1, BLOCK_BYTES)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(self.type)), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(values):
            raise ValueError("not exactly one JSON object per value")
        columns = [table[field.name].combine_chunks().cast(field.type) for field in self.type]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _avro(
        self,
        values: Sequence[bytes],
        versions: Sequence[bytes | None],
        rows: Sequence[int],
        bad: list[Undecodable],
    ) -> list[pa.Array]:
        import fastavro

        reader = fastavro.parse_schema(json.loads(self.schema))
        writers: dict[bytes | None, Any] = {None: reader}
        for version in set(versions) - {None}:
            text = self._writer(version or b"")
            writers[version] = text and fastavro.parse_schema(json.loads(text))
        decoded: list[tuple[int, object]] = []
        for row in rows:
            source, writer = io.BytesIO(values[row]), writers[versions[row]]
            if writer is None:
                bad.append(Undecodable(row, "its schema version is not registered as Avro"))
                continue
            try:
                decoded_value = fastavro.schemaless_reader(source, writer, reader)
            except Exception as error:  # fastavro raises any error for bad bytes.
                bad.append(Undecodable(row, f"not Avro of the schema: {error}"))
                continue
            if source.tell() == len(values[row]):
                decoded.append((row, decoded_value))
            else:
                bad.append(Undecodable(row, "not Avro of the schema: bytes are left"))
        return [self._fitting(decoded, bad)]

    def _fitting(self, decoded: Sequence[tuple[int, object]], bad: list[Undecodable]) -> pa.Array:
        """Return the values that fit the columns: times beyond the year 9999, for example, do
        not.
        """
        try:
            return pa.array([decoded_value for _, decoded_value in decoded], self.type)
        except (pa.ArrowException, ValueError, OverflowError):
            parts = []
            for row, decoded_value in decoded:
                try:
                    parts.append(pa.array([decoded_value], self.type))
                except (pa.ArrowException, ValueError, OverflowError) as error:
                    bad.append(Undecodable(row, f"no value of the schema: {error}"))
            return pa.concat_arrays(parts) if parts else pa.array([], self.type)


def decoder_of(format_: ValueFormat) -> ValueDecoder:
    """Return the decoder for the options. Raises BadOption."""
    type_ = struct_type(format_.schema, avro=format_.name == "avro")
    return ValueDecoder(format_.name, type_, format_.schema)


def _line(value: bytes) -> bytes:
    """Return a value on a single line; JSON may span several."""
    if b"\n" not in value and b"\r" not in value:
        return value
    return msgspec.json.encode(msgspec.json.decode(value))
