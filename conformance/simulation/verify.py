"""Compares a recovered broker, or a directory without a broker, with the facts."""

import os

from braidlog.storage.errors import StorageError
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.folder_reader import list_partitions, open_folder
from braidlog.storage.log.layout import PARTITIONS_NAME
from braidlog.storage.log.log import Log
from conformance.simulation.facts import (
    AppendedBatch,
    Facts,
    LogFacts,
    agreed,
    catalogue_state,
    cursor_state,
)
from conformance.simulation.house import SimulatedBroker

READ_BYTES = 1 << 16


class Broken(Exception):
    """A broken promise; the text names the promise."""


def verify(house: SimulatedBroker, facts: Facts, stamp: int, *, is_whole: bool = False) -> None:
    """Check that a crash at `stamp` may leave the recovered broker. Raises Broken.

    `is_whole`: all files were complete, so no written data may be missing.
    """
    catalogue = catalogue_state(house.broker.catalogue.state)
    allowed = facts.catalogue.window(stamp)
    if catalogue not in allowed:
        raise Broken(f"catalogue is {catalogue}, not one of {len(allowed)}, first {allowed[0]}")
    cursors = cursor_state(house.cursors)
    positions = [agreed(state, catalogue) for state in facts.cursors.window(stamp)]
    if cursors not in positions:
        raise Broken(f"cursors are {cursors}, not one of {positions}")
    for partition_id, partition in house.partitions.items():
        try:
            verify_log(partition.log, facts.log(partition_id), stamp, is_whole=is_whole)
        except Broken as broken:
            raise Broken(f"partition {partition_id}: {broken}") from None


def verify_log(log: Log, facts: LogFacts, stamp: int, *, is_whole: bool) -> None:
    """Check that a recovered log has all required records, and no others. Raises Broken."""
    if log.recovery.damages:
        raise Broken(f"a crash was taken for damage: {log.recovery.damages}")
    start, end = log.log_start_offset, log.log_end_offset
    durable = facts.durable.at(stamp)
    if start > facts.start.at(stamp):
        raise Broken(f"begins at {start}, above {facts.start.at(stamp)}")
    if end < durable:
        raise Broken(f"ends at {end}, acknowledged is {durable}")
    if end < facts.shown.at(stamp):
        raise Broken(f"goes on at {end}, below {facts.shown.at(stamp)} that readers saw")
    if is_whole and end < facts.appended_end(stamp):
        raise Broken(f"ends at {end}, written is {facts.appended_end(stamp)}")
    if log.high_watermark != end:
        raise Broken(f"shows {log.high_watermark} of {end} after the start's round")
    kept_below = facts.appended_end(stamp) if is_whole else durable
    is_written = facts.written_mode.at(stamp) or log.settings.durability == "written"
    offset = start
    while batches := log.read(offset, READ_BYTES):
        for batch in batches:
            if batch.base_offset != offset:
                raise Broken(f"batch at {batch.base_offset}, expected {offset}")
            check_batch(batch, facts, stamp, kept_below if is_written else None)
            offset = batch.next_offset


def check_batch(batch: Batch, facts: LogFacts, stamp: int, kept_below: int | None) -> None:
    """Check that a batch was appended, or is a gap at a valid place. Raises Broken.

    A valid gap is known, or begins at `kept_below` or later.
    """
    where = f"[{batch.base_offset}, {batch.next_offset})"
    if batch.header.flags & BatchFlag.GAP:
        is_new = kept_below is not None and batch.base_offset >= kept_below
        if not is_new and not any(covers(gap, batch, stamp) for gap in facts.gaps):
            raise Broken(f"a gap {where} where records may not go")
        return
    stored = facts.batch_at(batch.base_offset)
    if stored is None or stored.stamp > stamp:
        raise Broken(f"batch {where} was never appended")
    if (stored.next_offset, stored.body) != (batch.next_offset, bytes(batch.body)):
        raise Broken(f"batch {where} is not what was appended")


def covers(gap: AppendedBatch, batch: Batch, stamp: int) -> bool:
    """Return True if that gap was known then and has room for the batch."""
    inside = gap.base_offset <= batch.base_offset and batch.next_offset <= gap.next_offset
    return inside and gap.stamp <= stamp


def verify_outside(path: str, facts: Facts, stamp: int) -> int:
    """Check that a reader without a broker gets right records up to the watermark slots of an
    unrecovered directory; return the number of batches. Raises Broken.
    """
    count = 0
    if not os.path.isdir(os.path.join(path, PARTITIONS_NAME)):
        return count  # Power was lost before the first partition.
    for partition in list_partitions(path):
        with open_folder(partition.folder) as log:
            known = facts.log(partition.partition_id)
            offset = log.log_start_offset
            try:
                for batch in log.batches(offset):
                    is_written = known.written_mode.at(stamp)
                    check_batch(batch, known, stamp, 0 if is_written else None)
                    count += 1
            except (StorageError, Broken) as error:
                end = log.high_watermark
                raise Broken(
                    f"partition {partition.partition_id} from outside to {end}: {error}"
                ) from error
    return count
