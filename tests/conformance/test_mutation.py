"""Mutated frames: the same for the same seed, mostly of the right length, and all kinds of bad."""

import random
import struct

import pytest

from conformance.hostile.commands import protocols
from conformance.hostile.mutation import mutate

PROTOCOLS = protocols()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_same_seed_gives_the_same_frames(name):
    protocol = PROTOCOLS[name]
    runs = []
    for _ in range(2):
        chance = random.Random(name)
        runs.append([mutate(chance, row.frame, protocol.layout) for row in protocol.commands])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", ["kafka", "pulsar", "iggy"])
def test_most_frames_are_as_long_as_they_say_and_not_what_they_were(name):
    protocol = PROTOCOLS[name]
    chance = random.Random(7)
    frames = [
        (row.frame, mutate(chance, row.frame, protocol.layout))
        for row in protocol.commands
        for _ in range(20)
    ]
    right = sum(
        struct.unpack_from(f"{protocol.layout.byte_order}I", bad)[0] == len(bad) - 4
        for _, bad in frames
        if len(bad) >= 4
    )
    changed = sum(good != bad for good, bad in frames)
    assert right > 0.8 * len(frames)
    assert 0.5 * len(frames) < changed < 0.9 * len(frames)


def test_commands_of_one_protocol_have_names_and_none_is_empty():
    for protocol in PROTOCOLS.values():
        assert all(row.name and len(row.frame) >= 8 for row in protocol.commands), protocol.name
