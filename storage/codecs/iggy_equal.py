"""Messages of equal size and without headers, made a body with numpy in a quarter of the plain
loop's time.

Says no to anything unusual and leaves it, with its errors, to the loop in `iggy.py`, which is also
what the tests hold it against. Importing this needs the extra `fast`.
"""

from collections.abc import Callable

import numpy as np

from storage.codecs.checksums import crc32_of_each

# Where a record's fields begin: the polled layout of `iggy.py`, and that of a SEND.
STATE, TIME, ID, CRC, LENGTHS, PAYLOAD = 8, 9, 17, 33, 37, 45
SENT_LENGTHS, SENT_PAYLOAD = 16, 24
GROWTH = PAYLOAD - SENT_PAYLOAD


def body_of_equal(
    view: memoryview,
    head: bytes,
    base_offset: int,
    append_us: int,
    random_bytes: Callable[[int], bytes],
) -> memoryview | None:
    """The body of messages that all have the size of the first and no headers; `head` is put first.

    None: something is unusual or wrong.
    """
    size = int.from_bytes(view[20:SENT_PAYLOAD], "little")
    step = SENT_PAYLOAD + size
    count, rest = divmod(len(view), step)
    if rest or not size:
        return None
    sent = np.frombuffer(view, np.uint8).reshape(count, step)
    # Both lengths as one number: none of headers, and that of the payload above it.
    if (np.ndarray((count,), "<u8", view, SENT_LENGTHS, (step,)) != size << 32).any():
        return None
    body = np.empty(len(head) + count * (step + GROWTH), np.uint8)
    body[: len(head)] = np.frombuffer(head, np.uint8)
    records = body[len(head) :].reshape(count, step + GROWTH)
    records[:, :STATE] = _bytes_of(np.arange(base_offset, base_offset + count, dtype="<u8"))
    records[:, STATE] = 1
    records[:, TIME:ID] = np.frombuffer(append_us.to_bytes(8, "little"), np.uint8)
    halves = np.ndarray((count, 2), "<u8", view, 0, (step, 8))
    missing = (halves[:, 0] | halves[:, 1]) == 0
    records[:, ID:CRC] = _ids(sent[:, :SENT_LENGTHS], missing, random_bytes)
    checksums = np.array(crc32_of_each(view, step, SENT_PAYLOAD), "<u4")
    records[:, CRC:LENGTHS] = _bytes_of(checksums)
    records[:, LENGTHS:] = sent[:, SENT_LENGTHS:]
    return body.data


def fresh_rows(count: int, random_bytes: Callable[[int], bytes]) -> np.ndarray:
    """Random UUIDs of version 4, sixteen bytes a row."""
    fresh = np.frombuffer(bytearray(random_bytes(16 * count)), np.uint8).reshape(count, 16)
    fresh[:, 6] = fresh[:, 6] & 0x0F | 0x40
    fresh[:, 8] = fresh[:, 8] & 0x3F | 0x80
    return fresh


def _bytes_of(numbers: "np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]") -> np.ndarray:
    """A row of bytes for each number."""
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)


def _ids(sent: np.ndarray, missing: np.ndarray, random_bytes: Callable[[int], bytes]) -> np.ndarray:
    """The ids, with a random UUID of version 4 in place of each that is missing."""
    count = int(np.count_nonzero(missing))
    if not count:
        return sent
    fresh = fresh_rows(count, random_bytes)
    if count == len(sent):
        return fresh
    ids = sent.copy()
    ids[missing] = fresh
    return ids
