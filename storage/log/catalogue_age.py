"""Detects a catalogue that is older than the partitions beside it. Such a catalogue is from a
backup and does not know the partitions created since. Knows folders and watermark slots, no topic.
"""

import os
from collections.abc import Iterable

from braidlog.storage.log.watermark import read_watermark


def older_catalogue(
    partitions_path: str, partition_ids: Iterable[int], partition_ids_end: int
) -> str | None:
    """Return why the catalogue is older than these partition folders, None without evidence.

    `partition_ids_end`: the catalogue gave out the partition ids below it. A crash may leave a new
    folder that the catalogue does not name, but never one with durable records: the round that made
    them durable made the topic durable too.
    """
    newer = sorted(
        number
        for number in partition_ids
        if number >= partition_ids_end
        and read_watermark(os.path.join(partitions_path, str(number)), number).durable_offset
    )
    if not newer:
        return None
    return (
        f"the catalogue is older than the partitions: it does not know {len(newer)} of them that"
        f" hold records, the first is {os.path.join(partitions_path, str(newer[0]))}"
    )
