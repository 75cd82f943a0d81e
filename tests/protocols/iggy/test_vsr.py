"""The newest dialect's framing, as far as its clients are refused in it."""

import struct

import pytest

from broker.server.adapters import ProtocolError
from protocols.iggy import vsr

CLIENT = bytes(range(1, 17))


def frame(*, operation: int, code: int = 0, body: bytes = b"", number: int = 0) -> bytes:
    """A request as apache-iggy 0.9.0 builds it."""
    head = bytearray(256)
    struct.pack_into("<I", head, 48, 256 + len(body))
    head[60] = 5
    head[128:144] = CLIENT
    struct.pack_into("<Q", head, 168, number)
    head[176] = operation
    struct.pack_into("<I", head, 196, code)
    return bytes(head) + body


PING = frame(operation=2, code=1, number=1)
LOGIN = frame(
    operation=1,
    body=bytes.fromhex("002c000008727573742d73646b06302e31312e300469676779046967677900000000"),
)


@pytest.mark.parametrize("data", [PING, LOGIN])
def test_frame_size_is_known_once_size_and_command_are_there(data):
    for end in range(61):
        assert vsr.frame_size(memoryview(data[:end])) is None
    assert vsr.frame_size(memoryview(data[:61])) == len(data)
    assert vsr.frame_size(memoryview(data + PING)) == len(data)


@pytest.mark.parametrize(
    ("pos", "value"), [(47, 1), (8, 255), (48, 255), (51, 255), (49, 0), (60, 4), (60, 0)]
)
def test_what_is_no_request_header_is_refused(pos, value):
    data = bytearray(PING)
    data[pos] = value
    if (pos, value) == (48, 255):
        data[49] = 0  # A size of 255, below that of the header.
    with pytest.raises(ProtocolError):
        vsr.frame_size(memoryview(data))


def test_bytes_that_are_not_zero_are_refused_before_the_header_is_there():
    with pytest.raises(ProtocolError):
        vsr.frame_size(memoryview(bytes(7) + b"\x01"))


def test_ping_is_told_from_login():
    ping, login = vsr.decode(memoryview(PING)), vsr.decode(memoryview(LOGIN))
    assert (ping.client, ping.number, ping.is_ping) == (CLIENT, 1, True)
    assert (login.operation, login.is_ping) == (vsr.OPERATION_REGISTER, False)


def test_reply_echoes_client_number_and_operation():
    data = vsr.reply(vsr.decode(memoryview(PING)), 40)
    assert len(data) == 256
    assert struct.unpack_from("<I", data, 48) == (256,)
    assert (data[60], data[160:176], data[208]) == (8, CLIENT, 2)
    assert struct.unpack_from("<Q", data, 200) == (1,)
    assert struct.unpack_from("<I", data, 216) == (40,)


def test_eviction_names_the_client_and_a_window_that_it_can_show():
    data = vsr.eviction(vsr.decode(memoryview(LOGIN)))
    assert len(data) == 256
    assert struct.unpack_from("<I", data, 48) == (256,)
    assert (data[60], data[128:144], data[255]) == (13, CLIENT, 14)
    highest, lowest = struct.unpack_from("<II", data, 144)
    assert 1 <= lowest <= highest < 11 << 10  # Below 0.11.0, the first version there is.
