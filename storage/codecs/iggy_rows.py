"""Many messages of the later dialects at once, whose sizes and headers may differ: numpy checks and
writes all their heads as rows of a table, so that only checksums are left to do one by one.

Says no to anything unusual and leaves it, with its errors, to the functions in `iggy_typed.py` and
`iggy_forms.py` that go one by one, which are also what the tests hold it against. Importing this
needs the extra `fast`.
"""

import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from storage.codecs.api import BodyInfo
from storage.codecs.compression import crc32
from storage.codecs.iggy import AVAILABLE, HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX
from storage.codecs.iggy_forms import (
    BATCH_CHECKED,
    BATCH_HEAD,
    BATCH_HEAD_BYTES,
    DELTA_MAX,
    ONE_BATCH_MAX,
)
from storage.codecs.iggy_typed import TIME_MAX_US, check_headers, checksum_of
from storage.errors import CorruptBody

Row = np.ndarray
# Up to this size a piece is copied in less time than a view of it is made.
COPIED_BYTES_MAX = 2048
SIZES = struct.Struct("<II")  # Bytes of headers and payload, in every head.

# A message as it is sent in a batch (crate 0.11), and as it is stored: `iggy_forms.FRAME_HEAD`
# and `iggy_typed.HEAD`.
SENT = np.dtype(
    [
        *(("checksum", "<u8"), ("id", "<u8", 2), ("offset", "<u4"), ("time", "<u4")),
        *(("headers", "<u4"), ("payload", "<u4"), ("reserved", "<u8")),
    ]
)
STORED = np.dtype(
    [
        *(("checksum", "<u8"), ("id", "<u8", 2), ("offset", "<u8"), ("append", "<u8")),
        *(("sent", "<u8"), ("headers", "<u4"), ("payload", "<u4"), ("reserved", "<u8")),
    ]
)
# A stored message of the classic dialects, `iggy.RECORD_HEAD`, that has no headers.
CLASSIC = np.dtype(
    [
        *(("offset", "<u8"), ("state", "u1"), ("append", "<u8"), ("id", "<u8", 2)),
        *(("checksum", "<u4"), ("headers", "<u4"), ("payload", "<u4")),
    ]
)
# Where the sizes stand, from the end of a head.
SIZES_FROM_END = {SENT: 16, STORED: 16, CLASSIC: 8}
GROWTH = STORED.itemsize - SENT.itemsize
CHECKED = 8  # A checksum covers everything behind it.


@dataclass(slots=True)
class Table:
    """Messages in a row, of which each has a head of that kind; `step`: all have this size, 0: they
    differ.
    """

    view: memoryview
    kind: np.dtype
    starts: Row
    stops: Row
    step: int

    def heads(self) -> Row:
        """A copy of the heads."""
        if self.step:
            first = int(self.starts[0])
            rows = np.ndarray((len(self.starts),), self.kind, self.view, first, (self.step,))
            return rows.copy()
        gathered: Row = self._bytes()[self._places()]
        return gathered.view(self.kind).ravel()

    def put(self, heads: Row) -> None:
        """Write heads back."""
        if self.step:
            first = int(self.starts[0])
            rows = np.ndarray((len(self.starts),), self.kind, self.view, first, (self.step,))
            rows[:] = heads
        else:
            flat = heads.view(np.uint8).reshape(len(heads), self.kind.itemsize)
            self._bytes()[self._places()] = flat

    def digests(self) -> Row:
        """The checksums that the messages ought to have."""
        view, step = self.view, self.step
        digest, checked = (
            (crc32, CLASSIC.itemsize) if self.kind is CLASSIC else (checksum_of, CHECKED)
        )
        if 0 < step <= COPIED_BYTES_MAX:
            first, last = int(self.starts[0]), int(self.stops[-1])
            pieces = struct.iter_unpack(f"{checked}x{step - checked}s", view[first:last])
            sums = [digest(piece) for (piece,) in pieces]  # hot: see make bench
        else:
            places = zip((self.starts + checked).tolist(), self.stops.tolist(), strict=True)
            sums = [digest(view[start:stop]) for start, stop in places]
        return np.array(sums, "<u8")

    def header_bytes(self, heads: Row) -> int:
        """Bytes of all header values. Raises CorruptBody."""
        total = 0
        for at in np.flatnonzero(heads["headers"]).tolist():
            stop = int(self.stops[at])
            total += check_headers(self.view[stop - int(heads["headers"][at]) : stop])
        return total

    def moved(self, view: memoryview, kind: np.dtype, first: int) -> "Table":
        """Where the same messages are in `view`, from `first` on, with heads of another kind."""
        growth = kind.itemsize - self.kind.itemsize
        shift = first - self.starts[0] + growth * np.arange(len(self.starts))
        step = self.step + growth if self.step else 0
        return Table(view, kind, self.starts + shift, self.stops + shift + growth, step)

    def copy_rest(self, to: "Table") -> None:
        """Copy what is behind the heads."""
        mine, other = self.kind.itemsize, to.kind.itemsize
        if self.step:
            shape = (len(self.starts), -1)
            first, last = int(self.starts[0]), int(self.stops[-1])
            source = self._bytes()[first:last].reshape(shape)
            first, last = int(to.starts[0]), int(to.stops[-1])
            to._bytes()[first:last].reshape(shape)[:, other:] = source[:, mine:]
            return
        source_view, view = self.view, to.view
        begins = (self.starts + mine).tolist()
        rows = zip(begins, self.stops.tolist(), (to.starts + other).tolist(), strict=True)
        for begin, stop, at in rows:  # hot: see make bench
            view[at : at + stop - begin] = source_view[begin:stop]

    def _bytes(self) -> Row:
        return np.frombuffer(self.view, np.uint8)

    def _places(self) -> Row:
        return self.starts[:, None] + np.arange(self.kind.itemsize)


def table_of(view: memoryview, first: int, kind: np.dtype) -> Table | None:
    """The messages from `first` to the end; None if there is none, or their lengths do not fit."""
    end, head_bytes = len(view), kind.itemsize
    sizes_pos = head_bytes - SIZES_FROM_END[kind]
    starts, pos, sizes_at = list[int](), first, SIZES.unpack_from
    if end - first < head_bytes:
        return None
    step = head_bytes + sum(sizes_at(view, first + sizes_pos))
    count, rest = divmod(end - first, step)
    if not rest:
        sizes = np.ndarray((count,), "<u8", view, first + sizes_pos, (step,))
        if (sizes == sizes[0]).all():
            places = first + step * np.arange(count)
            return Table(view, kind, places, places + step, step)
    while pos <= end - head_bytes:  # hot: see make bench
        starts.append(pos)
        headers, payload = sizes_at(view, pos + sizes_pos)
        pos += head_bytes + headers + payload
    if pos != end:
        return None
    places = np.array(starts)
    return Table(view, kind, places, np.append(places[1:], end), 0)


def body_of_typed(
    body: memoryview,
    first: int,
    base_offset: int,
    append_us: int,
    random_bytes: Callable[[int], bytes],
) -> BodyInfo | None:
    """Make stored records of what `iggy_typed.body_from_typed` takes, where they are; None, with
    nothing changed: something is unusual or wrong.
    """
    table = table_of(body, first, STORED)
    if table is None:
        return None
    heads = table.heads()
    if heads["offset"].any() or heads["append"].any() or not heads["payload"].all():
        return None
    info = _info(table, heads, heads["sent"])
    if info is None:
        return None
    missing = ~heads["id"].any(axis=1)
    if missing.any():
        fresh = fresh_rows(int(np.count_nonzero(missing)), random_bytes)
        heads["id"][missing] = fresh.view("<u8")
    heads["offset"] = base_offset + np.arange(len(heads))
    heads["append"] = append_us
    _put_sealed(table, heads)
    return info


def body_of_batch(
    batch: memoryview, head: bytes, base_offset: int, append_us: int
) -> tuple[memoryview, BodyInfo] | None:
    """The body that `iggy_forms.body_from_batch` makes of a batch whose head is sound; None:
    something is unusual or wrong.
    """
    table = table_of(batch, BATCH_HEAD_BYTES, SENT)
    if table is None:
        return None
    *_, sent_us, _, checksum, count = BATCH_HEAD.unpack_from(batch)
    sent = table.heads()
    is_numbered = len(sent) == count and (sent["offset"] == np.arange(count)).all()
    if not is_numbered or sent["reserved"].any() or sent_us > TIME_MAX_US:
        return None
    times = sent["time"] + np.uint64(sent_us)
    info = _info(table, sent, times)
    if info is None or (table.digests() != sent["checksum"]).any():
        return None
    checked = b"".join((batch[:40], batch[48:52], sent["checksum"].tobytes()))
    if checksum_of(checked) != checksum:
        return None
    body = np.empty(len(head) + len(batch) - BATCH_HEAD_BYTES + GROWTH * count, np.uint8).data
    body[: len(head)] = head
    stored = table.moved(body, STORED, len(head))
    heads = np.zeros(count, STORED)
    for field in ("id", "headers", "payload"):
        heads[field] = sent[field]
    heads["offset"] = base_offset + np.arange(count)
    heads["append"], heads["sent"] = append_us, times
    table.copy_rest(stored)
    _put_sealed(stored, heads)
    return body, info


def batches_of(records: memoryview, partition: int) -> Iterator[memoryview] | None:
    """What `iggy_forms.batches` makes of stored records; None: something is unusual."""
    table = table_of(records, 0, STORED)
    if table is None:
        return None
    heads = table.heads()
    breaks = np.flatnonzero(np.diff(heads["append"])) + 1
    edges = [0, *breaks.tolist(), len(heads)]
    pieces = [
        (start, min(start + ONE_BATCH_MAX, end))
        for begin, end in itertools.pairwise(edges)
        for start in range(begin, end, ONE_BATCH_MAX)
    ]
    for start, end in pieces:
        times, offsets = heads["sent"][start:end], heads["offset"][start:end]
        if int(times.max()) - int(times.min()) > DELTA_MAX:
            return None
        if int(offsets[-1]) - int(offsets[0]) > DELTA_MAX:
            return None
    return (_batch(table, heads, piece, partition) for piece in pieces)


def typed_of_classic(records: memoryview) -> memoryview | None:
    """Stored records of the classic form in the later one; None: they have headers, or it takes a
    look at each.
    """
    table = table_of(records, 0, CLASSIC)
    if table is None:
        return None
    heads = table.heads()
    if heads["headers"].any():
        return None
    made = _moved(table, heads, STORED)
    rows = made.heads()
    # Such messages have no time of their client's: readers are shown the append's.
    rows["sent"] = rows["append"]
    _put_sealed(made, rows)
    return made.view


def classic_of_typed(records: memoryview) -> memoryview | None:
    """The other way round; None also where a payload is empty, which no classic client can have."""
    table = table_of(records, 0, STORED)
    if table is None:
        return None
    heads = table.heads()
    if heads["headers"].any() or not heads["payload"].all():
        return None
    made = _moved(table, heads, CLASSIC)
    rows = made.heads()
    rows["state"] = AVAILABLE
    _put_sealed(made, rows)
    return made.view


def _moved(table: Table, heads: Row, kind: np.dtype) -> Table:
    """The same messages with heads of another kind: what both have is filled in."""
    count = len(heads)
    growth = kind.itemsize - table.kind.itemsize
    made = table.moved(np.zeros(len(table.view) + growth * count, np.uint8).data, kind, 0)
    rows = np.zeros(count, kind)
    for field in ("offset", "append", "id", "payload"):
        rows[field] = heads[field]
    table.copy_rest(made)
    made.put(rows)
    return made


def _batch(table: Table, heads: Row, piece: tuple[int, int], partition: int) -> memoryview:
    begin, end = piece
    rows, count = heads[begin:end], end - begin
    part = Table(table.view, STORED, table.starts[begin:end], table.stops[begin:end], table.step)
    size = BATCH_HEAD_BYTES + int(part.stops[-1] - part.starts[0]) - GROWTH * count
    batch = np.zeros(size, np.uint8).data
    sent = part.moved(batch, SENT, BATCH_HEAD_BYTES)
    first_us = int(rows["sent"].min())
    made = np.zeros(count, SENT)
    for field in ("id", "headers", "payload"):
        made[field] = rows[field]
    made["offset"] = rows["offset"] - rows["offset"][0]
    made["time"] = rows["sent"] - np.uint64(first_us)
    part.copy_rest(sent)
    _put_sealed(sent, made)
    known = (partition, int(rows["offset"][0]), int(rows["append"][0]), first_us, size)
    checked = BATCH_CHECKED.pack(*known, count) + made["checksum"].tobytes()
    BATCH_HEAD.pack_into(batch, 0, *known, checksum_of(checked), count)
    return batch


def _put_sealed(table: Table, heads: Row) -> None:
    """Write heads, then over them those with the checksums of everything."""
    table.put(heads)
    heads["checksum"] = table.digests()
    table.put(heads)


def _info(table: Table, heads: Row, times: Row) -> BodyInfo | None:
    """What the batch header is told; None if a rule is broken."""
    try:
        header_bytes = table.header_bytes(heads)
    except CorruptBody:
        return None
    payload_bytes = int(heads["payload"].sum(dtype=np.uint64))
    if payload_bytes > PAYLOAD_BYTES_MAX or header_bytes > HEADER_BYTES_MAX:
        return None
    known = times[(times > 0) & (times <= TIME_MAX_US)]
    if not len(known):
        return BodyInfo(len(heads))
    return BodyInfo(len(heads), int(known[0]), int(known.max()))


def fresh_rows(count: int, random_bytes: Callable[[int], bytes]) -> np.ndarray:
    """Random UUIDs of version 4, sixteen bytes a row."""
    fresh = np.frombuffer(bytearray(random_bytes(16 * count)), np.uint8).reshape(count, 16)
    fresh[:, 6] = fresh[:, 6] & 0x0F | 0x40
    fresh[:, 8] = fresh[:, 8] & 0x3F | 0x80
    return fresh
