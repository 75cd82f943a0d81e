"""Stored sets of format 0, made as the broker makes them."""

from braidlog.storage.formats.api import Buffer, Prepared
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX
from braidlog.storage.formats.kafka import set_prepare


def prepare(
    message_set: Buffer,
    base_offset: int,
    *,
    message_bytes_max: int = 1 << 30,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> Prepared:
    """The body of a set of any size, at once; in place if the buffer is writable."""
    view = memoryview(message_set)
    if view.readonly:
        view = memoryview(bytearray(view))
    prepared = set_prepare.prepare_plain(view, base_offset, message_bytes_max)
    if prepared is not None:
        return prepared
    messages = set_prepare.unwrap(view, message_bytes_max, inflated_bytes_max)
    return set_prepare.pack(messages, base_offset, message_bytes_max)
