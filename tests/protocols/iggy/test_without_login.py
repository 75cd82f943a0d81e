"""Clients that send commands before a login: of the oldest dialect, or too early."""

import struct

import pytest
from structlog.testing import capture_logs

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy.all_dialects import D0
from braidlog.protocols.iggy.machine import IggyCommand, IggyMachine, RefusedFrame
from braidlog.protocols.iggy.options import IggyOptions, WithoutLogin

UNAUTHENTICATED = struct.pack("<II", 40, 0)
STREAM = bytes.fromhex("010401000000")
TOPIC = 2 * STREAM
# Frames that D0 and later dialects share: Go's client 0.8.0 sends them when it forgets to log in.
SHARED = {
    "GET_STATS": (10, b""),
    "GET_ME": (20, b""),
    "GET_CLIENTS": (22, b""),
    "GET_STREAM": (200, STREAM),
    "GET_STREAMS": (201, b""),
    "CREATE_STREAM": (202, bytes.fromhex("01000000027374")),
    "DELETE_STREAM": (203, STREAM),
    "GET_TOPIC": (300, TOPIC),
    "GET_TOPICS": (301, STREAM),
    "DELETE_TOPIC": (303, TOPIC),
    "CREATE_PARTITIONS": (402, TOPIC + bytes.fromhex("01000000")),
    "GET_GROUPS": (601, TOPIC),
}
# Frames with the bare numbers of D0.
ONLY_OLDEST = {
    "POLL": (100, bytes.fromhex("0101000000") + TOPIC + bytes.fromhex("01000000")
             + bytes.fromhex("0100000000000000000a00000000")),
    "GET_OFFSET": (120, bytes.fromhex("0101000000") + TOPIC + bytes.fromhex("01000000")),
    "CREATE_GROUP": (602, TOPIC + bytes.fromhex("07000000")),
    "JOIN_GROUP": (604, TOPIC + bytes.fromhex("07000000")),
}  # fmt: skip


def framed(code: int, payload: bytes) -> bytes:
    return struct.pack("<II", 4 + len(payload), code) + payload


def decode(machine: IggyMachine, frame: bytes) -> IggyCommand | RefusedFrame:
    assert machine.frame_size(memoryview(frame)) == len(frame)
    return machine.decode(memoryview(frame))


@pytest.mark.parametrize("name", SHARED)
def test_a_frame_that_a_later_client_may_have_sent_gets_40(name):
    machine = IggyMachine(without_login=WithoutLogin.CERTAIN)
    event = decode(machine, framed(*SHARED[name]))
    assert isinstance(event, RefusedFrame)
    assert (event.reply, event.may_be_oldest) == (UNAUTHENTICATED, True)
    # The connection may continue so.
    assert isinstance(decode(machine, framed(*ONLY_OLDEST["POLL"])), IggyCommand)


@pytest.mark.parametrize("name", SHARED)
def test_such_a_frame_is_served_if_all_clients_are_served(name):
    machine = IggyMachine(without_login=WithoutLogin.EVERYBODY)
    assert isinstance(decode(machine, framed(*SHARED[name])), IggyCommand)
    assert machine.dialect is D0


@pytest.mark.parametrize("first", ONLY_OLDEST)
def test_after_a_frame_unique_to_the_oldest_dialect_all_frames_are_served(first):
    machine = IggyMachine(without_login=WithoutLogin.CERTAIN)
    assert isinstance(decode(machine, framed(*ONLY_OLDEST[first])), IggyCommand)
    assert machine.dialect is D0
    for shared in SHARED.values():
        assert isinstance(decode(machine, framed(*shared)), IggyCommand)


def test_a_long_frame_has_to_wait_until_the_dialect_is_certain():
    head = struct.pack("<II", 1024 * 1024, 101)
    machine = IggyMachine(without_login=WithoutLogin.CERTAIN)
    with pytest.raises(ProtocolError):
        machine.frame_size(memoryview(head))
    machine = IggyMachine(without_login=WithoutLogin.CERTAIN)
    decode(machine, framed(*ONLY_OLDEST["JOIN_GROUP"]))
    assert machine.frame_size(memoryview(head)) == 4 + 1024 * 1024


@pytest.mark.parametrize(
    ("setting", "loopback", "served"),
    [
        (None, True, WithoutLogin.CERTAIN),
        (None, False, WithoutLogin.NOBODY),
        (True, True, WithoutLogin.EVERYBODY),
        (True, False, WithoutLogin.EVERYBODY),
        (False, True, WithoutLogin.NOBODY),
    ],
)
def test_the_setting_decides_the_served_clients(setting, loopback, served):
    assert IggyOptions(without_login=setting).served_without_login(loopback=loopback) is served


async def test_the_log_names_the_setting_once(connect):
    talk = await connect()
    with capture_logs() as lines:
        for _ in range(2):
            assert await talk.exchange(framed(*SHARED["GET_STREAMS"])) == UNAUTHENTICATED
    reasons = [line["reason"] for line in lines if line["event"] == "not_served"]
    assert reasons == [
        "command 201 before login; "
        "listeners.iggy.without_login = true serves clients that cannot log in"
    ]


async def test_a_later_client_reads_40_and_logs_in(connect):
    talk = await connect()
    assert await talk.exchange(framed(*SHARED["GET_CLIENTS"])) == UNAUTHENTICATED
    assert await talk.login() == 0
    answer = await talk.ask(22)
    assert len(answer["clients"]) == 1
