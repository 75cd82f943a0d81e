"""What the codecs of our own formats share: limits, and how a decode that fails ends.

A plug-in may use it or not: the contract is `braidlog.storage.formats.api.Codec`.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.api import (
    BYTES_MAX,
    RECORDS_MAX,
    BodyInfo,
    Buffer,
    Decoded,
    Kept,
    without_frames,
)
from braidlog.storage.formats.record import Record

DataT = TypeVar("DataT")


@dataclass(slots=True)
class Wanted:
    """Which records a decode is asked for; see `Codec.decode`."""

    start_offset: int
    records_max: int
    bytes_max: int


@dataclass(slots=True, frozen=True)
class Stored:
    """A body of any format with what its batch says of it."""

    body: Buffer
    body_format: int
    base_offset: int
    append_us: int
    record_count: int


@dataclass(slots=True, frozen=True)
class Converted:
    """Records made over from another format."""

    records: Buffer
    count: int
    first_offset: int
    next_offset: int  # after the last of them
    is_full: bool  # there was no room for the next one


class BodyCodec(abc.ABC):
    """Base of our codecs. By default readers get whole bodies, and a body can hold any record."""

    name: str
    format: int
    version = 1
    column_decoder: str
    entry_head_bytes = 0  # Size of our own head before each entry of `split`.

    @abc.abstractmethod
    def inspect(self, body: Buffer) -> BodyInfo:
        """As `Codec.inspect`."""

    @abc.abstractmethod
    def starts(
        self, body: Buffer, base_offset: int, start_offset: int
    ) -> Iterator[tuple[int, int]]:
        """As `Codec.split`, one after the other."""

    @abc.abstractmethod
    def decode_into(self, decoded: Decoded, data: bytes, append_us: int, wanted: Wanted) -> None:
        """Add the wanted records of a body; `decoded.next_offset` is its base offset at first.

        Raises BodyError at the first record that cannot be opened.
        """

    @abc.abstractmethod
    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """As `Codec.encode`."""

    def split(
        self,
        body: Buffer,
        base_offset: int,
        *,
        start_offset: int = 0,
        starts_max: int = RECORDS_MAX,
    ) -> list[tuple[int, int]]:
        """As `Codec.split`."""
        return list(islice(self.starts(body, base_offset, start_offset), starts_max))

    def start_before(self, body: Buffer, base_offset: int, pos: int) -> tuple[int, int]:
        """As `Codec.start_before`."""
        found = (base_offset, 0)
        for one in self.starts(body, base_offset, 0):
            if one[1] > pos:
                break
            found = one
        return found

    def converted(self, stored: Stored, wanted: Wanted) -> Converted | None:
        """The wanted records of a body of another format as `readable` gives them in this format,
        made without `Record` objects: as many as fit into `bytes_max`, up to the first that needs a
        `Record`. None if this codec cannot do that, or not for this body.
        """
        return None

    def without(self, body: Buffer, base_offset: int, is_removed: Callable[[int], bool]) -> Kept:
        """The body without some of its records; the others stay byte for byte, with their offsets.

        This version is for bodies in which each start of `split` is one record. Raises BodyError.
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
        return Kept(b"".join(parts) if count else b"", count, end_offset)

    def readable(self, body: Buffer) -> memoryview:
        """All of the body."""
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
        """As `Codec.decode`."""
        wanted = Wanted(start_offset, records_max, bytes_max)
        return self._decoded(body, (base_offset, append_us), wanted)

    def _decoded(self, body: Buffer, appended: tuple[int, int], wanted: Wanted) -> Decoded:
        return decoded_by(self.decode_into, bytes(body), appended, wanted)

    def carries(self, record: Record) -> bool:
        """Always."""
        return True


def decoded_by(
    decode_into: Callable[[Decoded, DataT, int, Wanted], None],
    data: DataT,
    appended: tuple[int, int],
    wanted: Wanted,
) -> Decoded:
    """Decode a body, and keep the error that ended it. `appended`: base offset and append time."""
    base_offset, append_us = appended
    decoded = Decoded(next_offset=base_offset)
    try:
        decode_into(decoded, data, append_us, wanted)
    except BodyError as error:
        decoded.failed = without_frames(error)
        decoded.failed_offset = decoded.next_offset
    return decoded
