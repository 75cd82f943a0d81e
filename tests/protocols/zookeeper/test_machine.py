"""The wire rules of ZooKeeper, against frames of real clients and of ZooKeeper 3.4.6."""

import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.zookeeper import jute
from braidlog.protocols.zookeeper.jute import JuteReader
from braidlog.protocols.zookeeper.machine import (
    PARTS_MAX,
    WORDS,
    ZooKeeperMachine,
    encode_event,
)
from braidlog.protocols.zookeeper.messages import (
    ERROR,
    REPLIES,
    REQUESTS,
    Connect,
    Event,
    Op,
    PartResult,
    Word,
)
from tests.protocols.zookeeper.talk import OPEN, connect_frame, frame, multi_frame, request_frame
from tests.protocols.zookeeper.vectors import vectors

VECTORS = vectors()
OPS = {
    "create": Op.CREATE,
    "delete": Op.DELETE,
    "exists": Op.EXISTS,
    "getData": Op.GET_DATA,
    "setData": Op.SET_DATA,
    "getACL": Op.GET_ACL,
    "setACL": Op.SET_ACL,
    "getChildren": Op.GET_CHILDREN,
    "sync": Op.SYNC,
    "ping": Op.PING,
    "getChildren2": Op.GET_CHILDREN2,
    "auth": Op.AUTH,
    "close": Op.CLOSE,
}


def connected():
    machine = ZooKeeperMachine(1 << 20)
    machine.decode_first(memoryview(connect_frame()))
    return machine


@pytest.mark.parametrize(
    "vector", [vector for vector in VECTORS if vector.operation in OPS], ids=repr
)
def test_recorded_requests_and_answers_are_read_and_written_alike(vector):
    machine, op = connected(), OPS[vector.operation]
    assert machine.frame_size(memoryview(vector.request)) == len(vector.request)
    request = machine.decode(memoryview(vector.request))
    assert request.op == op
    assert request_frame(request.xid, op, *request.fields) == vector.request
    reader = JuteReader(memoryview(vector.answer), 4)
    xid, zxid, code = reader.unpack(struct.Struct(">iqi"))
    if code:
        assert machine.encode_error(xid, zxid, code) == vector.answer
        return
    values = jute.read(reader, REPLIES[op])
    assert not reader.left
    assert machine.encode(xid, zxid, op, values) == vector.answer


@pytest.mark.parametrize(
    "vector", [vector for vector in VECTORS if vector.operation == "connect"], ids=repr
)
def test_recorded_sessions_begin_alike(vector):
    machine = ZooKeeperMachine(1 << 20)
    assert machine.frame_size(memoryview(vector.request)) == len(vector.request)
    first = machine.decode_first(memoryview(vector.request))
    assert isinstance(first, Connect)
    assert first.has_read_only == (len(vector.request) == 49)
    reader = JuteReader(memoryview(vector.answer), 4)
    _, timeout_ms, session_id = reader.unpack(struct.Struct(">iiq"))
    password = reader.buffer()
    assert vector.answer == machine.encode_connected(
        session_id, password, timeout_ms, has_read_only=first.has_read_only
    )


def test_recorded_events_are_written_alike():
    events = [vector.answer for vector in VECTORS if vector.operation == "event"]
    assert events
    for answer in events:
        kind, _, path = jute.read(JuteReader(memoryview(answer), 20), ("int", "int", "string"))
        assert encode_event(Event(kind), path) == answer


def test_a_recorded_transaction_is_read_and_answered_alike():
    (vector,) = (candidate for candidate in VECTORS if candidate.operation == "multi")
    machine = connected()
    request = machine.decode(memoryview(vector.request))
    kinds = [op for op, _ in request.fields]
    assert kinds == [Op.CREATE, Op.SET_DATA, Op.CHECK, Op.DELETE]
    parts = [(op, *fields) for op, fields in request.fields]
    written = multi_frame(request.xid, *parts)
    assert machine.decode(memoryview(written)) == request
    stat = jute.STAT.unpack_from(vector.answer, len(vector.answer) - 3 * 9 - jute.STAT.size)
    results = [
        PartResult(Op.CREATE, ("/kz/m",)),
        PartResult(Op.SET_DATA, (stat,)),
        PartResult(Op.CHECK),
        PartResult(Op.DELETE),
    ]
    _, zxid, _ = struct.unpack_from(">iqi", vector.answer, 4)
    assert machine.encode(request.xid, zxid, Op.MULTI, results) == vector.answer


def test_a_failed_transaction_names_an_error_for_each_part():
    encoded = ZooKeeperMachine(100).encode(7, 9, Op.MULTI, [PartResult(ERROR, (), -103)])
    body = struct.pack(">iqi", 7, 9, 0) + struct.pack(">i?ii", -1, False, -103, -103)
    assert encoded == frame(body + struct.pack(">i?i", -1, True, -1))


def test_words_take_the_place_of_a_session():
    for word in WORDS:
        machine = ZooKeeperMachine(1 << 20)
        assert machine.frame_size(memoryview(word + b"\n")) == 4
        assert machine.decode_first(memoryview(word)) == Word(word)


def test_a_first_frame_of_another_protocol_is_refused_by_its_length():
    machine = ZooKeeperMachine(1 << 20)
    for data in (b"GET / HTTP/1.1", b"\x16\x03\x01\x00", struct.pack(">i", 5000)):
        with pytest.raises(ProtocolError):
            machine.frame_size(memoryview(data))
    assert machine.frame_size(memoryview(b"\0\0")) is None


def test_frames_above_the_limit_are_refused_by_their_length():
    machine = connected()
    assert machine.frame_size(memoryview(struct.pack(">i", 1 << 20))) == (1 << 20) + 4
    for size in ((1 << 20) + 1, 7, -1):
        with pytest.raises(ProtocolError):
            machine.frame_size(memoryview(struct.pack(">i", size)))


def test_cut_fields_and_impossible_counts_are_protocol_errors():
    machine = connected()
    whole = request_frame(1, Op.CREATE, "/a", b"x", OPEN, 0)
    for end in range(12, len(whole)):
        with pytest.raises(ProtocolError):
            machine.decode(memoryview(whole[:end]))
    for count in (1 << 30, -2):
        body = struct.pack(">ii", 1, Op.SET_WATCHES) + struct.pack(">qi", 0, count)
        with pytest.raises(ProtocolError):
            machine.decode(memoryview(frame(body)))


def test_parts_of_transactions_are_limited_in_kind_and_number():
    machine = connected()
    body = struct.pack(">ii", 1, Op.MULTI) + jute.MULTI_HEADER.pack(Op.GET_DATA, False, -1)
    with pytest.raises(ProtocolError, match="part of multi"):
        machine.decode(memoryview(frame(body)))
    many = [(Op.CHECK, "/", 0)] * (PARTS_MAX + 1)
    with pytest.raises(ProtocolError, match="more than"):
        machine.decode(memoryview(multi_frame(1, *many)))


def test_every_served_operation_has_both_layouts():
    assert set(REQUESTS) == set(REPLIES) == set(Op) - {Op.MULTI}
