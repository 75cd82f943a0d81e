"""The detected dialect of a connection, from its first frames, and the frames that change it."""

import random
import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy.all_dialects import (
    D0,
    D0_EXACT,
    D1A,
    D1B,
    D2,
    D3,
    D4,
    D5,
    WITH_LOGIN,
    candidates_of_login,
)
from braidlog.protocols.iggy.dialects import ErrorStyle
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.layouts_w import W
from braidlog.protocols.iggy.machine import IggyCommand, IggyMachine, RefusedFrame
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.options import WithoutLogin
from tests.protocols.iggy import description
from tests.protocols.iggy.recorded import first_frames

LOGIN_OF_D1 = bytes.fromhex("0e0000002600000004696767790469676779")
D0_TOPIC = "190000002e010000010401000000010000000200000000000000027470"
D1B_TOPIC = "230000002e01000001040100000001000000020000000100000000000000000000000000027470"
D0_POLL = "27000000640000000101000000010401000000010401000000010000000100000000000000000a00000000"
D1_POLL = (
    "290000006400000001010401000000010401000000010401000000010000000500000000000000000a00000001"
)
D4_POLL = "260000006400000001010400000000020273740202747001000000000300000000000000000a00000000"
D2_TOPIC = "250000002e01000002027374000000000200000001ffffffffffffffff000000000000000000027470"
D5_TOPIC = "210000002e0100000202737402000000010000000000000000000000000000000000027470"
D4_STREAM = "07000000ca000000027374"
D4_GROUP = "100000005a020000020273740202747003677270"
D3_GROUP = "140000005a02000002027374020274700000000003677270"


def logged_in(login: bytes) -> IggyMachine:
    machine = IggyMachine(without_login=WithoutLogin.EVERYBODY)
    assert isinstance(decode(machine, login), IggyCommand)
    machine.logged_in = True
    return machine


def login(version: str, context: str = "") -> bytes:
    return description.request(38, username="u", password="p", version=version, context=context)


def decode(machine: IggyMachine, frame: bytes) -> IggyCommand | RefusedFrame:
    assert machine.frame_size(memoryview(frame)) == len(frame)
    return machine.decode(memoryview(frame))


def send(head_bytes: int, base: int) -> bytes:
    """Return a SEND of two messages with an index."""
    target = bytes.fromhex("02027374") + bytes.fromhex("02027470")
    target += b"\x02\x04" + struct.pack("<I", base) + struct.pack("<I", 2)
    message = bytes(head_bytes - 8) + struct.pack("<II", 0, 5)
    if head_bytes == 64:
        message = bytes(48) + struct.pack("<II", 0, 5) + bytes(8)
    message += b"hello"
    index = struct.pack("<IIQIIQ", 0, len(message), 0, 0, 2 * len(message), 0)
    payload = struct.pack("<I", len(target)) + target + index + 2 * message
    return struct.pack("<II", 4 + len(payload), 101) + payload


@pytest.mark.parametrize("first", first_frames(), ids=lambda first: first.client)
def test_the_login_of_a_real_client_shows_its_dialect(first):
    machine = IggyMachine()
    assert isinstance(decode(machine, first.request), IggyCommand)
    # A login without a version fits three dialects: the next frames decide.
    assert machine.dialect.name == ("D1b" if first.dialect == "D1" else first.dialect)


@pytest.mark.parametrize(
    ("version", "dialect", "error_style"),
    [
        ("0.5.0", D2, ErrorStyle(error_text=True, absent_is_error=True)),
        ("0.6.9", D2, ErrorStyle(error_text=True, absent_is_error=True)),
        ("0.6.10", D2, ErrorStyle(error_text=True)),
        ("0.6.59", D2, ErrorStyle(error_text=True)),
        ("0.6.60", D2, ErrorStyle()),
        ("0.6.203", D2, ErrorStyle()),
        ("0.6", D2, ErrorStyle(error_text=True, absent_is_error=True)),
        ("", D5, ErrorStyle()),
        ("java-sdk", D5, ErrorStyle()),
        ("0.7.0", D3, ErrorStyle()),
        ("0.8.0-rc1", D4, ErrorStyle()),
        ("0.9.3", D5, ErrorStyle()),
        ("0.10.0", D5, ErrorStyle()),
        ("0.11.0", D5, ErrorStyle()),
        ("1.0.0", D5, ErrorStyle()),
    ],
)
def test_the_version_decides_dialect_and_behaviour(version, dialect, error_style):
    candidates, style = candidates_of_login(memoryview(login(version))[8:])
    assert (candidates[0], style) == (dialect, error_style)


@pytest.mark.parametrize(
    ("version", "context", "frames", "dialect"),
    [
        ("0.6.30", "java-sdk", [], D4),  # Java 0.6.0, also a client that only polls.
        ("0.6.30", "java-sdk", [D4_STREAM, D5_TOPIC, send(56, 0), D4_POLL], D4),
        ("0.6.30", "java-sdk", [D3_GROUP, send(56, 1), D1_POLL], D3),  # Earlier Java.
        ("0.5.0", "csharp-sdk", [D4_STREAM, D5_TOPIC, send(56, 0), D4_POLL], D4),  # C# 0.6.0
        ("0.5.0", "csharp-sdk", [D4_STREAM, D5_TOPIC, D4_POLL], D5),  # C# 0.7.0
        ("0.8.0", "csharp-sdk", [D4_POLL], D5),  # C# 0.8.0
        ("iggy-java-sdk/0.7.0", "Iggy JavaSDK 0.7.0", [D4_POLL], D5),
    ],
)
def test_a_version_with_another_clients_name_is_not_the_crates(version, context, frames, dialect):
    machine = logged_in(login(version, context))
    for frame in frames:
        frame = bytes.fromhex(frame) if isinstance(frame, str) else frame
        assert isinstance(decode(machine, frame), IggyCommand)
    assert (machine.dialect, machine.error_style) == (dialect, ErrorStyle())


@pytest.mark.parametrize("data", [b"", b"\x01u", b"\x01u\x01p\x01", b"\x05u\x01p"])
def test_cut_login_is_refused(data):
    with pytest.raises(ProtocolError):
        candidates_of_login(memoryview(data))


@pytest.mark.parametrize(
    ("version", "frames", "dialect"),
    [
        # Java sends a name, Go its own version, Node nothing: their frames decide.
        ("java-sdk", [send(64, 0)], D5),
        ("", [send(56, 0), D4_POLL], D4),
        ("", [D4_STREAM, D5_TOPIC, send(56, 0)], D4),
        ("", [D2_TOPIC], D3),  # D2 and D3 create topics alike.
        ("", [D3_GROUP, send(56, 1)], D3),
        ("node", [D2_TOPIC, D1_POLL, bytes.fromhex(
            "2f00000065000000010401000000010401000000010000000000000000000000000000000000000000"
            "000500000068656c6c6f")], D2),
        ("0.8.0", [send(64, 0)], D5),
        ("0.8.0", [send(56, 0)], D4),
        ("0.7.0", [send(64, 0)], D5),
        ("0.7.0", [send(56, 1)], D3),
    ],
)  # fmt: skip
def test_the_shape_of_a_frame_corrects_the_guess(version, frames, dialect):
    machine = logged_in(login(version))
    for frame in frames:
        frame = bytes.fromhex(frame) if isinstance(frame, str) else frame
        assert isinstance(decode(machine, frame), IggyCommand)
    assert machine.dialect is dialect


@pytest.mark.parametrize(
    ("frame", "dialect", "error_text"),
    [
        (D0_TOPIC, "D1a", False),
        (D1B_TOPIC, "D1b", True),
        (D0_POLL, "D0 with login", False),
        # D1a as well: it is still unknown if the client reads an error's text.
        (D1_POLL, "D1b", False),
    ],
)
def test_a_login_without_version_is_distinguished_later(frame, dialect, error_text):
    machine = logged_in(LOGIN_OF_D1)
    assert machine.error_style == ErrorStyle(error_text=True, absent_is_error=True)
    decode(machine, bytes.fromhex(frame))
    assert (machine.dialect.name, machine.error_style.error_text) == (dialect, error_text)


@pytest.mark.parametrize("frame", [D0_POLL, D0_TOPIC, "04000000c9000000"])
def test_without_a_login_an_oldest_frame_decides_the_oldest_dialect(frame):
    machine = IggyMachine(without_login=WithoutLogin.EVERYBODY)
    assert isinstance(decode(machine, bytes.fromhex(frame)), IggyCommand)
    assert machine.dialect is D0


@pytest.mark.parametrize("frame", [D1_POLL, D4_POLL, send(64, 0).hex()])
def test_without_a_login_a_later_frame_is_asked_to_log_in(frame):
    machine = IggyMachine(without_login=WithoutLogin.EVERYBODY)
    event = decode(machine, bytes.fromhex(frame))
    assert isinstance(event, RefusedFrame)
    assert event.reply == struct.pack("<II", 40, 0)
    assert decode(machine, login("0.6.202")).code == CommandCode.LOGIN_USER
    assert machine.dialect is D2


def test_after_a_logout_no_client_is_of_the_oldest_dialect():
    machine = logged_in(login("0.6.202"))
    machine.logged_in = False
    event = decode(machine, bytes.fromhex("04000000c9000000"))
    assert isinstance(event, RefusedFrame)
    assert event.reply == struct.pack("<II", 40, 0)


def test_family_is_fixed_by_the_first_frame():
    machine = logged_in(login("0.6.202"))
    with pytest.raises(ProtocolError):
        machine.frame_size(memoryview(bytes(256)))


# Dialects that can have such a frame: each dialect's rule is certain unless noted here.
OLD_SEND = (
    "2f000000650000000104010000000104010000000100000000000000000000000000000000000000000005"
    "00000068656c6c6f"
)
FRAMES = [
    ("SEND", OLD_SEND, {"D0", "D1a", "D1b", "D2"}),
    ("SEND of D3, D4", send(56, 1).hex(), {"D3", "D4"}),
    ("SEND of D5", send(64, 1).hex(), {"D5"}),
    ("POLL of D0", D0_POLL, {"D0"}),
    ("POLL of D1 to D3", D1_POLL, {"D1a", "D1b", "D2", "D3"}),
    ("POLL of D4, D5", D4_POLL, {"D4", "D5"}),
    ("CREATE_TOPIC of D0, D1a", D0_TOPIC, {"D0", "D1a"}),
    # The same fields in another order: the login may be of D1b or D4.
    ("CREATE_TOPIC of D1b", D1B_TOPIC, {"D1b", "D4", "D5"}),
    ("CREATE_TOPIC of D2, D3", D2_TOPIC, {"D2", "D3"}),
    ("CREATE_TOPIC of D4, D5", D5_TOPIC, {"D1b", "D4", "D5"}),
    ("CREATE_STREAM of D4, D5", D4_STREAM, {"D4", "D5"}),
    ("CREATE_STREAM of D0 to D3", "0b000000ca00000001000000027374",
     {"D0", "D1a", "D1b", "D2", "D3"}),
    # A name of three letters has the size of a number: D0 has no login.
    ("CREATE_GROUP of D4, D5", D4_GROUP, {"D0", "D4", "D5"}),
    ("CREATE_GROUP of D1 to D3", D3_GROUP, {"D1a", "D1b", "D2", "D3"}),
    # A stream number whose lowest byte is a fitting length reads as a name, too.
    ("CREATE_STREAM 8, four letters", "0d000000ca0000000800000004aabbccdd"[:34], set()),
]  # fmt: skip


@pytest.mark.parametrize(("command", "frame", "names"), FRAMES)
def test_which_dialects_have_such_a_frame(command, frame, names):
    data = memoryview(bytes.fromhex(frame))
    dialects = set()
    code = int.from_bytes(data[4:8], "little")
    for dialect in (D0, D1A, D1B, D2, D3, D4, D5):
        requests = D0_EXACT if dialect is D0 else dialect.requests
        try:
            requests[code].read(data[8:])
        except ProtocolError:
            continue
        dialects.add(dialect.name)
    if names:
        assert dialects == names


def test_a_name_with_control_characters_suggests_another_dialect():
    # Stream 6 of D2 or D3: D4 could read a name of six bytes, four of which no name has.
    data = struct.pack("<IB", 6, 2) + b"ab"
    machine = logged_in(login(""))
    command = decode(machine, struct.pack("<II", 4 + len(data), 202) + data)
    assert (command.request.stream_id, command.request.name) == (6, "ab")
    decode(machine, send(56, 1))
    assert machine.dialect is D3


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dialect", [D0, *WITH_LOGIN, V, W], ids=lambda dialect: dialect.name)
def test_random_payload_raises_only_protocol_error(dialect, seed):
    chance = random.Random(seed)
    for layout in dialect.requests.values():
        data = bytearray(chance.randbytes(chance.randrange(64)))
        if len(data) > 8 and chance.random() < 0.5:  # Identifiers first, as in most commands.
            data[:8] = bytes.fromhex("0104010000000202")
        try:
            layout.read(memoryview(data))
        except ProtocolError:
            pass
