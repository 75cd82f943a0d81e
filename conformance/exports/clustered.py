"""An export through one broker of a cluster whose topics move to others meanwhile, beside that of
the same records in a broker by itself.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as parquet
from kafka import KafkaProducer

from conformance.cluster.brokers import command
from conformance.cluster.running import Cluster
from conformance.server import RunningBroker
from storage.metadata.names import parse_topic
from storage.spark.export import ExportJob, Progress, Source, run_export
from storage.spark.session import Report, Work

TOPICS = [f"lake{number}" for number in range(6)]  # So that every broker has some, mostly.
PARTITIONS = 2
RECORDS = 60  # Of each topic.
FIRST_MS = 1_767_225_600_000
HEADERS = [("kind", b"raw\xff"), ("kind", b"")]
GROUP = "export:lake"

Row = tuple[Any, ...]


class MovingHalfway:
    """Runs tasks in this process, and `move` between the first half of them and the second."""

    def __init__(self, move: Callable[[], None]) -> None:
        self._move = move

    def map(self, work: Work, parts: Sequence[Any], total: int, report: Report | None) -> list[Any]:
        """Every outcome."""
        half = len(parts) // 2
        done = list(work(lambda _: None, parts[:half]))
        self._move()
        return done + list(work(lambda _: None, parts[half:]))


def moved_export(cluster: Cluster) -> int:
    """Export while a broker is drained; how many rows there were. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="braidlog-") as scratch, RunningBroker() as alone:
        _fill(alone)
        _export(alone, Path(scratch) / "alone", lambda: None)
        _fill(cluster.brokers[0])
        through, _, moving = cluster.brokers
        _export(through, Path(scratch) / "cluster", lambda: _drain(cluster, moving.node))
        rows = _rows(Path(scratch) / "cluster")
        assert rows == _rows(Path(scratch) / "alone"), "the rows are not those of one broker"
        assert len(rows) == RECORDS * len(TOPICS)
        # What is new is seen through a broker that owns nothing now, too.
        assert _export(moving, Path(scratch) / "cluster", lambda: None) == 0
        _fill(through)
        assert _export(moving, Path(scratch) / "cluster", lambda: None) == len(rows)
    assert command(cluster.settings, "drain", str(moving.node), "--undo")[0] == 0
    return len(rows)


def _drain(cluster: Cluster, node: int) -> None:
    code, said = command(cluster.settings, "drain", str(node))
    assert code == 0, said


def _fill(broker: RunningBroker) -> None:
    """Records that are the same each time, with keys, headers and times."""
    for topic in TOPICS:
        path = f"{broker.url}/api/v1/topics/public/default/{topic}"
        made = httpx.put(path, json={"partitions": PARTITIONS}, timeout=60)
        assert made.status_code in (201, 409), made.text
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
    for one in sent:
        one.get(60)
    producer.close()


def _export(broker: RunningBroker, lake: Path, move: Callable[[], None]) -> int:
    source = Source(broker.url, tuple(parse_topic(topic) for topic in TOPICS))
    job = ExportJob(source, lake, progress=Progress(broker.url, GROUP))
    # `map` is all that an export asks of Spark.
    summary = run_export(job, MovingHalfway(move))  # type: ignore[arg-type]
    assert summary.untold is None, summary.untold
    return summary.rows


def _rows(lake: Path) -> list[Row]:
    """Every row, with its topic; without the time at which the broker took it."""
    found: list[Row] = []
    for path in sorted(lake.glob("topic=*/**/*.parquet")):
        table = parquet.ParquetFile(path).read().drop_columns(["appendTime"])
        topic = path.relative_to(lake).parts[0]
        found += [(topic, *row.values()) for row in table.to_pylist()]
    return sorted(found, key=lambda row: (row[0], row[3], row[4]))
