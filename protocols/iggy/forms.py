"""The formats of messages in the dialects: how the messages of a SEND become a stored body, and how
stored messages are returned to a poll.

A form is pure: bytes in, bytes out. Two of them are the stored formats (`classic.py` and `typed.py`
in `storage/formats/iggy/`), which are returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from braidlog.storage.formats.api import Buffer, Prepared
from braidlog.storage.formats.iggy.classic import IGGY, PolledCodec, body_from_send
from braidlog.storage.formats.iggy.forms import (
    batches,
    body_from_batch,
    body_from_untyped,
    crc32_wide,
    untyped,
)
from braidlog.storage.formats.iggy.typed import IGGY_TYPED, body_from_typed, checksum_of
from braidlog.storage.formats.quick import SPEEDUPS

# Bytes of messages converted between two checkpoints, some ms of work: in Python, and by the
# extension in C.
SHOWN_PIECE_BYTES = 128 * 1024
QUICK_PIECE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MessageForm:
    """`codec` is the stored format that is read for it.

    `body` turns the messages of a SEND into a stored body. Its arguments: the messages, their count
    if the dialect has one, base offset, append time and partitioning key. `shown` turns a
    partition's stored records, `piece_bytes` of them at a time, into a poll's answer; None: they
    are returned unchanged.
    """

    codec: PolledCodec
    body: Callable[[memoryview, int | None, int, int, bytes | None], Prepared]
    shown: Callable[[memoryview, int], Iterable[Buffer]] | None = None
    piece_bytes: int = SHOWN_PIECE_BYTES

    @property
    def copies(self) -> int:
        """How often the bytes of an answer are in memory while it is made."""
        return 1 if self.shown is None else 2


def _oldest_body(
    messages: memoryview, count: int | None, offset: int, append_us: int, key: bytes | None
) -> Prepared:
    return body_from_send(messages, offset, append_us, key=key)


def _untyped_body(
    messages: memoryview, count: int | None, offset: int, append_us: int, key: bytes | None
) -> Prepared:
    return body_from_untyped(messages, offset, append_us, key=key)


def _typed_body(
    messages: memoryview, count: int | None, offset: int, append_us: int, key: bytes | None
) -> Prepared:
    return body_from_typed(messages, offset, append_us, key=key)


def _batch_body(
    messages: memoryview, count: int | None, offset: int, append_us: int, key: bytes | None
) -> Prepared:
    return body_from_batch(messages, count or 0, offset, append_us, key=key)


OLDEST_FORM = MessageForm(IGGY, _oldest_body)  # D0 to D2
CRC_FORM = MessageForm(  # D3
    IGGY_TYPED,
    _untyped_body,
    lambda messages, _: (untyped(messages, crc32_wide),),
)
XXH_FORM = MessageForm(  # D4
    IGGY_TYPED,
    _untyped_body,
    lambda messages, _: (untyped(messages, checksum_of),),
)
TYPED_FORM = MessageForm(IGGY_TYPED, _typed_body)  # D5
BATCH_FORM = MessageForm(  # V
    IGGY_TYPED,
    _batch_body,
    batches,
    SHOWN_PIECE_BYTES if SPEEDUPS is None else QUICK_PIECE_BYTES,
)
