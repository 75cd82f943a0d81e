"""Speed of the export and the data source, beside a plain pyarrow program on the same segments.

A single run measures both record sizes, with rounds in turn: compare the ratios, not the megabytes.
Processor time covers all processes of a way, Java included. The start of Spark and of the program's
processes is not counted. `make bench-export`, with `ARGS="--megabytes 1024 --rounds 3"` for a
longer run.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.pool import Pool
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c
from rich.console import Console
from rich.table import Table

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export import jvm
from braidlog.storage.export.export import ExportJob, ExportSource, run_export
from braidlog.storage.export.files import Compression, parquet_writer
from braidlog.storage.export.session import Spark
from braidlog.storage.export.source.plugin import BraidlogSource
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.batch import HEADER_BYTES, Batch, unpack
from braidlog.storage.formats.columns.records import ColumnTarget, to_batch
from braidlog.storage.formats.columns.schema import FILE_SCHEMA
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.set_columns import columns_of
from braidlog.storage.formats.record import Record
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES, unpack_segment_header
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.names import parse_topic
from conformance.bench.process import family_seconds

TOPIC = "public/default/bench"
PARTITIONS = 4
SIZES = (1000, 100)
BATCH_BYTES = 100_000
PROCESSES = 2
PIECE_BYTES = 4 << 20
FILE_PIECES = 8
BASE, DECODING = "pyarrow, two processes", "  its decoding alone"
EXPORT, NOOP = "braidlog export", "data source into noop"
FIRST_US, SPAN_US = 1_767_225_600_000_000, 2 * 86_400_000_000  # Stamps over two days.
WARM_ROUNDS = 2  # Not counted: a session's Java compiles while the rounds run.
# Share of the program's speed; share of the program's processor time.
SPEED_MIN, DECODING_MAX = 0.8, 0.5

Way = Callable[[Path], float]  # Writes files into the folder; returns the CPU seconds.


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds and processor seconds of a way in a round."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Pools:
    """Process pools: a pool for the program, and a pool per Java.

    The export's Java hardly optimises, as for users; the readers use a session's Java.
    """

    plain: Pool
    exporting: Pool
    reading: Pool


def main() -> int:
    """Print a table and the goals for each record size; return 0 if all goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="of log, for each record size")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console, missed = Console(), 0
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-bench-") as scratch,
        spawn.Pool(PROCESSES) as plain,
        spawn.Pool(1) as exporting,
        spawn.Pool(1) as reading,
    ):
        for size in SIZES:
            data_dir = Path(scratch) / f"data-{size}"
            megabytes = fill(data_dir, size, options.megabytes)
            console.print(f"records of {size} bytes, {megabytes:.0f} MB")
            pools = Pools(plain, exporting, reading)
            costs = costs_of(ways_of(pools, data_dir), options.rounds)
            console.print(table_of(costs, megabytes))
            for is_reached, line in verdicts(costs):
                console.print("reached" if is_reached else "MISSED ", line)
                missed += not is_reached
            shutil.rmtree(data_dir)
    return int(missed > 0)


def fill(data_dir: Path, size: int, megabytes: int) -> float:
    """Store Kafka sets with records of about that size; return the stored MB."""
    rng = random.Random(size)
    pool = rng.randbytes(1 << 18).hex().encode()
    directory = DataDir.open(data_dir)
    committer = Committer(directory.files)
    settings = LogSettings(segment_bytes=64 << 20)
    logs = [
        directory.create_partitions([NewPartition(number + 1, TOPIC, number)], settings, committer)[
            0
        ]
        for number in range(PARTITIONS)
    ]
    count = BATCH_BYTES // size
    batches = megabytes * 1_000_000 // BATCH_BYTES
    for number in range(batches):
        log = logs[number % PARTITIONS]
        base = log.log_end_offset
        records = []
        for offset in range(base, base + count):
            start = rng.randrange(len(pool) - 2 * size)
            value = pool[start : start + rng.randrange(size // 2, size * 3 // 2)]
            records.append(Record(offset, 0, key=b"key %08d" % rng.randrange(10**6), value=value))
        body = KAFKA.encode(records, base)
        append_us = FIRST_US + number * SPAN_US // batches
        log.append([body], KAFKA.inspect(body), body_format=BodyFormat.KAFKA, append_us=append_us)
    committer.commit()
    directory.close(committer)
    return sum(path.stat().st_size for path in data_dir.glob("partitions/*/*.log")) / 1e6


def ways_of(pools: Pools, data_dir: Path) -> dict[str, Way]:
    """Return the measured ways, by name."""
    place = str(data_dir)
    return {
        BASE: lambda out: plain_program(pools.plain, data_dir, out, write=True),
        DECODING: lambda out: plain_program(pools.plain, data_dir, out, write=False),
        EXPORT: lambda out: pools.exporting.apply(export, (place, str(out))),
        NOOP: lambda out: pools.reading.apply(noop, (place,)),
    }


def costs_of(ways: Mapping[str, Way], rounds: int) -> dict[str, list[Cost]]:
    """Return the costs of each way over `rounds` rounds in turn, after the warm-up rounds."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(WARM_ROUNDS + rounds):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory(prefix="braidlog-bench-") as out:
                began = time.perf_counter()
                cpu_s = way(Path(out))
                cost = Cost(time.perf_counter() - began, cpu_s)
            if number >= WARM_ROUNDS:
                costs[name].append(cost)
    return costs


def speed(costs: Mapping[str, Sequence[Cost]], name: str) -> float:
    """Return the ratio to the program's speed: the median over neighbouring rounds, so that other
    load affects both.
    """
    rounds = zip(costs[BASE], costs[name], strict=True)
    return statistics.median(base.wall_s / cost.wall_s for base, cost in rounds)


def table_of(costs: Mapping[str, Sequence[Cost]], megabytes: float) -> Table:
    """Return a table with a row per way."""
    table = Table("way", "MB/s", "of pyarrow", "CPU s")
    for name, runs in costs.items():
        wall_s = statistics.median(cost.wall_s for cost in runs)
        cpu_s = statistics.median(cost.cpu_s for cost in runs)
        ratio = f"{speed(costs, name):.2f}"
        table.add_row(name, f"{megabytes / wall_s:.0f}", ratio, f"{cpu_s:.2f}")
    return table


def verdicts(costs: Mapping[str, Sequence[Cost]]) -> list[tuple[bool, str]]:
    """Return per goal: reached or not, and a line of text."""
    judged = []
    for name in (EXPORT, NOOP):
        ratio = speed(costs, name)
        judged.append((ratio >= SPEED_MIN, f"{name}: {ratio:.2f} of pyarrow, {SPEED_MIN} wanted"))
    rounds = zip(costs[BASE], costs[DECODING], strict=True)
    share = statistics.median(cost.cpu_s / base.cpu_s for base, cost in rounds)
    line = f"decoding: {share:.2f} of its processor time, at most {DECODING_MAX}"
    return [*judged, (share <= DECODING_MAX, line)]


def plain_program(pool: Pool, data_dir: Path, out: Path, *, write: bool) -> float:
    """Run the limit: two processes that only read, check, decode and write."""
    segments = sorted(data_dir.glob("partitions/*/*.log"))
    tasks = [
        (str(path), str(out / f"{number}.parquet"), write) for number, path in enumerate(segments)
    ]
    return sum(pool.starmap(plain_segment, tasks, chunksize=1))


def plain_segment(path: str, out: str, write: bool) -> float:
    """Write a segment file to a Parquet file; return the CPU seconds."""
    began = time.process_time()
    pa.set_cpu_count(1)
    data = memoryview(Path(path).read_bytes())
    header = unpack_segment_header(data[:SEGMENT_HEADER_BYTES])
    target = ColumnTarget(header.partition_id, header.partition_id - 1)
    writer = parquet_writer(Path(out), FILE_SCHEMA, Compression()) if write else None
    for rows in plain_rows(data, header.salt, target):
        if writer is not None:
            writer.write_table(rows)
    if writer is not None:
        writer.close()
    return time.process_time() - began


def plain_rows(data: memoryview, salt: int, target: ColumnTarget) -> Iterator[pa.Table]:
    """Yield tables of several pieces each."""
    pieces: list[pa.RecordBatch] = []
    batches: list[Batch] = []
    size, pos = 0, SEGMENT_HEADER_BYTES
    while pos < len(data):
        header = unpack(data, salt, pos)
        body = data[pos + HEADER_BYTES : pos + header.stored_bytes]
        assert crc32c(body) == header.body_crc
        batches.append(Batch(header, memoryview(b""), body, pos))
        size += len(body)
        pos += header.stored_bytes
        if size >= PIECE_BYTES or pos >= len(data):
            pieces.append(to_batch(columns_of(batches), target, "kafka"))
            batches, size = [], 0
        if len(pieces) >= FILE_PIECES or (pieces and pos >= len(data)):
            yield pa.Table.from_batches(pieces)
            pieces = []


@cache
def started() -> Spark:
    """Return the Spark of this process. The first job decides the kind of Java."""
    return Spark(jvm.AUTO, f"local[{PROCESSES}]")


def export(place: str, out: str) -> float:
    """Run the export job as users do, with Spark started already; return the CPU seconds, Java
    included.
    """
    before = family_seconds(os.getpid())
    run_export(ExportJob(ExportSource(place, (parse_topic(TOPIC),)), Path(out)), started())
    return since(before)


def noop(place: str) -> float:
    """Read with the data source while Spark discards the rows; return the CPU seconds."""
    session = started().started()
    session.dataSource.register(BraidlogSource)
    before = family_seconds(os.getpid())
    rows = session.read.format("braidlog").option("path", place)
    rows = rows.option("subscribe", TOPIC).option("minPartitions", str(2 * PROCESSES))
    rows.load().write.format("noop").mode("overwrite").save()
    return since(before)


def since(before: Mapping[int, float]) -> float:
    """Return the CPU seconds of this process and its descendants since `before`."""
    now = family_seconds(os.getpid())
    return sum(seconds - before.get(pid, 0) for pid, seconds in now.items())


if __name__ == "__main__":
    sys.exit(main())
