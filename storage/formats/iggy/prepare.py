"""The stored body of a SEND in any dialect of Iggy: the single entry of producers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from braidlog.storage.formats.api import Prepared
from braidlog.storage.formats.iggy.classic import body_from_send
from braidlog.storage.formats.iggy.forms import body_from_batch, body_from_untyped, producer_of
from braidlog.storage.formats.iggy.typed import body_from_typed


class SentForm(enum.Enum):
    """The layout of the messages in a SEND."""

    CLASSIC = "classic"  # up to server 0.6; stored as `IGGY`, all others as `IGGY_TYPED`
    UNTYPED = "untyped"  # 0.7 and 0.8: the stored layout, with untyped header names
    TYPED = "typed"  # 0.9 and 0.10: the stored layout
    BATCH = "batch"  # 0.11: a head, then messages with times relative to it
    PRODUCER_BATCH = "producer batch"  # 0.12: as 0.11; the head may name a producer


def prepare(
    form: SentForm,
    messages: memoryview,
    count: int | None,
    base_offset: int,
    append_us: int,
    key: bytes | None,
) -> Prepared:
    """Check the messages of a SEND; return the body with offsets, time and checksums.

    `count` is the number of messages that the request names, None if its dialect has none. `key` is
    the partitioning key, None for the other kinds of partitioning.

    Raises:
        CorruptBody: no message, or a message that breaks a rule of its dialect.
        RecordTooLarge: payloads or header values exceed Iggy's limit for a SEND.
    """
    make = BODIES.get(form)
    if make is None:
        producer = producer_of(messages) if form is SentForm.PRODUCER_BATCH else None
        stamps = (base_offset, append_us)
        return body_from_batch(messages, count or 0, *stamps, key=key, producer=producer)
    return make(messages, base_offset, append_us, key=key)


BODIES: Mapping[SentForm, Callable[..., Prepared]] = {
    SentForm.CLASSIC: body_from_send,
    SentForm.UNTYPED: body_from_untyped,
    SentForm.TYPED: body_from_typed,
}
