"""The columns of a DataFrame: names, types and order, and the conversion of rows.

Knows Arrow and Spark's type names, no reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from braidlog.storage.export.source.options import BadOption
from braidlog.storage.formats.columns.schema import (
    FILE_SCHEMA,
    HEADER_COLUMNS,
    KAFKA_COLUMNS,
    METADATA_COLUMNS,
)

DATA = "data"

SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "headerKinds": "array<int>",
    "protocol": "string",
    "eventTime": "timestamp",
    "appendTime": "timestamp",
    "messageId": "string",
    "producerName": "string",
    "sequenceId": "bigint",
    "schemaVersion": "binary",
    "orderingKey": "binary",
    "deliverAt": "timestamp",
}


def column_names(*, headers: bool, metadata: bool) -> tuple[str, ...]:
    """Return the columns of a DataFrame with these options, in order."""
    names: tuple[str, ...] = KAFKA_COLUMNS
    if headers:
        names += HEADER_COLUMNS
    if metadata:
        names += METADATA_COLUMNS
    return names


def ddl(names: Sequence[str]) -> str:
    """Return the columns in Spark's DDL."""
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in names)


def check_columns(wanted: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of the requested (name, Spark type) pairs. Raises BadOption."""
    for name, type_ in wanted:
        if name == DATA:
            continue
        if name not in SPARK_TYPES:
            known = ", ".join(SPARK_TYPES)
            raise BadOption(f"schema: there is no column {name!r}; there are: {known}")
        if type_ != SPARK_TYPES[name]:
            raise BadOption(f"schema: column {name} is {SPARK_TYPES[name]}, not {type_}")
    return tuple(name for name, _ in wanted)


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one reader; `data` is the type of the column of decoded values."""

    names: tuple[str, ...]
    data: pa.DataType | None = None

    @property
    def stored(self) -> frozenset[str]:
        """The stored columns that must be decoded."""
        wanted = {name for name in self.names if name not in ("topic", DATA)}
        if DATA in self.names:
            wanted |= {"value", "offset", "schemaVersion"}
        return frozenset(wanted or {"offset"})

    @property
    def schema(self) -> pa.Schema:
        """The schema that Spark's `to_arrow_schema` makes from the DataFrame's schema."""
        return pa.schema([pa.field(name, self._type(name)) for name in self.names])

    def _type(self, name: str) -> pa.DataType:
        if name == "topic":
            return pa.string()
        return self.data if name == DATA else FILE_SCHEMA.field(name).type

    def shaped(
        self, rows: pa.RecordBatch, topic: str, data: pa.Array | None = None
    ) -> pa.RecordBatch:
        """Return decoded rows in the form that Spark checks."""
        arrays = []
        for name in self.names:
            if name == "topic":
                arrays.append(pa.repeat(pa.scalar(topic, pa.string()), rows.num_rows))
            else:
                arrays.append(data if name == DATA else rows[name])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
