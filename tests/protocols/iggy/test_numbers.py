"""Streams, topics and groups by number: from 1 in the catalogue and up to D3, from 0 since D4."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.all_dialects import D0, D0_WITH_LOGIN, D1A, D1B, D2, D3, D4, D5
from braidlog.protocols.iggy.dialects import Dialect, RequestLayout
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.reader import LittleEndianReader
from tests.protocols.iggy.description import named
from tests.protocols.iggy.description_permissions import block

FROM_1, FROM_0 = (D0, D0_WITH_LOGIN, D1A, D1B, D2, D3), (D4, D5, V)
BASES = [*((dialect, 1) for dialect in FROM_1), *((dialect, 0) for dialect in FROM_0)]
NUMBERED = {"stream", "topic", "group"}
ON_THE_WIRE = 5
BY_NUMBER = b"\x01\x04" + struct.pack("<I", ON_THE_WIRE)
bases = pytest.mark.parametrize(
    ("dialect", "base"), BASES, ids=[dialect.name for dialect, _ in BASES]
)


def pieces(dialect: Dialect) -> Iterator[tuple[type[Any], str, Any]]:
    """Yield the type, name and piece of each field of each request with a plain layout."""
    for layout in dialect.requests.values():
        if isinstance(layout, RequestLayout):
            for name, piece in layout.fields:
                yield layout.type, name, piece


def read(piece: Any, data: bytes) -> Any:
    return piece.read(LittleEndianReader(memoryview(data)))


@bases
def test_every_request_with_a_number_counts_from_the_dialects_base(dialect, base):
    seen = set()
    for kind, name, piece in pieces(dialect):
        if name in NUMBERED:
            is_bare = dialect in (D0, D0_WITH_LOGIN) and name == "group"
            data = BY_NUMBER[2:] if is_bare else BY_NUMBER
            assert read(piece, data) == ON_THE_WIRE + 1 - base, (kind, name)
            seen.add(kind)
    assert {m.PollMessages, m.GetStream, m.DeleteTopic, m.JoinGroup, m.GetConsumerOffset} <= seen


@bases
def test_a_reading_group_counts_from_the_base_and_a_consumer_keeps_its_number(dialect, base):
    is_bare = dialect in (D0, D0_WITH_LOGIN)
    number = BY_NUMBER[2:] if is_bare else BY_NUMBER
    readers = [piece for _, name, piece in pieces(dialect) if name == "consumer"]
    assert len(readers) >= 3
    for piece in readers:
        assert read(piece, b"\x02" + number).name == ON_THE_WIRE + 1 - base
        assert read(piece, b"\x01" + number).name == ON_THE_WIRE


@bases
def test_a_send_counts_from_the_dialects_base(dialect, base):
    target = BY_NUMBER + BY_NUMBER + b"\x01\x00"
    message = bytes(20) + struct.pack("<I", 1) + b"x"
    for payload in (
        target + message,
        *(_indexed(target, size) for size in (56, 64)),
        struct.pack("<I", len(target) + 4) + target + bytes(4),
    ):
        try:
            request = dialect.requests[m.CommandCode.SEND_MESSAGES].read(memoryview(payload))
        except ProtocolError:
            continue
        assert (request.stream, request.topic) == (ON_THE_WIRE + 1 - base,) * 2
        return
    pytest.fail("no SEND of this dialect")


def _indexed(target: bytes, head_bytes: int) -> bytes:
    message = bytes(48) + struct.pack("<II", 0, 1) + bytes(head_bytes - 56) + b"x"
    target += struct.pack("<I", 1)
    index = struct.pack("<IIQ", 0, len(message), 0)
    return struct.pack("<I", len(target)) + target + index + message


@bases
def test_permissions_count_from_the_dialects_base(dialect, base):
    if dialect in (D0, D0_WITH_LOGIN):
        return  # The dialect had no users.
    data = block([0] * 10, {5: ([0, 1, 0, 0, 0, 0], {6: [0, 0, 1, 0]})})
    field = b"\x01" + struct.pack("<I", len(data)) + data
    number = 1 - base
    permissions = u.Permissions(
        frozenset(),
        {
            5 + number: u.StreamPermissions(
                frozenset({"read_stream"}), {6 + number: frozenset({"poll_messages"})}
            )
        },
    )
    readers = [piece for _, name, piece in pieces(dialect) if name == "permissions"]
    assert len(readers) == 2
    assert [read(piece, field) for piece in readers] == [permissions, permissions]
    assert dialect.write([r.UserPermissions(permissions)]) == field


@bases
def test_records_count_from_the_dialects_base(dialect, base):
    def first_number(record: object) -> int:
        return int.from_bytes(dialect.write([record])[:4], "little")

    expected = 6 + base
    assert first_number(r.StreamInfo(7, 1, 0, 0, 0, "s")) == expected
    assert first_number(r.TopicDetails(7, 1, 0, 0, 1, 0, 1, 0, 0, "t")) == expected
    assert first_number(r.GroupInfo(7, 1, 0, "g")) == expected
    membership = dialect.write([r.JoinedGroup(7, 8, 9)])
    assert struct.unpack("<III", membership) == (expected, expected + 1, expected + 2)


def test_a_send_is_answered_in_v_with_numbers_from_0():
    assert V.write([r.SentInfo(7, 8, 2, 41)]) == struct.pack("<IIIIQ", 1, 6, 7, 2, 41)


@bases
def test_users_are_named_by_their_own_numbers(dialect, base):
    """`users_from` is their first number; `users.py` counts users."""
    for _, name, piece in pieces(dialect):
        if name == "user":
            assert read(piece, BY_NUMBER) == ON_THE_WIRE


# Over the wire. Layouts of these commands and records are the same in D2, D4 and D5.


@pytest.fixture
async def later(connect):
    """Return a connection that counts from 0."""
    talk = await connect()
    assert await talk.login(version="0.10.0") == 0
    return talk


async def test_each_dialect_names_the_same_stream_topic_and_group_by_its_own_number(talk, later):
    await talk.create_topic("first")
    await talk.create_topic("second")
    place = {"stream": named("st"), "topic": named("second")}
    await talk.ask(602, **place, group_id=0, name="grp")
    for asker, base in ((talk, 1), (later, 0)):
        stream = await asker.ask(200, stream=named(base))
        assert (stream["stream"]["id"], stream["stream"]["name"]) == (base, "st")
        assert [topic["id"] for topic in stream["topics"]] == [base, base + 1]
        topic = await asker.ask(300, stream=named(base), topic=named(base + 1))
        assert (topic["topic"]["id"], topic["topic"]["name"]) == (base + 1, "second")
        by_number = {"stream": named(base), "topic": named(base + 1), "group": named(base)}
        group = await asker.ask(600, **by_number)
        assert (group["group"]["id"], group["group"]["name"]) == (base, "grp")
        assert await asker.status(604, **by_number) == 0
        assert (await asker.ask(20))["memberships"] == [
            {"stream_id": base, "topic_id": base + 1, "group_id": base}
        ]
    assert await later.ask(200, stream=named(1)) == {"status": 0}


async def test_a_number_of_an_old_client_is_lower_by_1_for_later_clients(talk, later):
    assert await talk.status(202, stream_id=40, name="chosen") == 0
    assert (await talk.ask(200, stream=named(40)))["stream"]["name"] == "chosen"
    assert (await later.ask(200, stream=named(39)))["stream"]["name"] == "chosen"
    assert await later.ask(200, stream=named(40)) == {"status": 0}
    assert await later.status(203, stream=named(39)) == 0
    assert await talk.ask(200, stream=named("chosen")) == {"status": 0}


async def test_permissions_name_streams_and_topics_by_the_numbers_of_the_dialect(talk, later):
    await talk.create_topic("first")
    await talk.create_topic("second")
    permissions = block([0] * 10, {0: ([0, 1, 0, 0, 0, 0], {1: [0, 0, 0, 1]})})
    new = {"username": "anna", "password": "secret", "status": 1, "permissions": permissions}
    assert await later.status(33, **new) == 0
    assert (await later.ask(31, user=named("anna")))["permissions"] == permissions
    seen_by_old = block([0] * 10, {1: ([0, 1, 0, 0, 0, 0], {2: [0, 0, 0, 1]})})
    assert (await talk.ask(31, user=named("anna")))["permissions"] == seen_by_old
    with_stream_1 = block([0] * 10, {1: ([0, 1, 0, 0, 0, 0], {})})
    changed = {"user": named("anna"), "permissions": with_stream_1}
    assert await later.status(36, **changed) == 1009
    assert await talk.status(36, **changed) == 0
