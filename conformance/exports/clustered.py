"""An export through a broker of a cluster whose topics move meanwhile, and an export of the
cluster's store without brokers.

Both are compared with an export of the same records from a single broker.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as parquet
from kafka import KafkaProducer

from braidlog.storage.export.export import ExportJob, ExportSource, Progress, run_export
from braidlog.storage.export.places import open_log, store_place
from braidlog.storage.export.readers import ExportLog
from braidlog.storage.export.session import Report, Work
from braidlog.storage.metadata.names import parse_topic
from conformance.cluster.brokers import command
from conformance.cluster.running import RunningCluster
from conformance.cluster.servers import KEYS
from conformance.server import RunningBroker

TOPICS = [f"lake{number}" for number in range(6)]  # Usually every broker owns several.
PARTITIONS = 2
RECORDS = 60  # Per topic.
FIRST_MS = 1_767_225_600_000
HEADERS = [("kind", b"raw\xff"), ("kind", b"")]
GROUP = "export:lake"

Row = tuple[str, dict[str, Any]]  # Topic and columns.


class MovingHalfway:
    """Runs tasks in this process, and `move` between the first half of them and the second."""

    def __init__(self, move: Callable[[], None]) -> None:
        self._move = move

    def map(self, work: Work, parts: Sequence[Any], total: int, report: Report | None) -> list[Any]:
        """Return every outcome."""
        half = len(parts) // 2
        done = list(work(lambda _: None, parts[:half]))
        self._move()
        return done + list(work(lambda _: None, parts[half:]))


def moved_export(cluster: RunningCluster) -> int:
    """Export while a broker is drained; return the number of rows. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="braidlog-") as scratch, RunningBroker() as alone:
        _fill(alone)
        _export(alone, Path(scratch) / "alone", lambda: None)
        _fill(cluster.brokers[0])
        through, _, moving = cluster.brokers
        _export(through, Path(scratch) / "cluster", lambda: _drain(cluster, moving.node))
        rows = _rows(Path(scratch) / "cluster")
        assert len(rows) == RECORDS * len(TOPICS)
        assert _bare(rows) == _bare(_rows(Path(scratch) / "alone")), "the rows are not those of one"
        _export_store(cluster, Path(scratch) / "store")
        assert rows == _rows(Path(scratch) / "store"), "the store's rows are not those of a broker"
        _check_same(open_log(place_of(cluster)), open_log(through.url))
        # New records also appear through a broker that now owns no topics.
        assert _export(moving, Path(scratch) / "cluster", lambda: None) == 0
        _fill(through)
        assert _export(moving, Path(scratch) / "cluster", lambda: None) == len(rows)
        assert _export_store(cluster, Path(scratch) / "store") == len(rows)
        assert _rows(Path(scratch) / "cluster") == _rows(Path(scratch) / "store")
    assert command(cluster.settings, "drain", str(moving.node), "--undo")[0] == 0
    return len(rows)


def _drain(cluster: RunningCluster, node: int) -> None:
    code, output = command(cluster.settings, "drain", str(node))
    assert code == 0, output


def _fill(broker: RunningBroker) -> None:
    """Store records that are equal in each call, with keys, headers and times."""
    for topic in TOPICS:
        path = f"{broker.url}/api/v1/topics/public/default/{topic}"
        created = httpx.put(path, json={"partitions": PARTITIONS}, timeout=60)
        assert created.status_code in (201, 409), created.text
    producer = KafkaProducer(bootstrap_servers=broker.addresses["kafka"], acks="all")
    sent = [
        producer.send(
            topic,
            key=b"%d" % number if number % 3 else None,
            value=b"%s %d" % (topic.encode(), number),
            headers=HEADERS[: number % 3],
            partition=number % PARTITIONS,
            timestamp_ms=FIRST_MS + number,
        )
        for topic in TOPICS
        for number in range(RECORDS)
    ]
    for promise in sent:
        promise.get(60)
    producer.close()


def _export(broker: RunningBroker, lake: Path, move: Callable[[], None]) -> int:
    source = ExportSource(broker.url, tuple(parse_topic(topic) for topic in TOPICS))
    job = ExportJob(source, lake, progress=Progress(broker.url, GROUP))
    # An export uses only `map` of Spark.
    summary = run_export(job, MovingHalfway(move))  # type: ignore[arg-type]
    assert summary.untold is None, summary.untold
    return summary.rows


def place_of(cluster: RunningCluster) -> str:
    """Return the place of a cluster's store."""
    values = dict(setting.split("=", 1) for setting in cluster.settings)
    names = ("shared.store", "shared.database", "shared.endpoint")
    return store_place(*(values[name] for name in names))


def _export_store(cluster: RunningCluster, lake: Path) -> int:
    os.environ.update(KEYS)
    names = tuple(parse_topic(topic) for topic in TOPICS)
    job = ExportJob(ExportSource(place_of(cluster), names), lake)
    return run_export(job, MovingHalfway(lambda: None)).rows  # type: ignore[arg-type]


def _check_same(store: ExportLog, broker: ExportLog) -> None:
    """Check that a cluster's store and its brokers describe the topics equally."""
    shown = [
        [
            (
                partition.topic,
                partition.index,
                partition.partition_id,
                partition.log_start_offset,
                partition.watermark,
            )
            for partition in partitions
        ]
        for partitions in (store.partitions(), broker.partitions())
    ]
    assert shown[0] == shown[1] != []
    topic, index, partition_id, *_ = next(partition for partition in shown[0] if partition[-1])
    with (
        store.open(topic, index, partition_id) as left,
        broker.open(topic, index, partition_id) as right,
    ):
        for time_us in (0, FIRST_MS * 1000, (FIRST_MS + RECORDS // 2) * 1000, 1 << 62):
            assert left.first_at(time_us) == right.first_at(time_us)
    schemas = [log.schemas([name for name, *_ in shown[0]]) for log in (store, broker)]
    assert {name: schema for name, schema in schemas[0].items() if schema} == schemas[1]


def _rows(lake: Path) -> list[Row]:
    """Return every row with its topic, in order."""
    rows: list[Row] = []
    for path in sorted(lake.glob("topic=*/**/*.parquet")):
        topic = path.relative_to(lake).parts[0]
        rows += [(topic, row) for row in parquet.ParquetFile(path).read().to_pylist()]
    return sorted(rows, key=lambda row: (row[0], row[1]["partition"], row[1]["offset"]))


def _bare(rows: list[Row]) -> list[Row]:
    """Return the rows without the broker's append time."""
    return [(topic, {**row, "appendTime": None}) for topic, row in rows]
