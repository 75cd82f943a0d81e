"""From options to ranges of offsets: partitions, start, end and tasks.

Knows a log reader and no Spark.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from braidlog.storage.export.ranges import Range
from braidlog.storage.export.readers import (
    ExportLog,
    ExportPartition,
    PartitionState,
    topic_matches,
)
from braidlog.storage.export.rows import RangeRows
from braidlog.storage.export.source.options import (
    EARLIEST,
    LATEST,
    BadOption,
    Edge,
    ReadOptions,
    Selection,
)
from braidlog.storage.formats.columns.records import ColumnTarget


class DataLoss(Exception):
    """Wanted records are no longer in the log; failOnDataLoss=false reads the remaining records."""


def select(
    log: ExportLog, selection: Selection, *, may_be_gone: bool = False
) -> list[PartitionState]:
    """Return the selected partitions.

    Raises OSError; BadOption for a missing partition, unless `may_be_gone`.
    """
    if selection.pattern is not None:
        return log.partitions(partial(matches, selection.pattern))
    if selection.assigned:
        states = log.partitions(selection.assigned.__contains__)
        wanted = {(t, p) for t, numbers in selection.assigned.items() for p in numbers}
        selected = [state for state in states if (state.topic, state.index) in wanted]
        if missing := wanted - {(state.topic, state.index) for state in selected}:
            topic, partition = min(missing)
            text = f"assign: there is no partition {partition} of topic {topic}"
            _refuse_or_warn(text, may_be_gone)
        return selected
    selected = log.partitions(selection.topics.__contains__)
    if absent := set(selection.topics) - {state.topic for state in selected}:
        _refuse_or_warn(f"there is no topic {min(absent)}", may_be_gone)
    return selected


def _refuse_or_warn(text: str, may_be_gone: bool) -> None:
    if not may_be_gone:
        raise BadOption(text)
    warnings.warn(text, stacklevel=3)


def matches(pattern: str, topic: str) -> bool:
    """Return True if a pattern matches the whole name, full or (in public/default) short."""
    try:
        return topic_matches(pattern, topic)
    except re.error as error:
        raise BadOption(f"subscribePattern: {pattern!r}: {error}") from None


def begin(state: PartitionState, options: ReadOptions, log: ExportLog) -> int:
    """Return the first offset to read of a partition. Raises DataLoss, BadOption."""
    offset = _at(options.starting, state, log, EARLIEST)
    if offset is None:
        if not options.no_match_is_latest:
            raise BadOption(
                f"{state.topic} partition {state.index} has no record that late; "
                "startingOffsetsByTimestampStrategy=latest starts at its end"
            )
        return state.watermark
    return _within(offset, state, options, "startingOffsets")


def finish(state: PartitionState, options: ReadOptions, log: ExportLog) -> int:
    """Return the end of the read of a partition, exclusive. Raises DataLoss."""
    offset = _at(options.ending, state, log, LATEST)
    return state.watermark if offset is None else _within(offset, state, options, "endingOffsets")


def check_named(edge: Edge, states: Sequence[PartitionState], name: str) -> None:
    """Raise for offsets of partitions outside the read; warn about missing partitions."""
    named = edge.offsets if edge.offsets is not None else edge.times_us
    if named is None:
        return
    known = {(state.topic, state.index) for state in states}
    named_partitions = {
        (topic, partition) for topic, partitions in named.items() for partition in partitions
    }
    if unknown := named_partitions - known:
        topic, partition = min(unknown)
        raise BadOption(f"{name}: partition {partition} of {topic} is not read")
    if missing := known - named_partitions:
        text = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(missing)[:3])
        warnings.warn(f"{name} says nothing of {text}: the default is taken", stacklevel=2)


def spans(log: ExportLog, options: ReadOptions) -> list[Range]:
    """Return the spans of a batch read, for each non-empty partition. Raises as above."""
    states = select(log, options.selection)
    check_named(options.starting, states, "startingOffsets")
    check_named(options.ending, states, "endingOffsets")
    spans_found = []
    for state in states:
        start, end = begin(state, options, log), finish(state, options, log)
        if start < end:
            spans_found.append(Range(state.partition_id, state.index, start, end, state.topic))
    return spans_found


def split(whole_spans: Sequence[Range], pieces: int | None, records_max: int | None) -> list[Range]:
    """Split larger spans until there are about `pieces` and none is above `records_max` records.

    Follows Spark's KafkaRangeCalculator.
    """
    total = sum(span.end - span.start for span in whole_spans)
    result = []
    for span in whole_spans:
        size = span.end - span.start
        parts = 1
        if pieces is not None and pieces > len(whole_spans):
            parts = max(1, round(pieces * size / total))
        if records_max is not None:
            parts = max(parts, -(-size // records_max))
        parts = min(parts, size)
        for number in range(parts):
            start = span.start + size * number // parts
            end = span.start + size * (number + 1) // parts
            result.append(replace(span, start=start, end=end))
    return result


def first_row_at(reader: ExportPartition, state: PartitionState, time_us: int) -> int | None:
    """Return the first offset whose timestamp is that time or later, None if there is none."""
    first = reader.first_at(time_us)
    if first is None:
        return None
    target = ColumnTarget(state.partition_id, state.index, frozenset({"offset", "timestamp"}))
    for batch in RangeRows(reader, first, reader.high_watermark, target, lambda _: None):
        times = batch["timestamp"].cast(pa.int64()).to_numpy()
        late = np.flatnonzero(times >= time_us)
        if len(late):
            return int(batch["offset"][int(late[0])].as_py())
    return None


def offset_at(log: ExportLog, state: PartitionState, time_us: int) -> int | None:
    """Return the offset of a time in a partition, as `first_row_at`. Raises OSError."""
    with log.open(state.topic, state.index, state.partition_id) as reader:
        return first_row_at(reader, state, time_us)


def _at(edge: Edge, state: PartitionState, log: ExportLog, default: int) -> int | None:
    """Return the offset of an edge; None for a time later than every record."""
    time_us = edge.time_us
    if edge.times_us is not None:
        time_us = edge.times_us.get(state.topic, {}).get(state.index)
    if time_us is not None:
        return offset_at(log, state, time_us)
    offset = edge.offset
    if edge.offsets is not None:
        offset = edge.offsets.get(state.topic, {}).get(state.index, default)
    if edge.times_us is not None:
        offset = default
    return {EARLIEST: state.log_start_offset, LATEST: state.watermark}.get(offset, offset)


def _within(offset: int, state: PartitionState, options: ReadOptions, name: str) -> int:
    """Return the offset if the log has it; else the nearest offset, if loss is allowed."""
    low, high = state.log_start_offset, state.watermark
    if low <= offset <= high:
        return offset
    text = (
        f"{name}: offset {offset} of {state.topic} partition {state.index} is not in the log, "
        f"which has {low} to {high}"
    )
    if options.fail_on_loss:
        raise DataLoss(f"{text}; failOnDataLoss=false goes on with what is there")
    warnings.warn(text, stacklevel=2)
    return min(max(offset, low), high)
