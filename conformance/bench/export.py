"""How fast the export and the data source are, beside a plain pyarrow program on the same segments.

One run, both record sizes, rounds in turn: compare the ratios, not the megabytes. The start of
Spark and of the program's processes is not counted. `make bench-export`, with
`ARGS="--megabytes 1024 --rounds 3"` for a longer one.
"""

import argparse
import multiprocessing
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c
from rich.console import Console
from rich.table import Table

from storage.codecs.api import BodyFormat
from storage.codecs.kafka import KAFKA
from storage.codecs.record import Record
from storage.log.batch import HEADER_BYTES, Batch, unpack
from storage.log.committer import Committer
from storage.log.data_dir import DataDir
from storage.log.segment import SEGMENT_HEADER_BYTES, unpack_segment_header
from storage.log.settings import LogSettings
from storage.metadata.names import parse_topic
from storage.spark import jvm
from storage.spark.decode.columns import Target, to_batch
from storage.spark.decode.kafka import columns_of
from storage.spark.export import ExportJob, Source, run_export
from storage.spark.files import Compression, parquet_writer
from storage.spark.schema import FILE_SCHEMA
from storage.spark.session import Spark
from storage.spark.source.plugin import BraidlogSource

TOPIC = "public/default/bench"
PARTITIONS = 4
SIZES = (1000, 100)
BATCH_BYTES = 100_000
PROCESSES = 2
PIECE_BYTES = 8 << 20
FILE_PIECES = 4
BASE, DECODING = "pyarrow, two processes", "  its decoding alone"
EXPORT, NOOP = "braidlog export", "data source into noop"
SPEED_MIN, DECODING_MAX = 0.8, 0.5  # Of the program's speed; of its processor time.


def main() -> int:
    """Print a table and the goals for each record size; 0 if all of them are reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="of log, for each record size")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console, missed = Console(), 0
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-bench-") as scratch,
        Spark(jvm.AUTO, f"local[{PROCESSES}]") as spark,
        multiprocessing.get_context("spawn").Pool(PROCESSES) as pool,
    ):
        spark.started().dataSource.register(BraidlogSource)
        for size in SIZES:
            data_dir = Path(scratch) / f"data-{size}"
            megabytes = fill(data_dir, size, options.megabytes)
            console.print(f"records of {size} bytes, {megabytes:.0f} MB")
            walls, cpus = medians(spark, pool, data_dir, options.rounds)
            console.print(table_of(walls, cpus, megabytes))
            for is_reached, line in verdicts(walls, cpus):
                console.print("reached" if is_reached else "MISSED ", line)
                missed += not is_reached
            shutil.rmtree(data_dir)
    return int(missed > 0)


def fill(data_dir: Path, size: int, megabytes: int) -> float:
    """Kafka sets of records of about that size; the MB that they take."""
    rng = random.Random(size)
    pool = rng.randbytes(1 << 18).hex().encode()
    directory = DataDir.open(data_dir)
    committer = Committer(directory.files)
    settings = LogSettings(segment_bytes=64 << 20)
    logs = [
        directory.create_partition(number + 1, TOPIC, number, settings, committer)
        for number in range(PARTITIONS)
    ]
    count = BATCH_BYTES // size
    for number in range(megabytes * 1_000_000 // BATCH_BYTES):
        log = logs[number % PARTITIONS]
        base = log.log_end_offset
        records = []
        for offset in range(base, base + count):
            start = rng.randrange(len(pool) - 2 * size)
            value = pool[start : start + rng.randrange(size // 2, size * 3 // 2)]
            records.append(Record(offset, 0, key=b"key %08d" % rng.randrange(10**6), value=value))
        body = KAFKA.encode(records, base)
        append_us = 1_767_225_600_000_000 + number * 400_000_000
        log.append([body], KAFKA.inspect(body), body_format=BodyFormat.KAFKA, append_us=append_us)
    committer.commit()
    directory.close(committer)
    return sum(path.stat().st_size for path in data_dir.glob("partitions/*/*.log")) / 1e6


def medians(
    spark: Spark, pool: Pool, data_dir: Path, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and processor seconds of each way, of some rounds in turn, after one to get warm. A
    way gives 0 for processor seconds that it does not know.
    """
    ways: dict[str, Callable[[Path], float]] = {
        BASE: lambda out: plain_program(pool, data_dir, out, write=True),
        DECODING: lambda out: plain_program(pool, data_dir, out, write=False),
        EXPORT: lambda out: export(spark, data_dir, out),
        NOOP: lambda out: noop(spark, data_dir),
    }
    walls: dict[str, list[float]] = {name: [] for name in ways}
    cpus: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory(prefix="braidlog-bench-") as out:
                began = time.perf_counter()
                cpu = way(Path(out))
                wall = time.perf_counter() - began
            if number:
                walls[name].append(wall)
                cpus[name].append(cpu)
    of_each = statistics.median
    return (
        {name: of_each(found) for name, found in walls.items()},
        {name: of_each(found) for name, found in cpus.items()},
    )


def table_of(walls: dict[str, float], cpus: dict[str, float], megabytes: float) -> Table:
    """A row for each way."""
    table = Table("way", "MB/s", "of pyarrow", "CPU s")
    for name, wall in walls.items():
        ratio = f"{walls[BASE] / wall:.2f}"
        cpu = f"{cpus[name]:.2f}" if cpus[name] else "-"
        table.add_row(name, f"{megabytes / wall:.0f}", ratio, cpu)
    return table


def verdicts(walls: dict[str, float], cpus: dict[str, float]) -> list[tuple[bool, str]]:
    """Whether each goal is reached, and its line."""
    found = []
    for name in (EXPORT, NOOP):
        ratio = walls[BASE] / walls[name]
        found.append((ratio >= SPEED_MIN, f"{name}: {ratio:.2f} of pyarrow, {SPEED_MIN} wanted"))
    share = cpus[DECODING] / cpus[BASE]
    line = f"decoding: {share:.2f} of its processor time, at most {DECODING_MAX}"
    return [*found, (share <= DECODING_MAX, line)]


def plain_program(pool: Pool, data_dir: Path, out: Path, *, write: bool) -> float:
    """The limit: two processes that read, check, decode and write, and nothing else."""
    segments = sorted(data_dir.glob("partitions/*/*.log"))
    tasks = [
        (str(path), str(out / f"{number}.parquet"), write) for number, path in enumerate(segments)
    ]
    return sum(pool.starmap(plain_segment, tasks, chunksize=1))


def plain_segment(path: str, out: str, write: bool) -> float:
    """One segment file to one Parquet file; the CPU seconds that it took."""
    began = time.process_time()
    pa.set_cpu_count(1)
    data = memoryview(Path(path).read_bytes())
    header = unpack_segment_header(data[:SEGMENT_HEADER_BYTES])
    target = Target(header.partition_id, header.partition_id - 1)
    writer = parquet_writer(Path(out), FILE_SCHEMA, Compression()) if write else None
    for rows in plain_rows(data, header.salt, target):
        if writer is not None:
            writer.write_table(rows)
    if writer is not None:
        writer.close()
    return time.process_time() - began


def plain_rows(data: memoryview, salt: int, target: Target) -> Iterator[pa.Table]:
    """Tables of some pieces each."""
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


def export(spark: Spark, data_dir: Path, out: Path) -> float:
    """The export job as users run it, but for Spark's start."""
    run_export(ExportJob(Source(str(data_dir), (parse_topic(TOPIC),)), out), spark)
    return 0


def noop(spark: Spark, data_dir: Path) -> float:
    """The data source, its rows thrown away by Spark."""
    rows = spark.started().read.format("braidlog").option("path", str(data_dir))
    rows = rows.option("subscribe", TOPIC).option("minPartitions", str(2 * PROCESSES))
    rows.load().write.format("noop").mode("overwrite").save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
