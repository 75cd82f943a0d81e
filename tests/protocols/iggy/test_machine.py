"""Framing, dialect detection and the commands allowed before login."""

import random
import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.all_dialects import D0, WITH_LOGIN
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.layouts_w import W
from braidlog.protocols.iggy.machine import (
    BEFORE_LOGIN_BYTES_MAX,
    COMMAND_BYTES_MAX,
    LOGINS,
    SEND_BYTES_MAX,
    IggyCommand,
    IggyMachine,
    RefusedFrame,
)
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.options import WithoutLogin
from tests.protocols.iggy import description
from tests.protocols.iggy.recorded import conversation, recorded

PING = recorded("PING before login").request
LOGIN = recorded("LOGIN iggy/iggy").request


def logged_in() -> IggyMachine:
    machine = IggyMachine()
    assert isinstance(decode(machine, LOGIN), IggyCommand)
    machine.logged_in = True
    return machine


def decode(machine: IggyMachine, frame: bytes) -> IggyCommand | RefusedFrame:
    assert machine.frame_size(memoryview(frame)) == len(frame)
    return machine.decode(memoryview(frame))


def frames_of(data: bytes, machine: IggyMachine) -> list[bytes]:
    frames = []
    while (size := machine.frame_size(memoryview(data))) is not None and size <= len(data):
        frames.append(data[:size])
        data = data[size:]
    assert not data
    return frames


# Framing.


@pytest.mark.parametrize(
    "row",
    [row for row in conversation() if not row.name.startswith("length")],
    ids=lambda row: row.name,
)
def test_frame_is_found_whole_byte_by_byte_and_with_a_trailing_frame(row):
    machine = logged_in()
    for end in range(len(row.request)):
        size = machine.frame_size(memoryview(row.request[:end]))
        assert size == (None if end < 8 else len(row.request))
    assert frames_of(row.request + PING, machine) == [row.request, PING]


def test_a_length_below_the_code_closes_without_an_answer():
    data = recorded("length 3").request
    with pytest.raises(ProtocolError) as caught:
        IggyMachine().frame_size(memoryview(data))
    assert caught.value.reply == b""


@pytest.mark.parametrize(
    ("state", "code", "length_max"),
    [
        (False, CommandCode.LOGIN_USER, BEFORE_LOGIN_BYTES_MAX),
        (False, CommandCode.SEND_MESSAGES, BEFORE_LOGIN_BYTES_MAX),
        (True, CommandCode.SEND_MESSAGES, SEND_BYTES_MAX),
        (True, CommandCode.POLL_MESSAGES, COMMAND_BYTES_MAX),
        (True, 9999, COMMAND_BYTES_MAX),
    ],
)
def test_a_frame_above_its_limit_is_refused_before_its_bytes(state, code, length_max):
    machine = IggyMachine()
    machine.logged_in = state
    assert machine.frame_size(memoryview(struct.pack("<II", length_max, code))) == length_max + 4
    with pytest.raises(ProtocolError) as caught:
        machine.frame_size(memoryview(struct.pack("<II", length_max + 1, code)))
    assert caught.value.reply == struct.pack("<II", 3, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x00\xf4\x01\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_http_and_tls_are_refused_without_a_wait(data):
    with pytest.raises(ProtocolError):
        IggyMachine().frame_size(memoryview(data))


@pytest.mark.parametrize("seed", range(50))
def test_random_bytes_raise_only_protocol_error(seed):
    chance = random.Random(seed)
    for state in (False, True):
        machine = IggyMachine(without_login=chance.choice(list(WithoutLogin)))
        machine.logged_in = state
        data = chance.randbytes(chance.randrange(300))
        if chance.random() < 0.5:  # A frame that is well-formed up to its payload.
            code = chance.choice([*CommandCode, 9999])
            data = struct.pack("<II", 4 + len(data), code) + data
        try:
            size = machine.frame_size(memoryview(data))
            if size is not None and size <= len(data):
                machine.decode(memoryview(data)[:size])
        except ProtocolError:
            pass


# Before and after login.


@pytest.mark.parametrize("code", list(CommandCode))
def test_a_command_before_login_is_refused_and_the_connection_stays(code):
    machine = IggyMachine()
    event = machine.decode(memoryview(struct.pack("<II", 4, code)))
    if code == CommandCode.PING:
        assert isinstance(event, IggyCommand)
    elif code not in LOGINS:
        assert isinstance(event, RefusedFrame)
        assert event.reply == struct.pack("<II", 40, 0)


def test_ping_and_login_need_no_login():
    machine = IggyMachine()
    assert decode(machine, PING) == IggyCommand(CommandCode.PING, m.Ping())
    assert decode(machine, LOGIN) == IggyCommand(
        CommandCode.LOGIN_USER, u.LoginUser("iggy", "iggy", "0.6.202", "")
    )


@pytest.mark.parametrize(
    "name",
    [
        "PING with a payload",
        "GET_STREAM without payload",
        "CREATE_STREAM empty name",
        "GET_CLUSTER_METADATA (D4)",
        "SEND in the D3 layout",
        "POLL in the D4 layout",
        "unknown code 9999",
    ],
)
def test_an_unreadable_command_gets_3_and_the_connection_stays(name):
    event = decode(logged_in(), recorded(name).request)
    assert isinstance(event, RefusedFrame)
    assert event.reply == recorded(name).answer


def test_an_unserved_known_command_is_unavailable():
    event = decode(logged_in(), struct.pack("<II", 4, CommandCode.GET_SNAPSHOT))
    assert isinstance(event, RefusedFrame)
    assert (event.reply, event.unserved) == (struct.pack("<II", 5, 0), True)


@pytest.mark.parametrize(
    "frame",
    [
        "0f000000ca00000001000000066f7264657273",  # CREATE_STREAM
        "27000000640000000101000000010401000000010401000000010000000100000000000000000a00000000",
        "2f00000065000000010401000000010401000000010000000000000000000000000000000000000000000500"
        "000068656c6c6f",
    ],
)
def test_the_oldest_dialect_is_asked_to_log_in_if_not_served(frame):
    event = decode(IggyMachine(), bytes.fromhex(frame))
    assert isinstance(event, RefusedFrame)
    assert event.reply == struct.pack("<II", ErrorCode.UNAUTHENTICATED, 0)
    assert isinstance(
        decode(IggyMachine(without_login=WithoutLogin.EVERYBODY), bytes.fromhex(frame)), IggyCommand
    )


# Answers.


@pytest.mark.parametrize(("code", "identifiers"), [(200, 1), (301, 1), (300, 2), (303, 2)])
def test_the_oldest_dialect_may_send_trailing_bytes(code, identifiers):
    payload = b"\1\4\1\0\0\0" * identifiers + b"\0"
    frame = struct.pack("<II", 4 + len(payload), code) + payload
    assert isinstance(decode(IggyMachine(without_login=WithoutLogin.EVERYBODY), frame), IggyCommand)


@pytest.mark.parametrize(
    ("version", "has_text"), [("0.5.0", True), ("0.6.59", True), ("0.6.60", False), ("", False)]
)
def test_error_has_a_text_only_for_clients_that_read_it(version, has_text):
    machine = IggyMachine()
    login = description.request(38, username="u", password="p", version=version, context="")
    assert isinstance(decode(machine, login), IggyCommand)
    command = IggyCommand(CommandCode.GET_STREAM, m.GetStream(1))
    reply = machine.error(command, ErrorCode.STREAM_ID_NOT_FOUND, "no such stream")
    expected = struct.pack("<II", 1009, 0)
    if has_text:
        expected = struct.pack("<III", 1009, 18, 14) + b"no such stream"
    assert reply == expected


def test_error_without_a_reason_still_has_a_text_where_one_is_needed():
    machine = IggyMachine()
    login = description.request(38, username="u", password="p", version="0.5.0", context="")
    decode(machine, login)
    command = IggyCommand(CommandCode.GET_STREAM, m.GetStream(1))
    assert machine.error(command, ErrorCode.INVALID_COMMAND)[12:] == b"invalid command"


def test_a_success_counts_parts_from_elsewhere():
    machine = logged_in()
    command = IggyCommand(CommandCode.POLL_MESSAGES, None)
    assert machine.encode(command, []) == bytes(8)
    head = machine.encode(command, [r.PolledHead(0, 3, 1)], tail_bytes=50)
    assert head == struct.pack("<II", 0, 66) + struct.pack("<IQI", 1, 3, 1)


@pytest.mark.parametrize("dialect", [D0, *WITH_LOGIN, V, W], ids=lambda dialect: dialect.name)
def test_no_record_is_a_single_byte(dialect):
    # Clients read a one-byte answer as empty, and lose synchronisation.
    for kind, layout in dialect.records.items():
        assert len(layout.write(_empty(kind))) != 1


def _empty(kind: type) -> object:
    values = {"str": "a", "list[int]": [], "float": 0.0, "bytes": b"", "Permissions | None": None}
    values["tuple[int, int, int]"] = (1, 2, 3)
    return kind(*(values.get(hint, 1) for hint in kind.__annotations__.values()))
