"""Rows of compacted bodies: the same as from the plain codec."""

import random

import pytest

from tests.storage.formats.columns.test_records import batch_of, fast, plain
from tests.storage.formats.test_without import BASE, COUNT, MAKERS


@pytest.mark.parametrize("name", MAKERS)
def test_rows_of_compacted_bodies_equal_the_codecs(name):
    make, argument = MAKERS[name]
    codec, body = make(argument)
    for seed in range(12):
        chosen = random.Random(seed)
        gone = {BASE + n for n in range(COUNT) if chosen.random() < 0.6}
        left = codec.without(body, BASE, gone.__contains__)
        if left.record_count:
            covered = left.end_offset - BASE
            batch = batch_of(left.body, codec.format, BASE, covered)
            batch.header.record_count = left.record_count
            rows = plain([batch])
            wanted = [offset for offset in range(BASE, BASE + COUNT) if offset not in gone]
            assert rows["offset"].to_pylist() == wanted
            assert fast([batch]) in (None, rows)
