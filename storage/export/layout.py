"""Paths of records in an export folder: topic, date, hour and file name. Pure."""

import hashlib
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

import numpy as np

from braidlog.storage.export.ranges import Range
from braidlog.storage.formats.columns.vectors import Array

PartitionBy = Literal["date", "hour"]

# Limit of a name in any file system: percent-encoding makes three bytes of one.
FOLDER_BYTES_MAX = 255
DIGEST_CHARS = 16
NAME_CHARS_MAX = 80  # Part of the topic's name in a file name, which must stay below 255 bytes.

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
# Years 1 to 9999: the range of a date column of Spark, pandas or Python.
FIRST_US = -62_135_596_800_000_000
END_US = 253_402_300_800_000_000

# Hive's folder for a null; for a record whose time is no calendar date.
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
NO_SLOT = -(1 << 63)

# Readers (pyarrow, pandas, Spark, Hive) skip files whose names begin with `_` or `.`, and a topic's
# name may begin so. Older file names without this word are parsed too.
FILE_WORD = "records+"

_FILE = re.compile(r"(?:records\+)?([^+]+)\+(\d{5})\+(\d+)\+(\d{20})\+(\d{20})\.parquet")


@dataclass(frozen=True, slots=True)
class FileName:
    """The parts of an exported file's name."""

    name: str
    index: int
    partition_id: int
    start: int
    end: int

    @classmethod
    def parse(cls, text: str) -> "FileName | None":
        """Parse a file name; return None for a foreign file."""
        match = _FILE.fullmatch(text)
        if match is None:
            return None
        return cls(match[1], int(match[2]), int(match[3]), int(match[4]), int(match[5]))

    @classmethod
    def of(cls, part: Range) -> "FileName":
        """Return the name of a range's file."""
        name = quote(part.topic.rpartition("/")[2], safe="")[:NAME_CHARS_MAX]
        return cls(name, part.index, part.partition_id, part.start, part.end)

    def __str__(self) -> str:
        offsets = f"{self.start:020d}+{self.end:020d}"
        return f"{FILE_WORD}{self.name}+{self.index:05d}+{self.partition_id}+{offsets}.parquet"


def slots_of(times_us: Array, by: PartitionBy) -> Array:
    """Return a number for the date or hour of each time, equal for all times of a folder."""
    unit = HOUR_US if by == "hour" else DAY_US
    usable = (times_us >= FIRST_US) & (times_us < END_US)
    return np.where(usable, times_us // unit, NO_SLOT)


def folder_of(slot: int, by: PartitionBy) -> str:
    """Return `date=YYYY-MM-DD`, with `/hour=HH` if requested."""
    if slot == NO_SLOT:
        return f"date={NO_DATE}" + (f"/hour={NO_DATE}" if by == "hour" else "")
    day, hour = divmod(slot, 24) if by == "hour" else (slot, 0)
    date = np.datetime_as_string(np.datetime64(day, "D"))
    return f"date={date}" + (f"/hour={hour:02d}" if by == "hour" else "")


def topic_folder(topic: str) -> str:
    """Return `topic=NAME`, the full name percent-encoded.

    A name that is too long for a folder ends after a whole character, with `+`, which no encoded
    name has, and the start of its SHA-256.
    """
    folder = f"topic={quote(topic, safe='')}"
    if len(folder) <= FOLDER_BYTES_MAX:
        return folder
    mark = f"+{hashlib.sha256(topic.encode()).hexdigest()[:DIGEST_CHARS]}"
    while len(folder) + len(mark) > FOLDER_BYTES_MAX:
        topic = topic[:-1]
        folder = f"topic={quote(topic, safe='')}"
    return folder + mark


def final_path(part: Range, slot: int, by: PartitionBy) -> str:
    """Return the path of the file of a range and a slot, relative to the root."""
    return f"{topic_folder(part.topic)}/{folder_of(slot, by)}/{FileName.of(part)}"


def dead_letter_path(run: int, part: Range) -> str:
    """Return the path of the unreadable bodies of a range, relative to the root."""
    name = f"{part.partition_id}+{part.start:020d}+{part.end:020d}.parquet"
    return f"_export/deadletter/run={run:020d}/{name}"
