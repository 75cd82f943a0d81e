"""Places in a partition's log as users write them: earliest, latest, an offset, -N, a time, an age.

The command line takes the same texts. Knows the API, no page.
"""

from __future__ import annotations

import re

from braidlog.broker.cli.failures import AdminError
from braidlog.broker.cli.places import time_us_of
from braidlog.protocols.http.console.shown_messages import MessagesRead, offset_of
from braidlog.protocols.http.console.visits import PageRefused, Visit
from braidlog.protocols.http.management.messages import PartitionInfo

OFFSET = re.compile(r"-?[0-9]{1,19}")


async def find_place(visit: Visit, bounds: PartitionInfo, text: str, back: int = 0) -> int:
    """Return the offset of a place within the bounds of a partition of the visit's topic; `latest`
    is `back` before the end. Raises ApiError, PageRefused.
    """
    start, end = bounds.log_start_offset, bounds.high_watermark
    return min(max(await _offset(visit, bounds, text, back), start), end)


async def _offset(visit: Visit, bounds: PartitionInfo, text: str, back: int) -> int:
    end = bounds.high_watermark
    if text == "earliest":
        return bounds.log_start_offset
    if text == "latest":
        return end - back
    if OFFSET.fullmatch(text):
        return end + int(text) if text.startswith("-") else int(text)
    try:
        first_us = time_us_of(text, "the place")
    except AdminError as error:
        raise PageRefused(400, str(error)) from None
    path = f"/topics/{visit.topic}/partitions/{bounds.partition}/messages"
    query = {"timestamp": max(first_us, 0) // 1000, "timeout": 0, "max_messages": 1, "max_bytes": 1}
    read = await visit.api.get(path, MessagesRead, **query)
    return offset_of(read.messages[0]) if read.messages else read.next_offset
