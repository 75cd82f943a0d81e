"""The interface of a body codec.

A codec is pure: bytes and records in, bytes and records out; a codec knows no file, clock or
socket.
"""

import abc
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.record import Record

Buffer = bytes | bytearray | memoryview


class StoredPart(abc.ABC):
    """A part of an answer that is not in memory: only the code that sends the part reads the
    bytes.
    """

    __slots__ = ()

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the size in bytes."""

    @abc.abstractmethod
    def read(self, start: int = 0) -> bytes:
        """Return the bytes from position `start` on. Raises OSError."""

    @abc.abstractmethod
    def send(self, sock_fd: int) -> int:
        """Send as many bytes as a non-blocking socket takes now; return their number.

        Raises OSError.
        """


Part = Buffer | StoredPart

OFFSET_MAX = 2**63 - 1
SEQUENCE_MAX = 2**31 - 1  # of Kafka's and Iggy's producers; the next sequence is 0
RECORDS_MAX = 1 << 30  # "all of them", for decode
BYTES_MAX = 1 << 40  # "all of them", for decode


class BodyFormat(enum.IntEnum):
    """Number of a body format in the batch header: ours are below 64, plug-ins use the others."""

    PLAIN = 1
    KAFKA = 2
    PULSAR = 3
    IGGY = 4
    IGGY_TYPED = 5
    KAFKA_BATCHES = 7
    JOURNAL = 16
    GAP = 17


class BatchFlag(enum.IntEnum):
    """Bits of the batch header's flags field.

    Not an IntFlag: `flags & BatchFlag.GAP` is evaluated for every batch and SEND, and would cost
    ten times as much.
    """

    COMPRESSED = 1
    OPAQUE = 2
    CHUNK = 4
    DELAYED = 8
    MARKER = 16
    COMPACTED = 32
    GAP = 64


@dataclass(slots=True)
class BodyInfo:
    """Facts of a body for the batch header; times in us, None if no record has a time."""

    record_count: int
    first_publish_us: int | None = None
    max_publish_us: int | None = None
    flags: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    first_sequence: int = 0
    last_sequence: int = 0


@dataclass(slots=True)
class Prepared:
    """A client's bytes, checked and converted to a body to append.

    `info.record_count` is 0 if there is nothing to append. `empty_compressed` then distinguishes
    Kafka's compressed set without messages (answered with the log end) from an empty set (with -1).
    """

    body: Buffer
    info: BodyInfo
    body_format: int  # a `BodyFormat`
    empty_compressed: bool = False


# A batch that a `BatchWriter` has written: number of records, latest publish time, producer id as
# in the header, and the last sequence of the producer.
WrittenBatch = tuple[int, int | None, int, int]
# Id of a producer as in its batches, its epoch, and the first sequence of its next batch; id -1 for
# no producer.
ProducerNext = tuple[int, int, int]
NO_PRODUCER: Final[ProducerNext] = (-1, 0, 0)


class BatchWriter(Protocol):
    """A call that checks a produced body, stamps the body and writes it as a batch, all at once."""

    def __call__(
        self,
        body: memoryview,
        fd: int,
        file_pos: int,
        salt: int,
        partition_id: int,
        owner_epoch: int,
        base_offset: int,
        offset_max: int,
        durable_offset: int,
        bytes_max: int,
        append_us: int,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        /,
    ) -> WrittenBatch | None:
        """Return None if the body needs a closer look, if it is not the producer's next, or if the
        write failed. A later write at `file_pos` then replaces all bytes that were written.

        All offsets stay below `offset_max`. The last three are a `ProducerNext`.
        """


@dataclass(slots=True)
class WriteAtOnce:
    """The call that stores a body at once. The last two fields are those of the next body."""

    write: BatchWriter
    bytes_max: int  # of a message or batch; a larger body needs a closer look
    append_us: int = 0
    producer: ProducerNext = NO_PRODUCER


@dataclass(slots=True)
class Decoded:
    """Records of a body in offset order, up to the first that could not be opened.

    `failed` is the error that stopped decoding early, and `failed_offset` its offset; both None
    after a complete read. `next_offset` is the offset after the last examined record, including
    records that are not for readers (markers, removed records).
    """

    records: list[Record] = field(default_factory=list)
    next_offset: int = 0
    failed: BodyError | None = None
    failed_offset: int | None = None


@dataclass(slots=True)
class RemainingBody:
    """A body after records are removed; an empty body has no records.

    `end_offset` is the offset after the last remaining record, or after the entry that holds it.
    """

    body: bytes
    record_count: int
    end_offset: int


def without_frames(error: BodyError) -> BodyError:
    """Return the error without its traceback and causes, whose frames keep unpacked data alive.

    A `Decoded` with the error would hold that data until the next garbage collection.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class Codec(Protocol):
    """A stored body format.

    `format` is a `BodyFormat` (or a plug-in's own number), `version` its newest version.
    """

    name: str
    format: int
    version: int

    def inspect(self, body: Buffer) -> BodyInfo:
        """Count the records of a stored body and return its times and flags.

        Raises CorruptBody, and UnreadableBody or RecordTooLarge where counting needs unpacking.
        """

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

    def start_before(self, body: Buffer, base_offset: int, pos: int) -> tuple[int, int]:
        """Return (offset, pos) of the last start of `split` at or before a position in a body."""

    def readable(self, body: Buffer) -> memoryview:
        """Return the part of a stored or encoded body for a reader of this format.

        That is all except our additions around the records (the head with Iggy's partitioning key).
        """

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

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Return a body with the records at their own offsets; base_offset belongs to the batch."""

    def carries(self, record: Record) -> bool:
        """Return True if a reader of this format can receive the record at all.

        An empty payload, for example, breaks Iggy clients.
        """


# Optional parts of a codec: `converted`, and `without`, which compaction needs; see
# `braidlog.storage.formats.base.BodyCodec`.
#
# Optional part of a codec: `entry_head_bytes`, the size of our own head before each entry of
# `split`. Readers of raw entries do not get that head.
#
# Optional part of a codec: `keyless`, the formats whose record keys its readers do not see. Iggy's
# own partitioning key is between the writer and the broker.
#
# Optional part of a codec, for Spark: whole runs of bodies to columns, without records.
#
# A codec names its decoder in an attribute `column_decoder` ("module:function"). The decoder takes
# batches of its format (`storage/formats/batch.py`; never with a flag OPAQUE, CHUNK or MARKER) and
# returns `Columns` (`storage/formats/columns/records.py`) with exactly the records of `decode`. The
# decoder raises `Irregular` (`storage/formats/columns/vectors.py`), or any BodyError, for a batch
# that needs the plain codec: the caller then tries each batch alone, and in the end uses `decode`.
ColumnDecoder = Callable[[Sequence[Any]], Any]
