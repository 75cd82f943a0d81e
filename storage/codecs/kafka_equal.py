"""Kafka sets of equal-sized messages, checked and stamped with numpy in half the plain loop's time.

Says no to anything unusual and leaves it, with its errors, to the loop in `kafka.py`, which is also
what the tests hold it against. Importing this needs the extra `fast`.
"""

import numpy as np

from storage.codecs.checksums import crc32_of_each


def check_and_stamp(view: memoryview, size: int, base_offset: int) -> bool:
    """Stamp a set whose entries all have `size` bytes and pass every check.

    False: something is unusual or wrong, and nothing was changed.
    """
    count = len(view) // size
    stride = (size,)
    if (np.ndarray(count, ">i4", view, 8, stride) != size - 12).any():
        return False
    if np.ndarray(count, ">u2", view, 16, stride).any():  # magic and attributes
        return False
    keys = np.ndarray(count, ">i4", view, 18, stride)
    key_size = int(keys[0])
    value_pos = 26 + max(key_size, 0)
    if key_size < -1 or value_pos > size or (keys != key_size).any():
        return False
    values = np.ndarray(count, ">i4", view, value_pos - 4, stride)
    value_size = int(values[0])
    if value_size < -1 or value_pos + max(value_size, 0) != size or (values != value_size).any():
        return False
    sums = np.ndarray(count, ">u4", view, 12, stride).tolist()
    if crc32_of_each(view, size, 16) != sums:
        return False
    np.ndarray(count, ">i8", view, 0, stride)[:] = np.arange(base_offset, base_offset + count)
    return True


def stamp(view: memoryview, size: int, base_offset: int) -> bool:
    """Stamp a checked set whose entries all have `size` bytes; False: they do not."""
    count = len(view) // size
    stride = (size,)
    if (np.ndarray(count, ">i4", view, 8, stride) != size - 12).any():
        return False
    np.ndarray(count, ">i8", view, 0, stride)[:] = np.arange(base_offset, base_offset + count)
    return True
