"""The batch reader that Spark calls, with and without filters. Lives in a planner process."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from braidlog.storage.export.places import open_log
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.readers import ExportLog
from braidlog.storage.export.source.offsets import spans, split
from braidlog.storage.export.source.options import ReadOptions
from braidlog.storage.export.source.reading import ReadSettings

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})

Narrow = Callable[[Range], Range | None]


class SpanPartition(InputPartition):
    """The span of a task."""

    def __init__(self, span: Range) -> None:
        super().__init__(span)
        self.span = span


class BatchReader(DataSourceReader):
    """Reads the partitions of the options, one task for each span."""

    def __init__(self, options: ReadOptions, reading: ReadSettings) -> None:
        self.options = options
        self.reading = reading

    def spans(self) -> list[Range]:
        """Return the spans to read. Raises BadOption, DataLoss."""
        return spans(open_log(self.options.place), self.options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks: the spans, split by the options."""
        options = self.options
        pieces = split(self.spans(), options.min_partitions, options.records_max)
        return [SpanPartition(span) for span in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; without any span, Spark makes a task whose value is None."""
        if not isinstance(partition, SpanPartition):
            return iter(())
        return self.reading.rows(partition.span)


class FilteredBatchReader(BatchReader):
    """`BatchReader` with filters on topic, partition, offset and timestamp.

    Only for option filterPushdown: Spark refuses every reader with filters while
    spark.sql.python.filterPushdown.enabled is off.
    """

    def __init__(self, options: ReadOptions, reading: ReadSettings) -> None:
        super().__init__(options, reading)
        self._narrow: list[Narrow] = []
        self._after_us: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept filters that cut spans exactly; return the filters that Spark must apply."""
        for pushed in filters:
            if isinstance(pushed, IsNotNull) and pushed.attribute[0] in NEVER_NULL:
                continue
            narrow = _narrowing(pushed)
            if narrow is None:
                self._note_time(pushed)
                yield pushed
            else:
                self._narrow.append(narrow)

    def _note_time(self, pushed: Filter) -> None:
        if isinstance(pushed, GreaterThan | GreaterThanOrEqual) and pushed.attribute == (
            "timestamp",
        ):
            value = pushed.value
            if isinstance(value, datetime) and value.tzinfo is not None:
                time_us = int(value.timestamp() * 1_000_000) - 1  # Floats round.
                self._after_us = max(time_us, self._after_us or time_us)

    def spans(self) -> list[Range]:
        """Return the spans to read within the filters."""
        log = open_log(self.options.place)
        left = []
        for span in spans(log, self.options):
            cut: Range | None = span
            for narrow in self._narrow:
                cut = None if cut is None else narrow(cut)
            if cut is not None and self._after_us is not None:
                cut = _later(log, cut, self._after_us)
            if cut is not None and cut.start < cut.end:
                left.append(cut)
        return left


def _later(log: ExportLog, span: Range, time_us: int) -> Range | None:
    """Return the span from the first record of that time; all records cut off are older."""
    with log.open(span.topic, span.index, span.partition_id) as reader:
        first = reader.first_at(time_us)
    return None if first is None else replace(span, start=max(span.start, first))


def _narrowing(pushed: Filter) -> Narrow | None:
    """Return the exact narrowing of a span by a filter; None for other filters."""
    name = getattr(pushed, "attribute", ("",))
    value = getattr(pushed, "value", None)
    if name == ("topic",):
        return _on_topic(pushed, value)
    if name == ("partition",):
        if isinstance(pushed, EqualTo):
            return lambda span: span if span.index == value else None
        if isinstance(pushed, In):
            return lambda span: span if span.index in (value or ()) else None
    if name == ("offset",) and isinstance(value, int):
        return _on_offset(pushed, value)
    return None


def _on_topic(pushed: Filter, value: object) -> Narrow | None:
    if isinstance(pushed, EqualTo):
        return lambda span: span if span.topic == value else None
    if isinstance(pushed, In):
        names = pushed.value
        return lambda span: span if span.topic in names else None
    if isinstance(pushed, StringStartsWith):
        return lambda span: span if span.topic.startswith(str(value)) else None
    return None


def _on_offset(pushed: Filter, value: int) -> Narrow | None:
    bounds = {
        EqualTo: (value, value + 1),
        GreaterThan: (value + 1, None),
        GreaterThanOrEqual: (value, None),
        LessThan: (0, value),
        LessThanOrEqual: (0, value + 1),
    }.get(type(pushed))
    if bounds is None:
        return None
    low, high = bounds

    def narrow(span: Range) -> Range:
        end = span.end if high is None else min(span.end, high)
        return replace(span, start=max(span.start, low), end=end)

    return narrow
