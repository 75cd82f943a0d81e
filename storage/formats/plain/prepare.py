"""The stored body of records from HTTP: the single entry of producers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record


@dataclass(slots=True)
class Draft:
    """A body that is made a part at a time, so that other tasks get turns between parts."""

    parts: Iterator[bytes]
    info: BodyInfo
    body_format: int


def prepare(records: Sequence[Record], part_records: int, *, own_times: bool = False) -> Draft:
    """Return the body of records. All have the same publish time, unless they have
    `own_times`. The offsets of records count from 0:
    in this format they are relative to the batch's base offset. A part holds at most `part_records`
    records.
    """
    first_us = last_us = records[0].publish_us
    if own_times:
        times = [record.publish_us for record in records if record.publish_us is not None]
        first_us, last_us = (times[0], max(times)) if times else (None, None)
    is_delayed = any(record.deliver_at_us is not None for record in records)
    flags = int(BatchFlag.DELAYED) if is_delayed else 0
    starts = range(0, len(records), part_records)
    parts = (PLAIN.encode(records[start : start + part_records], 0) for start in starts)
    return Draft(parts, BodyInfo(len(records), first_us, last_us, flags), PLAIN.format)
