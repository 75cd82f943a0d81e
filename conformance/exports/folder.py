"""The view of a reader that simply lists the folder of an export."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet


@dataclass(frozen=True, slots=True)
class FolderCounts:
    """Numbers of rows and files."""

    rows: int
    files: int


def check_once(lake: Path, ends: Mapping[int, int] | None = None) -> FolderCounts:
    """Check that every file is whole, and that no offset of a partition occurs twice.

    With `ends`, all offsets from 0 to the end of each partition must exist. Raises AssertionError,
    pa.ArrowException.
    """
    offsets: dict[int, list[pa.Array]] = {}
    files = sorted(lake.glob("topic=*/**/*.parquet"))
    for path in files:
        table = parquet.ParquetFile(path).read(columns=["partition", "offset"])
        for index in table["partition"].unique().to_pylist():
            here = table.filter(pa.compute.equal(table["partition"], index))
            offsets.setdefault(index, []).append(here["offset"].to_numpy())
    rows = 0
    for index, arrays in offsets.items():
        joined = np.sort(np.concatenate(arrays))
        rows += len(joined)
        assert (joined[1:] != joined[:-1]).all(), f"partition {index}: an offset comes twice"
        if ends is not None:
            assert len(joined) == ends[index] == joined[-1] + 1, f"partition {index}: some are lost"
    assert ends is None or rows == sum(ends.values()), "a whole partition is lost"
    return FolderCounts(rows, len(files))
