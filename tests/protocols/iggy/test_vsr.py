"""The newest dialect's framing."""

import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import vsr
from braidlog.protocols.iggy.messages import CommandCode

CLIENT = bytes(range(1, 17))


def frame(*, operation: int, code: int = 0, body: bytes = b"", number: int = 0) -> bytes:
    """Return a request as apache-iggy 0.9.0 builds it."""
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
def test_frame_size_is_known_from_size_and_command(data):
    for end in range(61):
        assert vsr.frame_size(memoryview(data[:end]), 4096) is None
    assert vsr.frame_size(memoryview(data[:61]), 4096) == len(data)
    assert vsr.frame_size(memoryview(data + PING), 4096) == len(data)


@pytest.mark.parametrize(
    ("pos", "value"), [(47, 1), (8, 255), (48, 255), (51, 255), (49, 0), (60, 4), (60, 0)]
)
def test_an_invalid_request_header_is_refused(pos, value):
    data = bytearray(PING)
    data[pos] = value
    if (pos, value) == (48, 255):
        data[49] = 0  # A size of 255, below the header's size.
    with pytest.raises(ProtocolError):
        vsr.frame_size(memoryview(data), 4096)


def test_nonzero_reserved_bytes_are_refused_before_the_whole_header():
    with pytest.raises(ProtocolError):
        vsr.frame_size(memoryview(bytes(7) + b"\x01"), 4096)


def test_frame_above_the_limit_is_refused():
    assert vsr.frame_size(memoryview(LOGIN), len(LOGIN)) == len(LOGIN)
    with pytest.raises(ProtocolError):
        vsr.frame_size(memoryview(LOGIN), len(LOGIN) - 1)


def test_the_operation_decides_the_command():
    ping, login = vsr.decode(memoryview(PING)), vsr.decode(memoryview(LOGIN))
    assert (ping.client, ping.number, ping.code) == (CLIENT, 1, CommandCode.PING)
    assert (login.operation, login.code) == (vsr.OPERATION_REGISTER, CommandCode.LOGIN_USER)
    # This operation does not carry the code.
    assert vsr.decode(memoryview(frame(operation=2, code=101))).code == 0
    assert vsr.decode(memoryview(frame(operation=77))).code == 0


def test_every_command_has_a_single_operation():
    v, w = (
        framing.plain_codes | set(framing.codes.values())
        for framing in (vsr.V_FRAMING, vsr.W_FRAMING)
    )
    assert not vsr.PLAIN_CODES & set(vsr.CODES.values())
    with_login = {CommandCode.LOGIN_WITH_TOKEN, CommandCode.BIND_SESSION}
    assert v | w == set(CommandCode) - with_login


def test_reply_echoes_client_number_and_operation():
    data = vsr.reply(vsr.decode(memoryview(PING)), 40)
    assert len(data) == 256
    assert struct.unpack_from("<I", data, 48) == (256,)
    assert (data[60], data[160:176], data[208]) == (8, CLIENT, 2)
    assert struct.unpack_from("<Q", data, 200) == (1,)
    assert struct.unpack_from("<I", data, 216) == (40,)


def test_success_and_failure_with_a_result_section():
    request = vsr.decode(memoryview(frame(operation=128)))
    assert vsr.success(request, b"xy")[256:] == bytes(4) + b"xy"
    assert vsr.failure(request, 1012)[256:] == bytes.fromhex("01000000 00000000 f4030000")
    assert struct.unpack_from("<I", vsr.failure(request, 1012), 216) == (0,)
    assert len(vsr.failure(request, 3)) == 256
    assert struct.unpack_from("<I", vsr.failure(request, 3), 216) == (3,)


@pytest.mark.parametrize("number", [1009, 2010, 3007, 41])
def test_a_refused_deletion_of_segments_has_its_error_in_the_header(number):
    """Clients expect no result section there: an error there would read as success."""
    deleted = vsr.decode(memoryview(frame(operation=138)))
    refused = vsr.failure(deleted, number)
    assert len(refused) == 256
    assert struct.unpack_from("<I", refused, 216) == (number,)
    assert len(vsr.success(deleted, b"")) == 256


def test_success_and_failure_without_a_result_section():
    sent = vsr.decode(memoryview(frame(operation=160)))
    assert vsr.success(sent, b"xy", 3)[256:] == b"xy"
    assert struct.unpack_from("<I", vsr.success(sent, b"xy", 3), 48) == (261,)
    assert struct.unpack_from("<I", vsr.failure(sent, 1009), 216) == (1009,)


def test_eviction_names_the_client_and_the_versions_served():
    data = vsr.eviction(vsr.decode(memoryview(LOGIN)), vsr.Reason.INCOMPATIBLE_PROTOCOL)
    assert len(data) == 256
    assert struct.unpack_from("<I", data, 48) == (256,)
    assert (data[60], data[128:144], data[255]) == (13, CLIENT, 14)
    assert struct.unpack_from("<II", data, 144) == (12 << 10, 11 << 10)
    other = vsr.eviction(vsr.decode(memoryview(LOGIN)), vsr.Reason.INVALID_CREDENTIALS)
    assert struct.unpack_from("<II", other, 144) == (0, 0)


def test_a_final_answer_of_w_names_the_last_change_and_echoes_the_partition():
    data = bytearray(frame(operation=160))
    data[200:208] = struct.pack("<Q", 5)
    sent = vsr.decode(memoryview(bytes(data)), vsr.W_FRAMING)
    assert sent.partition == 5
    reply = vsr.success(sent, b"", commit=9)
    assert struct.unpack_from("<QQ", reply, 176) == (9, 9)
    assert (reply[220], struct.unpack_from("<Q", reply, 224)) == (1, (5,))
    # A status says that nothing was done: the result is not final.
    refused = vsr.failure(sent, 3007, commit=9)
    assert (refused[220], struct.unpack_from("<I", refused, 216)) == (0, (3007,))


def test_every_error_of_a_change_in_w_is_a_result_and_final():
    request = vsr.decode(memoryview(frame(operation=128)), vsr.W_FRAMING)
    refused = vsr.failure(request, 4041, commit=9)
    assert refused[256:] == struct.pack("<III", 1, 0, 4041)
    assert refused[220] == 1
    assert struct.unpack_from("<I", vsr.failure(request, 3), 216) == (3,)  # Refused when decoded.


def test_an_answer_of_v_has_no_commit_number():
    request = vsr.decode(memoryview(frame(operation=128)))
    reply = vsr.success(request, b"", commit=9)
    assert request.partition is None
    assert not any(reply[176:192] + reply[217:256])
