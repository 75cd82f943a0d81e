"""The data source's interface to Spark: `spark.read.format("braidlog")` and `readStream`."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from braidlog.storage.export.source.batch import BatchReader, FilteredBatchReader
from braidlog.storage.export.source.options import (
    BadOption,
    ReadOptions,
    read_more_columns,
    read_options,
    read_value_options,
)
from braidlog.storage.export.source.reading import ReadSettings
from braidlog.storage.export.source.stream import StreamReader
from braidlog.storage.export.source.table import DATA, Table, check_columns, column_names, ddl
from braidlog.storage.export.source.value_schemas import values_of
from braidlog.storage.export.source.value_types import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class BraidlogSource(DataSource):
    """The log of a Braidlog broker."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "braidlog"

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source and of the options.

        Raises BadOption.
        """
        headers, metadata = read_more_columns(self.options)
        values = read_value_options(self.options)
        names = column_names(headers=headers, metadata=metadata)
        if values is None:
            return ddl(names)
        return f"{ddl(names)}, {DATA} {ddl_of(values_of(*values).type)}"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; only the columns in `schema` are decoded. Raises BadOption."""
        options = read_options(self.options, streaming=False)
        kind = FilteredBatchReader if options.filter_pushdown else BatchReader
        return kind(options, _reading(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream reader. Raises BadOption."""
        options = read_options(self.options, streaming=True)
        return StreamReader(options, _reading(options, schema))


def enable(spark: "SparkSession") -> None:
    """Register the format, and let Spark push filters down (option filterPushdown=true)."""
    spark.dataSource.register(BraidlogSource)
    spark.conf.set(PUSHDOWN, "true")


def _reading(options: ReadOptions, schema: StructType) -> ReadSettings:
    wanted = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    names = check_columns(wanted)
    values = None
    if options.value_format is not None and DATA in names:
        values = values_of(options.place, options.selection, options.value_format)
    elif DATA in names:
        raise BadOption("schema: column data needs valueFormat and valueSchema")
    table = Table(names, None if values is None else values.type)
    return ReadSettings(
        options.place, table, options.fail_on_loss, options.corrupt, options.dead_letters, values
    )
