"""The stream reader that Spark calls. Lives beside the driver; its tasks are stateless.

An offset is a JSON object, {"topic": {"0": [next offset, partition id]}}. The partition id
distinguishes a recreated topic from the topic in the checkpoint.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from braidlog.storage.export.places import open_log, tell_positions
from braidlog.storage.export.ranges import Range, bytes_of, shares
from braidlog.storage.export.readers import PartitionState
from braidlog.storage.export.source.batch import SpanPartition
from braidlog.storage.export.source.offsets import (
    DataLoss,
    begin,
    check_named,
    select,
    split,
)
from braidlog.storage.export.source.options import ReadOptions
from braidlog.storage.export.source.reading import ReadSettings

log = logging.getLogger("braidlog.spark")

Offset = dict[str, dict[str, list[int]]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader that continues from a checkpoint, in micro-batches of bounded size."""

    def __init__(self, options: ReadOptions, reading: ReadSettings) -> None:
        self._options = options
        self._reading = reading
        self._target: dict[tuple[str, int], PartitionState] | None = None
        self._latest: Offset = {}
        self._last_trigger = time.monotonic()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the present end of the log."""
        self._target = self._states(may_be_gone=not self._options.fail_on_loss)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the options."""
        limits = self._options.limits
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable()

    def initialOffset(self) -> Offset:
        """Return the begin of a new query; Spark calls this on the query's first run only."""
        states = list(self._states().values())
        check_named(self._options.starting, states, "startingOffsets")
        source = open_log(self._options.place)
        return _sorted(
            {
                (state.topic, state.index): (
                    begin(state, self._options, source),
                    state.partition_id,
                )
                for state in states
            }
        )

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch; `start` if there is nothing to read yet.

        Raises DataLoss.
        """
        states = self._target
        if states is None:
            states = self._states(may_be_gone=not self._options.fail_on_loss)
        begins = {key: self._begin(key, state, start) for key, state in states.items()}
        wanted = {key: max(state.watermark - begins[key], 0) for key, state in states.items()}
        self._latest = _sorted(
            {key: (state.watermark, state.partition_id) for key, state in states.items()}
        )
        if self._waits(sum(wanted.values())):
            return start
        counts = self._bounded(states, wanted, limit)
        ends = {
            key: (begins[key] + counts[key], state.partition_id) for key, state in states.items()
        }
        if not any(counts.values()) and set(_flat(start)) >= set(ends):
            return start
        self._last_trigger = time.monotonic()
        unchanged = {key: value for key, value in _flat(start).items() if key not in ends}
        return _sorted({**unchanged, **ends})

    def reportLatestOffset(self) -> Offset:
        """Return the end of the log, for the query's progress."""
        return self._latest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks between two offsets. Raises DataLoss."""
        wanted_spans = []
        begins = _flat(start)
        for (topic, index), (stop, partition_id) in _flat(end).items():
            offset, known_id = begins.get((topic, index), (None, partition_id))
            if offset is None or known_id != partition_id:
                offset = self._log_start(topic, index, partition_id)
            if offset < stop:
                wanted_spans.append(Range(partition_id, index, offset, stop, topic))
        pieces = split(wanted_spans, self._options.min_partitions, self._options.records_max)
        return [SpanPartition(span) for span in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; without a span, Spark makes a task of value None."""
        if not isinstance(partition, SpanPartition):
            return iter(())
        return self._reading.rows(partition.span)

    def commit(self, end: Offset) -> None:
        """Commit the query's progress to the broker; Spark calls this one micro-batch late.

        Spark never calls this for the last batch of an availableNow query.
        """
        group = self._options.progress_group
        if group is None:
            return
        positions = {key: offset for key, (offset, _) in _flat(end).items()}
        try:
            tell_positions(self._options.place, group, positions)
        except OSError as error:  # The checkpoint is the truth; the commit only informs people.
            log.warning("positions of %s could not be told: %s", group, error)

    def _states(self, *, may_be_gone: bool = False) -> dict[tuple[str, int], PartitionState]:
        place, selection = open_log(self._options.place), self._options.selection
        states = select(place, selection, may_be_gone=may_be_gone)
        return {(state.topic, state.index): state for state in states}

    def _begin(self, key: tuple[str, int], state: PartitionState, start: Offset) -> int:
        """Return the begin of the next micro-batch; a new partition begins at its log start."""
        offset, partition_id = _flat(start).get(key, (state.log_start_offset, state.partition_id))
        if partition_id == state.partition_id and offset <= state.watermark:
            return offset  # Below the log start, the task reports the loss.
        text = f"{key[0]} partition {key[1]}: the topic was deleted and made again"
        if partition_id == state.partition_id:
            text = f"{key[0]} partition {key[1]}: the log ends at {state.watermark}, not {offset}"
        if self._options.fail_on_loss:
            raise DataLoss(f"{text} (failOnDataLoss=false goes on with what is there)")
        log.warning("%s", text)
        return state.log_start_offset if partition_id != state.partition_id else state.watermark

    def _waits(self, available: int) -> bool:
        """Return True while the backlog is too small for a micro-batch and the delay is not
        over.
        """
        limits = self._options.limits
        if limits.rows_min is None or self._target is not None or available >= limits.rows_min:
            return False
        return time.monotonic() - self._last_trigger < limits.delay_s

    def _bounded(
        self,
        states: dict[tuple[str, int], PartitionState],
        wanted: dict[tuple[str, int], int],
        limit: ReadLimit,
    ) -> dict[tuple[str, int], int]:
        """Return the share of each partition's backlog within the limit and the options."""
        rows_max = [self._options.limits.rows_max]
        bytes_max = [self._options.limits.bytes_max]
        if isinstance(limit, ReadMaxRows):
            rows_max.append(limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            bytes_max.append(limit.max_bytes)
        if isinstance(limit, ReadAllAvailable) and self._target is None:
            return wanted
        bounds = [row_limit for row_limit in rows_max if row_limit is not None]
        sizes = {key: bytes_of(states[key], count) for key, count in wanted.items()}
        total = sum(sizes.values())
        records = sum(wanted.values())
        bounds += [
            max(1, records * bytes_limit // total)
            for bytes_limit in bytes_max
            if bytes_limit is not None and total > bytes_limit
        ]
        if not bounds:
            return wanted
        names = {f"{topic}/{index:09d}": (topic, index) for topic, index in wanted}
        counts = shares({name: wanted[key] for name, key in names.items()}, min(bounds))
        return {names[name]: count for name, count in counts.items()}

    def _log_start(self, topic: str, index: int, partition_id: int) -> int:
        with open_log(self._options.place).open(topic, index, partition_id) as reader:
            return reader.log_start_offset


def _flat(offset: Offset) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic, int(index)): (value[0], value[1])
        for topic, partitions in offset.items()
        for index, value in partitions.items()
    }


def _sorted(positions: dict[tuple[str, int], tuple[int, int]]) -> Offset:
    """Return an offset with its keys in order, since Spark compares offsets by their text."""
    by_topic: dict[str, dict[str, Any]] = {}
    for (topic, index), value in sorted(positions.items()):
        by_topic.setdefault(topic, {})[str(index)] = list(value)
    return by_topic
