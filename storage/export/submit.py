"""An export as a Spark job: `spark-submit` of this file, or `python -m` of this module.

Has the few options of a cluster's job; `braidlog export` has all options and a progress bar. Knows
the export, no broker.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from braidlog.storage.export.commit import FolderBusy
from braidlog.storage.export.export import ExportFailed, ExportJob, ExportSource, run_export
from braidlog.storage.export.jvm import AUTO, NoJava
from braidlog.storage.export.places import STORES, BadPlace, store_place
from braidlog.storage.export.ranges import Bounds, LogTooShort, RecordsLost
from braidlog.storage.export.session import Spark, SparkFailed
from braidlog.storage.metadata.names import InvalidTopicName, parse_topic

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Do a run; print the summary as a line of JSON."""
    options = _parser().parse_args(arguments)
    if bool(options.topics) == (options.pattern is not None):
        print("name topics, or give one --pattern", file=sys.stderr)
        return EXIT_USAGE
    try:
        source = ExportSource(
            _place(options), tuple(parse_topic(name) for name in options.topics), options.pattern
        )
        job = ExportJob(
            source,
            Path(options.to),
            on_corrupt=options.corrupt,
            fail_on_loss=options.lost == "fail",
            bounds=Bounds(options.max_rows, options.max_bytes),
        )
        with Spark(AUTO, options.master) as spark:
            print(json.dumps(asdict(run_export(job, spark))))
    except (InvalidTopicName, BadPlace) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except (
        ExportFailed,
        FolderBusy,
        LogTooShort,
        NoJava,
        RecordsLost,
        SparkFailed,
        OSError,
    ) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    return EXIT_DONE


def _place(options: argparse.Namespace) -> str:
    """Return the place of the options. Raises BadPlace."""
    log: str = options.log
    if log.startswith(STORES):
        return store_place(log, options.database, options.endpoint)
    return log


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Export topics to Parquet.")
    parser.add_argument("topics", nargs="*")
    parser.add_argument("--pattern")
    places = "a data directory, http://HOST:PORT, or a cluster's store: s3://BUCKET/PREFIX"
    parser.add_argument("--log", required=True, help=places)
    parser.add_argument("--database", help="of a cluster's store, as libpq writes it")
    parser.add_argument("--endpoint", help="of a cluster's store that is not Amazon's")
    parser.add_argument("--to", required=True, help="the folder, which all executors see")
    parser.add_argument("--master", help="not with spark-submit, which has its own")
    parser.add_argument("--corrupt", choices=("fail", "deadletter"), default="fail")
    parser.add_argument("--lost", choices=("fail", "skip"), default="fail")
    parser.add_argument("--max-rows", type=int)
    parser.add_argument("--max-bytes", type=int)
    return parser


if __name__ == "__main__":
    sys.exit(main())
