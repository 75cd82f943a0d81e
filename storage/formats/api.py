"""What body codecs take and return; `braidlog.storage.formats.base` has their interface."""

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
    """The call that stores a body at once; `append_us` and `producer` are those of the next
    body.
    """

    write: BatchWriter
    bytes_max: int  # of a message or batch; a larger body needs a closer look
    append_us: int = 0
    producer: ProducerNext = NO_PRODUCER
    prefix_bytes: int = 0  # that the call puts before the body


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


# The decoder of `Codec.column_decoder`.
ColumnDecoder = Callable[[Sequence[Any]], Any]
