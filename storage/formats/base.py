"""The interface of a body codec, with what most codecs share.

A codec is pure: bytes and records in, bytes and records out; a codec knows no file, clock or
socket.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from braidlog.storage.errors import BodyError, UnreadableBody
from braidlog.storage.formats.api import (
    BYTES_MAX,
    RECORDS_MAX,
    BodyInfo,
    Buffer,
    Decoded,
    RemainingBody,
    without_frames,
)
from braidlog.storage.formats.record import Record

DataT = TypeVar("DataT")


@dataclass(slots=True)
class WantedRecords:
    """The records that a decode must return; see `Codec.decode`."""

    start_offset: int
    records_max: int
    bytes_max: int


@dataclass(slots=True, frozen=True)
class Stored:
    """A body of any format with facts from its batch."""

    body: Buffer
    body_format: int
    base_offset: int
    append_us: int
    record_count: int


@dataclass(slots=True, frozen=True)
class Converted:
    """Records converted from another format."""

    records: Buffer
    count: int
    first_offset: int
    next_offset: int  # after the last record
    is_full: bool  # no room for the next record


class Codec(abc.ABC):
    """A stored body format. By default readers get whole bodies, and a body can hold any record.

    `format` is a `BodyFormat` (or a plug-in's own number), `version` its newest version.
    """

    name: str
    format: int
    version = 1
    # For Spark: the function ("module:function") that turns whole runs of bodies to columns,
    # without records. The function takes batches of the format (`storage/formats/batch.py`; never
    # with a flag OPAQUE, CHUNK or MARKER) and returns `Columns`
    # (`storage/formats/columns/records.py`) with exactly the records of `decode`. It raises
    # `Irregular` (`storage/formats/columns/vectors.py`), or any BodyError, for a batch that needs
    # the plain codec: the caller then tries each batch alone, and in the end uses `decode`.
    column_decoder: str | None = None
    # Size of our own head before each entry of `split`. Readers of raw entries do not get that
    # head.
    entry_head_bytes = 0
    # The formats whose record keys its readers do not see. Iggy's own partitioning key is between
    # the writer and the broker.
    keyless: Sequence[int] = ()
    joins_chunks = False  # True with a `join`.

    @abc.abstractmethod
    def inspect(self, body: Buffer) -> BodyInfo:
        """Count the records of a stored body and return its times and flags.

        Raises CorruptBody, and UnreadableBody or RecordTooLarge where counting needs unpacking.
        """

    @abc.abstractmethod
    def starts(
        self, body: Buffer, base_offset: int, start_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the starts of `split` in order."""

    @abc.abstractmethod
    def decode_into(
        self, decoded: Decoded, data: bytes, append_us: int, wanted: WantedRecords
    ) -> None:
        """Add the wanted records of a body; `decoded.next_offset` is initially the base offset.

        Raises BodyError at the first record that cannot be opened.
        """

    @abc.abstractmethod
    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Return a body with the records at their own offsets; base_offset belongs to the batch."""

    def split(
        self,
        body: Buffer,
        base_offset: int,
        *,
        start_offset: int = 0,
        starts_max: int = RECORDS_MAX,
    ) -> list[tuple[int, int]]:
        """Return (offset, pos) of each stored record or entry start, ascending, at most starts_max.

        The first is the first entry that ends above start_offset. Kafka's compressed wrapper and
        Pulsar's batched entry are a single start each, with the offset of their first record.
        """
        return list(islice(self.starts(body, base_offset, start_offset), starts_max))

    def start_before(self, body: Buffer, base_offset: int, pos: int) -> tuple[int, int]:
        """Return (offset, pos) of the last start of `split` at or before a position in a body."""
        start_found = (base_offset, 0)
        for start in self.starts(body, base_offset, 0):
            if start[1] > pos:
                break
            start_found = start
        return start_found

    def converted(self, stored: Stored, wanted: WantedRecords) -> Converted | None:
        """Convert the wanted records of a body of another format to the `readable` form of this
        format.

        Makes no `Record` objects: converts as many records as fit into `bytes_max`, up to the first
        that needs a `Record`. Returns None if this codec cannot convert this body.
        """
        return None

    def without(
        self, body: Buffer, base_offset: int, is_removed: Callable[[int], bool]
    ) -> RemainingBody:
        """Return the body without some of its records; the others keep their bytes and offsets.

        This version is for bodies in which each start of `split` is a single record. Raises
        BodyError.
        """
        view = memoryview(body)
        starts = self.split(view, base_offset)
        stops = [*(pos for _, pos in starts[1:]), len(view)]
        parts: list[Buffer] = [view[: starts[0][1]]] if starts else []
        count, end_offset = 0, base_offset
        for (offset, pos), stop in zip(starts, stops, strict=True):
            if not is_removed(offset):
                parts.append(view[pos:stop])
                count, end_offset = count + 1, offset + 1
        return RemainingBody(b"".join(parts) if count else b"", count, end_offset)

    def readable(self, body: Buffer) -> memoryview:
        """Return the part of a stored or encoded body for a reader of this format.

        That is all except our additions around the records (the head with Iggy's partitioning key).
        """
        return memoryview(body)

    def decode(
        self,
        body: Buffer,
        base_offset: int,
        append_us: int,
        *,
        start_offset: int = 0,
        records_max: int = RECORDS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> Decoded:
        """Return records at or above start_offset, at most records_max of them.

        At least one record is returned if there is any. If a body can unpack to more than its own
        size, decoding stops once the records take about bytes_max.

        Never raises for bad user data: see Decoded.
        """
        wanted = WantedRecords(start_offset, records_max, bytes_max)
        return self._decoded(body, (base_offset, append_us), wanted)

    def _decoded(self, body: Buffer, appended: tuple[int, int], wanted: WantedRecords) -> Decoded:
        return decoded_by(self.decode_into, bytes(body), appended, wanted)

    def carries(self, record: Record) -> bool:
        """Return True if a reader of this format can receive the record at all.

        An empty payload, for example, breaks Iggy clients.
        """
        return True

    def join(self, pieces: Sequence[Record], joined_bytes_max: int) -> Record:
        """Join all pieces of a message, in order, to a record at the last piece's offset.

        Raises RecordTooLarge, UnreadableBody.
        """
        raise UnreadableBody(f"{self.name} bodies have no chunks to join")


def decoded_by(
    decode_into: Callable[[Decoded, DataT, int, WantedRecords], None],
    data: DataT,
    appended: tuple[int, int],
    wanted: WantedRecords,
) -> Decoded:
    """Decode a body, and keep the final error. `appended`: base offset and append time."""
    base_offset, append_us = appended
    decoded = Decoded(next_offset=base_offset)
    try:
        decode_into(decoded, data, append_us, wanted)
    except BodyError as error:
        decoded.failed = without_frames(error)
        decoded.failed_offset = decoded.next_offset
    return decoded
