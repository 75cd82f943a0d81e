"""Spark for the export: started on demand, or taken over from spark-submit.

The export needs no SQL, and hardly any Java: rows stay in the Python workers. So the export starts
a bare context in a Java that hardly optimises, and makes a session only on request.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braidlog.storage.export import jvm

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkConf, SparkContext
    from pyspark.sql import SparkSession

REPORT_INTERVAL_S = 0.25
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # Set by spark-submit, whose JVM and settings are then used.

LOG_SETTINGS = Path(__file__).resolve().parent / "log4j2.properties"

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}",
}
SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.task.maxFailures": "1"}
SESSION_SETTINGS = {"spark.sql.session.timeZone": "UTC"}
# For a Java with little work: the second compiler would take a third of the start's time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"  # For the Java that only builds Spark's command line.

# (records done, records in all)
Report = Callable[[int, int], None]
Work = Callable[[Callable[[int], None], Iterable[Any]], Iterable[Any]]


class SparkFailed(Exception):
    """Spark itself failed; the text is the first line of the error."""


class Spark:
    """A context for all runs of an export; local, unless `master` or spark-submit is given."""

    def __init__(self, java: str = jvm.AUTO, master: str | None = None) -> None:
        self._java = java
        self._master = master
        self._context: SparkContext | None = None
        self._session: SparkSession | None = None

    def __enter__(self) -> "Spark":
        return self

    def __exit__(self, *_: object) -> None:
        if SUBMITTED in os.environ:
            return
        if self._session is not None:
            self._session.stop()
        elif self._context is not None:
            self._context.stop()

    def map(self, work: Work, parts: Sequence[Any], total: int, report: Report | None) -> list[Any]:
        """Run `work(report, parts)` over the parts, a task each; `report` counts towards `total`.

        Raises: NoJava; SparkFailed, for example if a worker dies.
        """
        from py4j.protocol import Py4JError

        context = self._started_context()
        done = context.accumulator(0)
        tasks = context.parallelize(parts, len(parts)).mapPartitions(_Counted(work, done))
        try:
            with _reporting(done, total, report):
                return list(tasks.collect())
        except Py4JError as error:
            raise SparkFailed(_cause(error)) from error

    def started(self) -> "SparkSession":
        """Return a session with SQL; its Java optimises, unless `map` was called before. Raises
        NoJava.
        """
        if self._session is None:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.config(conf=self._settings())
            for key, value in SESSION_SETTINGS.items():
                builder = builder.config(key, value)
            self._session = builder.getOrCreate()
            self._context = self._session.sparkContext
        return self._session

    def _started_context(self) -> "SparkContext":
        if self._context is None:
            from pyspark import SparkContext
            from pyspark.errors import PySparkException

            settings = self._settings()
            if settings.contains(JAVA_OPTIONS):
                settings.set(JAVA_OPTIONS, f"{settings.get(JAVA_OPTIONS)} {QUICK_START}")
            try:
                self._context = SparkContext.getOrCreate(settings)
            # Java has printed the reason: an unknown master, no memory.
            except PySparkException as error:
                raise SparkFailed(f"Spark did not start: {error}") from error
        return self._context

    def _settings(self) -> "SparkConf":
        """Return Spark's settings and set the environment. Raises NoJava."""
        from pyspark import SparkConf

        settings = dict(SETTINGS) | {"spark.app.name": "braidlog export"}
        if SUBMITTED not in os.environ:
            os.environ["JAVA_HOME"] = str(jvm.java_home(self._java))
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault(LAUNCHER_OPTIONS, QUICK_START)
            settings["spark.master"] = self._master or "local[*]"
            if self._master is None or self._master.startswith("local"):
                os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
                settings |= LOCAL_SETTINGS
        return SparkConf().setAll(list(settings.items()))


def _cause(error: Exception) -> str:
    """Return Spark's reason, without the pages of trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    error_lines = [line for line in lines if "Exception" in line or "Error" in line]
    return (error_lines or lines or ["Spark failed"])[0]


class _Counted:
    """The work of a task, with an accumulator for progress. A class, to be picklable."""

    def __init__(self, work: Work, done: "Accumulator[int]") -> None:
        self._work = work
        self._done = done

    def __call__(self, parts: Iterable[Any]) -> Iterable[Any]:
        return self._work(self._done.add, parts)


@contextmanager
def _reporting(done: "Accumulator[int]", total: int, report: Report | None) -> Iterator[None]:
    """Call `report` with the progress of the tasks while the body runs."""
    if report is None:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(REPORT_INTERVAL_S):
            report(min(done.value, total), total)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
        report(total, total)
    finally:
        ended.set()
        thread.join()
