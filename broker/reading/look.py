"""A look into a stored batch, for callers that keep nothing of it: lookups of ids and times.

Memory for a large batch is reserved before the read, until the caller is done. Knows no format.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.broker.runtime.output_budget import OutputReservation

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch


@dataclass(slots=True)
class Look:
    """The batch in sight and its memory. `batches` is empty at the high watermark; batches without
    bodies may follow the first batch.
    """

    batches: Sequence[Batch]
    memory: OutputReservation


@asynccontextmanager
async def look_at(
    partition: Partition, offset: int, *, compacted: bool = False
) -> AsyncIterator[Look]:
    """Read the batch that holds or follows `offset`. The batch is forgotten at the end, so that a
    caller that looks on holds a single batch. Raises as `Partition.read`.
    """
    read = partition.read_compacted if compacted else partition.read
    with partition.room() as memory:
        look = Look(await read(offset, 1, before_large=memory.grow), memory)
        try:
            yield look
        finally:
            look.batches = ()
