"""Frames that fit two dialects: the known list, and a check that none moves a connection to the
wrong dialect.
"""

import random
import struct

import pytest

from braidlog.protocols.iggy.all_dialects import D0, D0_WITH_LOGIN, D1A, D1B, D2, D3, D4, D5
from braidlog.protocols.iggy.machine import IggyCommand, IggyMachine
from braidlog.protocols.iggy.options import WithoutLogin
from tests.protocols.iggy import description
from tests.protocols.iggy.described_frames import (
    CHANGE_TOPIC,
    DIALECTS,
    FLUSH,
    GET,
    GET_GROUP,
    GROUP,
    POLL,
    SEGMENTS,
    SEND,
    STORE,
    Frames,
)

ROUNDS = 400  # Frames of each command and dialect.
BY_NAME = dict(zip(DIALECTS, (D0, D1A, D1B, D2, D3, D4, D5), strict=True))
WITHOUT_VERSION = bytes.fromhex("0e0000002600000004696767790469676779")


def login(version: str) -> bytes:
    return description.request(38, username="u", password="p", version=version, context="")


# The logins of each dialect's clients; True if the login alone shows the dialect. Java sends a
# name, Node nothing, Go its own version.
LOGINS = [
    *(("D0", WITHOUT_VERSION), ("D1a", WITHOUT_VERSION), ("D1b", WITHOUT_VERSION)),
    *(("D2", login("0.6.202")), ("D2", login("")), ("D2", login("java-sdk"))),
    *(("D3", login("0.7.0")), ("D3", login("")), ("D3", login("java-sdk"))),
    *(("D4", login("0.8.0")), ("D4", login("")), ("D4", login("java-sdk"))),
    *(("D5", login("0.9.0")), ("D5", login("0.8.0")), ("D5", login(""))),
    ("D5", login("java-sdk")),
]
# Frames read as another dialect's, by command, sender and reader: the layouts are equal, but count
# partitions, streams, topics and groups from 1 or from 0. Every known client of D2 and D3 sends its
# version.
SAME_LAYOUT = {
    *((FLUSH, "D2", "D5"), (FLUSH, "D3", "D5")),
    *((SEGMENTS, "D3", "D5"), (SEND, "D3", "D4")),
    *((GET_GROUP, "D2", "D5"), (GET_GROUP, "D3", "D5")),
    *((CHANGE_TOPIC, "D2", "D5"), (CHANGE_TOPIC, "D3", "D5")),
}
# Commands of later dialects whose frames fit D0, from clients that forgot to log in.
WITHOUT_LOGIN = {POLL, GET, STORE, GROUP, GET_GROUP}


def framed(code: int, payload: bytes) -> bytes:
    return struct.pack("<II", 4 + len(payload), code) + payload


def after(first: bytes) -> IggyMachine:
    machine = IggyMachine(without_login=WithoutLogin.EVERYBODY)
    machine.frame_size(memoryview(first))
    assert isinstance(machine.decode(memoryview(first)), IggyCommand)
    machine.logged_in = True
    return machine


def misread(name: str, first: bytes, seed: int, *, nasty: bool) -> set[tuple[int, str, str]]:
    """Return the frames that were read differently from their dialect, after any earlier frames."""
    chance = random.Random(seed)
    truth = D0_WITH_LOGIN if name == "D0" else BY_NAME[name]
    misreadings = set()
    for _ in range(ROUNDS // 20):
        machine = after(first)
        for _ in range(20):
            frames = list(Frames(name, chance, nasty=nasty).all())
            code, payload = chance.choice(frames)
            event = machine.decode(memoryview(framed(code, payload)))
            assert isinstance(event, IggyCommand), (name, code, payload.hex(), event)
            expected = truth.requests[code].read(memoryview(payload))
            if event.request != expected:
                misreadings.add((code, name, machine.dialect.name))
                break
    return misreadings


def misreadings_of(name: str, first: bytes) -> set[tuple[int, str, str]]:
    """Return the possible misreadings of such a client."""
    is_told = first in (login("0.6.202"), login("0.7.0"))
    return set() if is_told else {row for row in SAME_LAYOUT if row[1] == name}


@pytest.mark.parametrize("nasty", [False, True])
@pytest.mark.parametrize(("name", "first"), LOGINS, ids=lambda value: repr(value)[:24])
def test_frames_are_read_in_their_dialect_in_any_order(name, first, nasty):
    assert misread(name, first, 1, nasty=nasty) <= misreadings_of(name, first)


@pytest.mark.parametrize("name", DIALECTS[1:])
def test_few_later_frames_are_read_as_the_dialect_without_login(name):
    chance = random.Random(3)
    for _ in range(ROUNDS // 4):
        for code, payload in Frames(name, chance, nasty=True).all():
            machine = IggyMachine(without_login=WithoutLogin.EVERYBODY)
            machine.frame_size(memoryview(framed(code, payload)))
            event = machine.decode(memoryview(framed(code, payload)))
            if isinstance(event, IggyCommand):
                expected = BY_NAME[name].requests[code].read(memoryview(payload))
                assert event.request == expected or code in WITHOUT_LOGIN, (code, payload.hex())


@pytest.mark.parametrize("chosen", range(1, 64))
def test_every_short_name_and_small_number_creates_the_right_stream(chosen):
    for size in range(1, 64):
        payload = struct.pack("<IB", chosen, size) + b"n" * size
        machine = after(login(""))  # Of D2 to D5, as from Node.
        event = machine.decode(memoryview(framed(202, payload)))
        assert (event.request.stream_id, event.request.name) == (chosen, "n" * size)
