"""Mutated frames: the same for the same seed, mostly of the right length, and all kinds of bad."""

import random
import time

import pytest

from conformance.hostile.commands import protocols
from conformance.hostile.mutation import mutate

TALKS = {
    f"{name} {number}": talk
    for name, protocol in protocols().items()
    for number, talk in enumerate(protocol.talks)
}


@pytest.mark.parametrize("name", TALKS)
def test_the_same_seed_gives_the_same_frames(name):
    talk = TALKS[name]
    runs = []
    for _ in range(2):
        chance = random.Random(name)
        runs.append([mutate(chance, row.frame, talk.layout) for row in talk.commands])
    assert runs[0] == runs[1]


def test_the_time_of_day_does_not_change_the_frames(monkeypatch):
    """Else a seed would not give the same attack again: gzip stores the time."""
    runs = []
    for now_s in (1e9, 2e9):
        monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
        talks = [talk for protocol in protocols().values() for talk in protocol.talks]
        runs.append([row.frame for talk in talks for row in talk.commands])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", [name for name, talk in TALKS.items() if talk.layout.byte_order])
def test_most_frames_have_a_right_length_and_are_changed(name):
    talk = TALKS[name]
    chance = random.Random(7)
    frames = [
        (row.frame, mutate(chance, row.frame, talk.layout))
        for row in talk.commands
        for _ in range(20)
    ]
    right = sum(talk.layout.is_whole(bad) for _, bad in frames)
    changed = sum(good != bad for good, bad in frames)
    assert right > 0.8 * len(frames)
    assert 0.4 * len(frames) < changed < 0.9 * len(frames)


def test_commands_have_names_and_frames():
    for name, talk in TALKS.items():
        assert all(row.name and len(row.frame) >= 8 for row in talk.commands), name
