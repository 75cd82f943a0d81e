"""The examples in docs/spark.md work: their Python runs in order, over a log and an export.

Blocks for DuckDB, pandas and plots run if these are installed; no other code needs them. The blocks
about a cluster's store are only compiled: `conformance/exports/clustered.py` reads such a store.
"""

import importlib.util
import re
from pathlib import Path

import pytest

from braidlog.storage.export.export import ExportJob, ExportSource, run_export
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.metadata.names import parse_topic
from tests.storage.export.test_worker import Data, record

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
RECORDS = 50
NEEDS = {"duckdb": ("duckdb", "pandas"), "toPandas": ("pandas", "matplotlib")}


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def placed(block: str, folder: Path) -> str:
    """Return the block with paths of that folder: Spark itself runs in another folder."""
    return re.sub(r"(?<=[\"'])(data\"|checkpoint\"|out/|lake/)", rf"{folder}/\1", block)


def can_run(block: str) -> bool:
    if "s3://" in block:
        return False
    wanted = {name for word, names in NEEDS.items() if word in block for name in names}
    return all(importlib.util.find_spec(name) for name in wanted)


def test_the_examples_run_in_order(spark_export, tmp_path):
    data = Data(tmp_path)
    values = [b'{"id": %d, "customer": "c%d", "price": 1.5}' % (n, n % 3) for n in range(RECORDS)]
    data.append(BodyFormat.KAFKA, [record(value=value) for value in values])
    lake = tmp_path / "lake"
    source = ExportSource(data.directory.path, (parse_topic("orders"),))
    run_export(ExportJob(source, lake), spark_export)
    names: dict[str, object] = {"display": print}
    ran = 0
    for block in blocks():
        code = compile(placed(block, tmp_path), str(PAGE), "exec")
        if can_run(block):
            exec(code, names)
            ran += 1
    assert ran >= 3
    assert names["rows"].isStreaming  # Of the last block with a read.
    written = spark_export.started().read.parquet(str(tmp_path / "out"))
    assert written.count() == RECORDS
    assert (tmp_path / "checkpoint").is_dir()
