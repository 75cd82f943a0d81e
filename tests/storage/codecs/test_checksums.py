"""Checksums of many pieces are those of each."""

import random
import zlib

import pytest

from storage.codecs.checksums import COPIED_BYTES_MAX, crc32_of_each


@pytest.mark.parametrize("size", [1, 2, 100, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1])
@pytest.mark.parametrize("head", [0, 1, 24])
def test_each_piece_without_its_head_counts(size: int, head: int) -> None:
    rng = random.Random(size)
    pieces = [rng.randbytes(size) for _ in range(70)]
    view = memoryview(b"".join(rng.randbytes(head) + piece for piece in pieces))
    assert crc32_of_each(view, head + size, head) == [zlib.crc32(piece) for piece in pieces]
