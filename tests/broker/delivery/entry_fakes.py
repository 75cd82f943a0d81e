"""A partition in memory whose batches tests lay out: Pulsar entries, other records, gaps, markers,
chunks.

Reads like `braidlog.broker.topics.partition.Partition`.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import trio

from braidlog.broker.errors import DamagedLog, OffsetOutOfRange, TopicNotFound
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.topics.partition import Partition
from braidlog.broker.topics.unreadable import UnreadablePlaces
from braidlog.broker.traffic import PartitionTraffic
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.batch import Batch, BatchHeader
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, PULSAR
from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import EntryMetadata
from braidlog.storage.formats.record import Record
from braidlog.storage.log.settings import LogSettings

MS = 1000  # Microseconds.


def entry_bytes(count=1, *, batched=None, time_ms=0, **metadata):
    """Return a stored entry with a count of `count` messages; no test opens the payload."""
    fields = EntryMetadata(producer_name=b"p", sequence_id=0, publish_time=time_ms, **metadata)
    if batched or (batched is None and count > 1):
        fields.num_messages_in_batch = count
    packed = fields.SerializeToString()
    return b"\x0e\x01\x00\x00\x00\x00" + len(packed).to_bytes(4, "big") + packed + b"payload"


@dataclass
class FakeLog:
    """The directly used part of `Log`."""

    partition: "FakePartition"
    settings: LogSettings = field(default_factory=LogSettings)

    def offset_at_or_after(self, time_us):
        for batch in self.partition.visible():
            if batch.header.time_us >= time_us:
                return batch.base_offset
        return self.partition.high_watermark

    def batch_before(self, base_offset):
        earlier = [batch for batch in self.partition.batches if batch.base_offset < base_offset]
        return earlier[-1] if earlier else None


@dataclass(eq=False)
class FakePartition:
    """A partition in memory; `gate` delays reads, like a slow disk.

    If `is_warm`, reads need not wait, and new records are offered to the callback of a waiting
    task.
    """

    is_warm: ClassVar[bool] = False

    partition_id: int = 7
    index: int = 0
    log_start_offset: int = 0
    removed: bool = False
    is_terminated: bool = False
    partitioned: bool = False
    batches: list = field(default_factory=list)
    gate: trio.Event | None = None

    def __post_init__(self):
        name = SimpleNamespace(full="public/default/t")
        self.topic = SimpleNamespace(name=name, partitioned=self.partitioned, layout_users=0)
        self.log = FakeLog(self)
        self.unreadable = UnreadablePlaces()
        self.traffic = PartitionTraffic()
        self.high_watermark = 0
        self._arrived = trio.lowlevel.ParkingLot()
        self._at_once = None
        self._waits_at = -1
        self.given_at_once = 0  # number of times that the callback delivered new records

    def check_here(self):
        if self.removed:
            raise TopicNotFound(self.topic.name.full)

    @property
    def next_offset(self):
        return self.batches[-1].next_offset if self.batches else self.log_start_offset

    def visible(self):
        return [batch for batch in self.batches if batch.next_offset <= self.high_watermark]

    # Test input. Each call adds a batch.

    def entries(self, *counts, flags=0, time_ms=0, metadata=None, visible=True):
        """Add stored Pulsar entries with these message counts; return their offsets."""
        body, delta, offsets = b"", 0, []
        base_offset = self.next_offset
        for count in counts:
            entry = entry_bytes(count, time_ms=time_ms, **(metadata or {}))
            body += ENTRY_PREFIX.pack(len(entry), delta, count) + entry
            offsets.append(base_offset + delta)
            delta += count
        info = PULSAR.inspect(body)
        self._add(body, BodyFormat.PULSAR, delta, delta, info.flags | flags, time_ms, visible)
        return offsets

    def records(self, count, *, keep=None, time_ms=0, body_format=BodyFormat.PLAIN, value=b"v%d"):
        """Add records of another format; `keep` are the places that compaction left."""
        base_offset = self.next_offset
        places = range(count) if keep is None else keep
        remaining = [
            Record(
                base_offset + place,
                time_ms * MS,
                time_ms * MS,
                value=value.replace(b"%d", b"%d" % place),
            )
            for place in places
        ]
        body = PLAIN.encode(remaining, base_offset)
        self._add(body, body_format, count, len(remaining), 0, time_ms, True)
        return [record.offset for record in remaining]

    def gap(self, count):
        self._add(b"", BodyFormat.GAP, count, 0, BatchFlag.GAP, 0, True)

    def show_all(self):
        """Raise the watermark, as after a sync."""
        self.high_watermark = self.next_offset
        if self.is_warm and self._at_once is not None and self.high_watermark > self._waits_at:
            offset = self._at_once()
            if offset is not None:
                self.given_at_once += 1
                self._waits_at = offset
                if offset >= self.high_watermark:
                    return
        self._arrived.unpark_all()

    def _add(self, body, body_format, covered, count, flags, time_ms, visible):
        header = BatchHeader(
            partition_id=self.partition_id,
            base_offset=self.next_offset,
            last_offset_delta=covered - 1,
            record_count=count,
            durable_offset=0,
            append_us=time_ms * MS,
            body_format=body_format,
            flags=flags,
            max_publish_us=time_ms * MS,
            body_bytes=len(body),
        )
        self.batches.append(Batch(header, memoryview(b""), memoryview(body), 0))
        if visible:
            self.show_all()

    # The broker's interface.

    check_readable = Partition.check_readable

    def room(self):
        return OutputBudget().reserve_now(0)

    async def read(self, offset, bytes_max, *, before_large=None):
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        return self._batches_at(offset, bytes_max)

    def read_warm(self, offset, bytes_max):
        is_there = self.is_warm and self.gate is None
        return self._batches_at(offset, bytes_max) if is_there else None

    def _batches_at(self, offset, bytes_max):
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        batches, size = [], 0
        for batch in self.visible():
            if batch.next_offset > offset:
                size += len(batch.body)
                if batches and size > bytes_max:
                    break
                batches.append(batch)
        return batches

    async def wait_for(self, offset, at_once=None):
        self._at_once, self._waits_at = at_once, offset
        try:
            while self.high_watermark <= self._waits_at:
                await self._arrived.park()
        finally:
            self._at_once = None


class FailingPartition(FakePartition):
    """A partition whose disk fails at some places."""

    def __post_init__(self):
        super().__post_init__()
        self.failing = set()
        self.failures = 0

    def _batches_at(self, offset, bytes_max):
        batches = super()._batches_at(offset, bytes_max)
        for number, batch in enumerate(batches):
            if batch.base_offset in self.failing:
                if number == 0:
                    self.failures += 1
                    raise DamagedLog("cannot be read")
                return batches[:number]
        return batches
