"""The bytes of permissions, compared with their description, and invalid blocks."""

import random
import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fields import FieldRefused
from braidlog.protocols.iggy.permission_field import (
    PERMISSIONS_FROM_0,
    PERMISSIONS_FROM_1,
    PERMITTED_MAX,
    Permitted,
)
from braidlog.protocols.iggy.user_messages import (
    GLOBAL_PERMISSIONS,
    STREAM_PERMISSIONS,
    TOPIC_PERMISSIONS,
    Permissions,
    StreamPermissions,
)
from braidlog.protocols.reader import LittleEndianReader
from tests.protocols.iggy.description_permissions import block


def read(data: bytes, piece: Permitted = PERMISSIONS_FROM_1) -> Permissions | None:
    return piece.read(LittleEndianReader(memoryview(data)))


def framed(data: bytes) -> bytes:
    return b"\x01" + struct.pack("<I", len(data)) + data


def named(names: tuple[str, ...], flags: list[int]) -> frozenset[str]:
    return frozenset(name for name, flag in zip(names, flags, strict=True) if flag)


@pytest.mark.parametrize("seed", range(30))
def test_a_block_is_read_and_written_as_described(seed):
    chance = random.Random(seed)

    def flags(count):
        return [chance.randrange(2) for _ in range(count)]

    global_flags = flags(10)
    streams = {
        chance.randrange(1 << 32): (
            flags(6),
            {chance.randrange(1 << 32): flags(4) for _ in range(chance.randrange(4))},
        )
        for _ in range(chance.randrange(4))
    }
    data = framed(block(global_flags, streams))
    expected = Permissions(
        named(GLOBAL_PERMISSIONS, global_flags),
        {
            number: StreamPermissions(
                named(STREAM_PERMISSIONS, six),
                {topic: named(TOPIC_PERMISSIONS, four) for topic, four in topics.items()},
            )
            for number, (six, topics) in streams.items()
        },
    )
    assert read(data) == expected
    assert PERMISSIONS_FROM_1.write(expected) == data
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            read(data[:size])


def test_from_d4_on_numbers_in_a_block_begin_at_0():
    on_the_wire = block([0] * 10, {0: ([1] + [0] * 5, {6: [0, 0, 0, 1]})})
    permissions = Permissions(
        frozenset(),
        {1: StreamPermissions(frozenset({"manage_stream"}), {7: frozenset({"send_messages"})})},
    )
    assert read(framed(on_the_wire), PERMISSIONS_FROM_0) == permissions
    assert PERMISSIONS_FROM_0.write(permissions) == framed(on_the_wire)


def test_no_permissions_are_a_zero_byte_in_a_request_and_four_in_an_answer():
    assert read(b"\0") is None
    assert PERMISSIONS_FROM_1.write(None) == bytes(4)


def test_the_number_of_permissions_has_a_limit():
    def permitted(count):
        return framed(block([0] * 10, {number: ([0] * 6, {}) for number in range(count)}))

    assert len(read(permitted(PERMITTED_MAX)).streams) == PERMITTED_MAX
    with pytest.raises(FieldRefused) as refused:
        read(permitted(PERMITTED_MAX + 1))
    assert refused.value.code is ErrorCode.FEATURE_UNAVAILABLE
