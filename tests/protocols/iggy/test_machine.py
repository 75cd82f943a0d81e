"""Framing, dialect detection and what may be sent before login."""

import random
import struct

import pytest

from broker.server.adapters import ProtocolError
from protocols.iggy import messages as m
from protocols.iggy.errors import ErrorCode
from protocols.iggy.machine import (
    ALLOWED,
    BEFORE_LOGIN_BYTES_MAX,
    COMMAND_BYTES_MAX,
    EMPTY_OK,
    SEND_BYTES_MAX,
    Command,
    IggyMachine,
    Refused,
    State,
)
from protocols.iggy.messages import Code
from tests.protocols.iggy import description
from tests.protocols.iggy.recorded import conversation, first_frames, recorded
from tests.protocols.iggy.test_vsr import LOGIN as VSR_LOGIN
from tests.protocols.iggy.test_vsr import PING as VSR_PING
from tests.protocols.iggy.test_vsr import frame as vsr_frame

PING = recorded("PING before login").request
LOGIN = recorded("LOGIN iggy/iggy").request


def logged_in() -> IggyMachine:
    machine = IggyMachine()
    assert isinstance(decode(machine, LOGIN), Command)
    machine.state = State.LOGGED_IN
    return machine


def decode(machine: IggyMachine, frame: bytes) -> Command | Refused:
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


def test_length_below_the_code_closes_without_a_word():
    data = recorded("length 3").request
    with pytest.raises(ProtocolError) as caught:
        IggyMachine().frame_size(memoryview(data))
    assert caught.value.reply == b""


@pytest.mark.parametrize(
    ("state", "code", "length_max"),
    [
        (State.LOGGED_OUT, Code.LOGIN_USER, BEFORE_LOGIN_BYTES_MAX),
        (State.LOGGED_OUT, Code.SEND_MESSAGES, BEFORE_LOGIN_BYTES_MAX),
        (State.LOGGED_IN, Code.SEND_MESSAGES, SEND_BYTES_MAX),
        (State.LOGGED_IN, Code.POLL_MESSAGES, COMMAND_BYTES_MAX),
        (State.LOGGED_IN, 9999, COMMAND_BYTES_MAX),
    ],
)
def test_frame_above_its_limit_is_refused_before_it_is_there(state, code, length_max):
    machine = IggyMachine()
    machine.state = state
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
def test_http_and_tls_are_not_waited_for(data):
    with pytest.raises(ProtocolError):
        IggyMachine().frame_size(memoryview(data))


@pytest.mark.parametrize("seed", range(50))
def test_random_bytes_raise_protocol_error_and_nothing_else(seed):
    chance = random.Random(seed)
    for state in State:
        machine = IggyMachine()
        machine.state = state
        data = chance.randbytes(chance.randrange(300))
        if chance.random() < 0.5:  # A frame that is well-formed up to its payload.
            code = chance.choice([*Code, 9999])
            data = struct.pack("<II", 4 + len(data), code) + data
        try:
            size = machine.frame_size(memoryview(data))
            if size is not None and size <= len(data):
                machine.decode(memoryview(data)[:size])
        except ProtocolError:
            pass


# Before and after login.


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("code", list(Code))
def test_command_out_of_place_is_told_and_the_connection_stays(state, code):
    machine = IggyMachine()
    machine.state = state
    event = machine.decode(memoryview(struct.pack("<II", 4, code)))
    if code in ALLOWED[state]:
        assert not isinstance(event, Refused) or event.reply[:4] != struct.pack("<I", 40)
    elif code == Code.GET_CLUSTER_METADATA:
        assert event.reply == struct.pack("<II", 5, 0)
    else:
        assert isinstance(event, Refused)
        assert (event.reply, event.ends) == (struct.pack("<II", 40, 0), False)


def test_ping_and_login_need_no_login():
    machine = IggyMachine()
    assert decode(machine, PING) == Command(Code.PING, m.Ping())
    assert decode(machine, LOGIN) == Command(
        Code.LOGIN_USER, m.LoginUser("iggy", "iggy", "0.6.202", "")
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
def test_what_cannot_be_read_is_answered_with_3_and_the_connection_stays(name):
    event = decode(logged_in(), recorded(name).request)
    assert isinstance(event, Refused)
    assert (event.reply, event.ends) == (recorded(name).answer, False)


@pytest.mark.parametrize(
    "code", [Code.GET_USERS, Code.CREATE_TOKEN, Code.PURGE_TOPIC, Code.DELETE_PARTITIONS]
)
def test_known_command_that_is_not_served_is_unavailable(code):
    event = decode(logged_in(), struct.pack("<II", 4, code))
    assert isinstance(event, Refused)
    assert (event.reply, event.ends) == (struct.pack("<II", 5, 0), False)


# Other dialects.


@pytest.mark.parametrize("first", first_frames(), ids=lambda first: first.client)
def test_client_of_another_dialect_is_told_that_it_is_unavailable(first):
    machine = IggyMachine()
    event = decode(machine, first.request)
    if first.dialect == "D2":
        assert isinstance(event, Command)
        return
    assert isinstance(event, Refused)
    assert event.ends
    status, size = struct.unpack_from("<II", event.reply)
    assert status == ErrorCode.FEATURE_UNAVAILABLE
    if first.dialect == "D1":  # Its clients read a text, and fail if there is none.
        (text_size,) = struct.unpack_from("<I", event.reply, 8)
        assert event.reply[12:].decode() == event.reason
        assert size == 4 + text_size == len(event.reply) - 8
    else:
        assert event.reply[8:] == b""
    assert first.dialect in event.reason


@pytest.mark.parametrize(
    "frame",
    [
        "0f000000ca00000001000000066f7264657273",  # CREATE_STREAM
        "27000000640000000101000000010401000000010401000000010000000100000000000000000a00000000",
        "2f00000065000000010401000000010401000000010000000000000000000000000000000000000000000500"
        "000068656c6c6f",
    ],
)
def test_oldest_dialect_has_no_login_and_is_asked_for_one(frame):
    event = decode(IggyMachine(), bytes.fromhex(frame))
    assert isinstance(event, Refused)
    assert event.reply == struct.pack("<II", ErrorCode.UNAUTHENTICATED, 0)


def test_newest_dialect_is_pinged_back_and_evicted_at_its_login():
    machine = IggyMachine()
    ping = decode(machine, VSR_PING)
    assert isinstance(ping, Refused)
    assert not ping.ends
    assert struct.unpack_from("<I", ping.reply, 216) == (0,)
    login = decode(machine, VSR_LOGIN)
    assert isinstance(login, Refused)
    assert login.ends
    assert (login.reply[60], login.reply[255]) == (13, 14)


def test_newest_dialects_commands_before_login_are_told_so():
    event = decode(IggyMachine(), vsr_frame(operation=2, code=201))
    assert isinstance(event, Refused)
    assert struct.unpack_from("<I", event.reply, 216) == (ErrorCode.UNAUTHENTICATED,)


# Answers.


@pytest.mark.parametrize(
    ("version", "has_text"), [("0.5.0", True), ("0.6.59", True), ("0.6.60", False), ("", False)]
)
def test_error_has_a_text_only_for_clients_that_read_it(version, has_text):
    machine = IggyMachine()
    login = description.request(38, username="u", password="p", version=version, context="")
    assert isinstance(decode(machine, login), Command)
    reply = machine.error(ErrorCode.STREAM_ID_NOT_FOUND, "no such stream")
    expected = struct.pack("<II", 1009, 0)
    if has_text:
        expected = struct.pack("<III", 1009, 18, 14) + b"no such stream"
    assert reply == expected


def test_error_without_a_reason_still_has_a_text_where_one_is_needed():
    machine = IggyMachine()
    login = description.request(38, username="u", password="p", version="0.5.0", context="")
    decode(machine, login)
    assert machine.error(ErrorCode.INVALID_COMMAND)[12:] == b"invalid command"


def test_success_counts_what_follows_from_elsewhere():
    machine = logged_in()
    assert machine.encode([]) == EMPTY_OK
    head = machine.encode([m.PolledHead(0, 3, 1)], tail_bytes=50)
    assert head == struct.pack("<II", 0, 66) + struct.pack("<IQI", 1, 3, 1)


def test_no_record_is_a_single_byte():
    # Clients take an answer of one byte for an empty one, and lose step over it.
    smallest = {
        len(layout.write(_empty(kind))) for kind, layout in logged_in().dialect.records.items()
    }
    assert min(smallest) > 1


def _empty(kind: type) -> object:
    values = {"str": "", "list[int]": [], "float": 0.0}
    return kind(*(values.get(hint, 0) for hint in kind.__annotations__.values()))
