"""Limits of a group, without a broker. `rules/classic_group.txt` has the rules."""

import pytest

from braidlog.protocols.kafka.classic_group import (
    GROUP_MEMBERS_MAX,
    MEMBER_BYTES_MAX,
    KafkaGroup,
    MemberRefused,
)
from braidlog.protocols.kafka.errors import Code
from tests.protocols.kafka.talk import join_request

CLIENT = (b"client", b"/host")


def refused(code: Code) -> object:
    return pytest.raises(MemberRefused, match=f"^{code.name}$")


def test_a_group_has_a_size_limit() -> None:
    group = KafkaGroup(b"g")
    for _ in range(GROUP_MEMBERS_MAX):
        group.admit(join_request(), CLIENT, 0.0)
    with refused(Code.GROUP_MAX_SIZE_REACHED):
        group.admit(join_request(), CLIENT, 0.0)


def test_promised_ids_have_a_limit_and_expire() -> None:
    group = KafkaGroup(b"g")
    promised = [group.promise(b"c", 0.0, 10.0) for _ in range(GROUP_MEMBERS_MAX)]
    with refused(Code.GROUP_MAX_SIZE_REACHED):
        group.promise(b"c", 9.0, 10.0)
    assert group.leave(promised[0], None, 9.0) == Code.NONE
    again = group.promise(b"c", 9.0, 10.0)
    assert group.admit(join_request(member_id=again), CLIENT, 9.0).member_id == again
    assert group.promise(b"c", 10.0, 10.0)
    with refused(Code.UNKNOWN_MEMBER_ID):
        group.admit(join_request(member_id=promised[1]), CLIENT, 10.0)


def test_a_members_data_is_limited() -> None:
    half = bytes(MEMBER_BYTES_MAX // 2 + 1)
    with refused(Code.INVALID_REQUEST):
        KafkaGroup(b"g").admit(join_request({b"a": half, b"b": half}), CLIENT, 0.0)
