"""The formats of messages in the dialects: from the messages of a SEND to a stored body, and from
stored messages to the answer of a poll.

A form is pure: bytes in, bytes out. Two forms are the stored formats (`classic.py` and `typed.py`
in `storage/formats/iggy/`), which are returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from braidlog.broker.reading.answer_memory import ANSWER_MEMORY
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.iggy.classic import IGGY, PolledCodec
from braidlog.storage.formats.iggy.forms import (
    batches,
    crc32_wide,
    untyped,
)
from braidlog.storage.formats.iggy.prepare import SentForm
from braidlog.storage.formats.iggy.typed import IGGY_TYPED, checksum_of
from braidlog.storage.formats.quick import SPEEDUPS

# Bytes of messages converted between two checkpoints. In Python, and in the extension in C, this is
# some ms of work.
SHOWN_PIECE_BYTES = 128 * 1024
QUICK_PIECE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MessageForm:
    """A format of messages in SEND and POLL. `codec` is the stored format that polls read.

    `sent` is the layout of messages in a SEND. `shown` turns a partition's stored records,
    `piece_bytes` of them at a time, into a poll's answer; None: they are returned unchanged. With
    `trusts_memory`, stored records that were good when loaded into memory are not checked again.
    """

    codec: PolledCodec
    sent: SentForm
    shown: Callable[[memoryview, int], Iterable[Buffer]] | None = None
    piece_bytes: int = SHOWN_PIECE_BYTES
    trusts_memory: bool = False

    @property
    def copies(self) -> int:
        """Number of copies of an answer's bytes in memory while the answer is built."""
        return 1 if self.shown is None else 2


def _batches(messages: memoryview, partition: int) -> Iterable[Buffer]:
    return batches(messages, partition, ANSWER_MEMORY.take)


OLDEST_FORM = MessageForm(IGGY, SentForm.CLASSIC)  # D0 to D2
CRC_FORM = MessageForm(  # D3
    IGGY_TYPED,
    SentForm.UNTYPED,
    lambda messages, _: (untyped(messages, crc32_wide),),
)
XXH_FORM = MessageForm(  # D4
    IGGY_TYPED,
    SentForm.UNTYPED,
    lambda messages, _: (untyped(messages, checksum_of),),
)
TYPED_FORM = MessageForm(IGGY_TYPED, SentForm.TYPED)  # D5
BATCH_FORM = MessageForm(  # V
    IGGY_TYPED,
    SentForm.BATCH,
    _batches,
    SHOWN_PIECE_BYTES if SPEEDUPS is None else QUICK_PIECE_BYTES,
    trusts_memory=True,
)
PRODUCER_BATCH_FORM = replace(BATCH_FORM, sent=SentForm.PRODUCER_BATCH)  # W
