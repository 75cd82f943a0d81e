"""The columns as Spark checks them, without a JVM."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from braidlog.storage.export.source.options import BadOption
from braidlog.storage.export.source.table import Table, check_columns, column_names, ddl

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<struct<key:string,value:binary>>": ArrayType(HEADER),
    "array<int>": ArrayType(IntegerType()),
}


def test_the_types_equal_sparks_types_of_the_schema():
    names = column_names(headers=True, metadata=True)
    pairs = [part.split(" ", 1) for part in ddl(names).split(", ")]
    schema = StructType([StructField(name, TYPES[type_]) for name, type_ in pairs])
    assert to_arrow_schema(schema, timezone="UTC").equals(Table(names).schema)
    wanted = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    assert check_columns(wanted) == names


def test_unknown_columns_and_other_types_are_refused():
    with pytest.raises(BadOption, match="no column 'valu'"):
        check_columns([("valu", "binary")])
    with pytest.raises(BadOption, match="value is binary, not string"):
        check_columns([("value", "string")])
