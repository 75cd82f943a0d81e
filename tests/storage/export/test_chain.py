"""The walks in C find the same entries as those in Python, for any bytes."""

import random

import pytest

from braidlog.storage.export.rows import NOT_REGULAR
from braidlog.storage.formats.columns import vectors
from braidlog.storage.formats.kafka import set_columns as kafka
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.plain import columns as plain
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.quick import SPEEDUPS
from braidlog.storage.formats.record import Record
from tests.storage.formats.speedup_samples import mutated

pytestmark = pytest.mark.skipif(SPEEDUPS is None, reason="the extension is not built, or left out")

WALKS = [(KAFKA, kafka._entries), (PLAIN, plain._records)]


def starts_of(walk, body):
    try:
        return walk(body).tolist()
    except NOT_REGULAR:
        return None


@pytest.mark.parametrize(("codec", "walk"), WALKS)
def test_they_agree_on_bodies_in_order_and_on_damaged_ones(monkeypatch, codec, walk):
    chance = random.Random(5)
    agreed = 0
    for _ in range(300):
        values = [chance.randbytes(chance.randrange(40)) for _ in range(chance.randint(1, 30))]
        body = bytes(codec.encode([Record(n, 1, value=v) for n, v in enumerate(values)], 0))
        if chance.random() < 0.6:
            body = mutated(chance, body)
        in_c = starts_of(walk, body)
        with monkeypatch.context() as patched:
            patched.setattr(vectors, "SPEEDUPS", None)
            assert starts_of(walk, body) == in_c
        agreed += in_c is not None and len(in_c) > 1
    assert agreed > 50


def test_bodies_without_a_final_entry_are_left_to_python():
    chain = SPEEDUPS.chain
    assert chain(b"", 4, 0, False) == b""
    for body in (b"\x00", b"\x01\x00\x00\x00", b"\xff\xff\xff\xff" * 2, b"\x00\x00\x00\x00\x00"):
        assert chain(body, 4, 0, False) is None
    assert chain(bytes(8), 4, 1, False) is None  # A size below the minimum.
    assert chain(bytes(8), 3, 0, False) is None
    assert len(chain(bytes(8), 4, 0, True)) == 2 * 8
