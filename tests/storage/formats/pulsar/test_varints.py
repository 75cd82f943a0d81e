"""Numbers written into serialised messages equal protobuf's."""

import random

import pytest

from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import EntryMetadata
from braidlog.storage.formats.pulsar.varints import LOW_BITS, LOW_MASK, around, highs, lows

# Values around each size of a varint.
EDGES = [1 << bits for bits in range(LOW_BITS, 64, 7)] + [(1 << 63) - 1, (1 << 64) - 1]


@pytest.mark.parametrize("number", [0, *EDGES, *(edge - 1 for edge in EDGES), 12345, 1 << 40])
def test_every_number_of_a_block_equals_protobufs(number):
    metadata = EntryMetadata(producer_name=b"p\x80\xff", publish_time=1 << 41, ordering_key=b"o")

    def serialize(sequence_id):
        metadata.sequence_id = sequence_id
        return metadata.SerializeToString()

    before, after = around(serialize, number)
    assert after.startswith(highs(number >> LOW_BITS))
    first = number & ~LOW_MASK
    for value in range(first, first + LOW_MASK + 1):
        assert before + lows(number)[value & LOW_MASK] + after == serialize(value)


@pytest.mark.parametrize("seed", range(5))
def test_numbers_of_other_fields_are_ignored(seed):
    rng = random.Random(seed)
    metadata = EntryMetadata(publish_time=rng.getrandbits(40), producer_name=rng.randbytes(300))

    def serialize(sequence_id):
        metadata.sequence_id = sequence_id
        return metadata.SerializeToString()

    number = rng.getrandbits(rng.randint(1, 64))
    before, after = around(serialize, number)
    assert before + lows(number)[number & LOW_MASK] + after == serialize(number), f"seed {seed}"
