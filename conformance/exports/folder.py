"""What a reader sees that just lists the folder of an export."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet


@dataclass(frozen=True, slots=True)
class Shown:
    """How much there is."""

    rows: int
    files: int


def check_once(lake: Path, ends: Mapping[int, int] | None = None) -> Shown:
    """Every file is whole, and no offset of a partition comes twice; with `ends`, offsets from 0 to
    the end of each partition are all there. Raises AssertionError, pa.ArrowException.
    """
    offsets: dict[int, list[pa.Array]] = {}
    files = sorted(lake.glob("topic=*/**/*.parquet"))
    for path in files:
        table = parquet.ParquetFile(path).read(columns=["partition", "offset"])
        for index in table["partition"].unique().to_pylist():
            here = table.filter(pa.compute.equal(table["partition"], index))
            offsets.setdefault(index, []).append(here["offset"].to_numpy())
    rows = 0
    for index, found in offsets.items():
        joined = np.sort(np.concatenate(found))
        rows += len(joined)
        assert (joined[1:] != joined[:-1]).all(), f"partition {index}: an offset comes twice"
        if ends is not None:
            assert len(joined) == ends[index] == joined[-1] + 1, f"partition {index}: some are lost"
    assert ends is None or rows == sum(ends.values()), "a whole partition is lost"
    return Shown(rows, len(files))
