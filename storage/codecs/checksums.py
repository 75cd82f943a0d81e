"""CRC-32 of many pieces of equal size that lie in a row. Knows no format."""

import struct
from typing import Final

from storage.codecs.compression import crc32

# Up to this size a piece is copied in less time than a view of it is made.
COPIED_BYTES_MAX: Final = 2048


def crc32_of_each(view: memoryview, step: int, head: int) -> list[int]:
    """Checksums of what follows the first `head` of each `step` bytes; `view` is whole steps."""
    if step - head > COPIED_BYTES_MAX:
        return [crc32(view[pos : pos + step - head]) for pos in range(head, len(view), step)]
    pieces = struct.iter_unpack(f"{head}x{step - head}s", view)
    return [crc32(piece) for (piece,) in pieces]  # hot: see make bench
