"""Bytes to commands: recorded frames in every chunking, the table of states, damage."""

import random
import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.pulsar.machine import (
    ALLOWED,
    FIELDS,
    FIRST_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    ConnectionState,
    PulsarMachine,
    Type,
)
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import BaseCommand
from tests.protocols.pulsar import golden


def machine_in(state):
    machine = PulsarMachine()
    machine.state = state
    return machine


def state_for(name):
    return ConnectionState.CONNECTING if name.startswith("connect") else ConnectionState.CONNECTED


def command_frame(command, payload=b""):
    body = command.SerializePartialToString()
    return struct.pack(">II", len(body) + 4 + len(payload), len(body)) + body + payload


# Recorded frames.


@pytest.mark.parametrize("name", golden.by_client())
def test_a_recorded_frame_round_trips(name):
    frame = golden.sent(name)
    machine = machine_in(state_for(name))
    assert machine.frame_size(memoryview(frame)) == len(frame)
    command = machine.decode(memoryview(frame))
    expected, rest = golden.taken_apart(frame)
    assert command.type == expected.type
    assert command.fields == getattr(expected, FIELDS[expected.type])
    assert bytes(command.payload or b"") == rest
    again = BaseCommand(type=command.type)
    getattr(again, FIELDS[command.type]).CopyFrom(command.fields)
    assert command_frame(again, rest) == frame


@pytest.mark.parametrize("name", golden.by_client())
def test_frame_is_known_to_be_whole_at_its_last_byte(name):
    """The frame is fed byte by byte, and with another frame behind."""
    frame = golden.sent(name)
    machine = machine_in(state_for(name))
    for size in range(len(frame)):
        size_read = machine.frame_size(memoryview(frame)[:size])
        assert size_read == (None if size < 4 else len(frame))
    assert machine.frame_size(memoryview(frame + golden.sent("flow"))) == len(frame)


# States.


@pytest.mark.parametrize("state", ConnectionState)
@pytest.mark.parametrize("kind", sorted(Type.values()))
def test_every_command_in_every_state(state, kind):
    command = BaseCommand(type=kind)
    field = FIELDS.get(kind)
    if field is not None:
        getattr(command, field).SetInParent()
    frame = command_frame(command, b"payload" if kind == Type.SEND else b"")
    machine = machine_in(state)
    if kind in ALLOWED[state]:
        assert machine.decode(memoryview(frame)).type == kind
        assert machine.state is state
    else:
        with pytest.raises(ProtocolError):
            machine.decode(memoryview(frame))
        assert machine.state is ConnectionState.CLOSED


def test_only_connect_and_ping_come_first_and_connect_comes_once():
    assert ALLOWED[ConnectionState.CONNECTING] == {Type.CONNECT, Type.PING}
    assert Type.CONNECT not in ALLOWED[ConnectionState.CONNECTED]
    assert not ALLOWED[ConnectionState.CLOSED]


# Runs of SENDs.


@pytest.mark.parametrize("name", golden.by_client())
def test_a_run_takes_the_same_frames_as_decode(name):
    frame = golden.sent(name)
    before, behind = b"before", golden.sent("flow")
    sent = machine_in(ConnectionState.CONNECTED).next_send(
        memoryview(before + frame + behind), len(before)
    )
    if name.startswith("connect"):
        assert sent is None
        return
    command = machine_in(ConnectionState.CONNECTED).decode(memoryview(frame))
    if command.payload is None:
        assert sent is None
    else:
        fields, payload_pos, end = sent
        assert fields == command.fields
        assert end == len(before + frame)
        assert (before + frame)[payload_pos:] == bytes(command.payload)


def test_a_run_ends_at_a_send_that_is_not_whole_or_not_allowed():
    frame = golden.sent("send_plain")
    for size in range(len(frame)):
        assert machine_in(ConnectionState.CONNECTED).next_send(memoryview(frame)[:size], 0) is None
    for state in (ConnectionState.CONNECTING, ConnectionState.CLOSED):
        assert machine_in(state).next_send(memoryview(frame), 0) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_run_takes_no_damaged_send_that_decode_refuses(seed):
    rng = random.Random(seed)
    for _ in range(200):
        frame = bytearray(golden.sent("send_plain"))
        frame[rng.randrange(30)] = rng.randrange(256)
        sent = machine_in(ConnectionState.CONNECTED).next_send(memoryview(frame), 0)
        if sent is None:
            continue
        assert sent[2] == machine_in(ConnectionState.CONNECTED).frame_size(memoryview(frame))
        command = machine_in(ConnectionState.CONNECTED).decode(memoryview(frame)[: sent[2]])
        assert (command.type, command.fields) == (Type.SEND, sent[0])
        assert command.payload == memoryview(frame)[sent[1] : sent[2]]


# Violations.


def refused(frame, state=ConnectionState.CONNECTED):
    machine = machine_in(state)
    with pytest.raises(ProtocolError):
        machine.frame_size(memoryview(frame))
        machine.decode(memoryview(frame))
    assert machine.state is ConnectionState.CLOSED


def test_command_without_its_fields():
    refused(command_frame(BaseCommand(type=Type.LOOKUP)))


def test_an_unknown_command_type_is_refused():
    refused(struct.pack(">II", 7, 3) + b"\x08\xe7\x07")


def test_send_without_payload():
    refused(golden.sent("send_plain")[:16].replace(b"\x00\x00\x00\x2c", b"\x00\x00\x00\x0c"))


def test_frames_up_to_apaches_limit_pass_and_no_larger_ones():
    machine = machine_in(ConnectionState.CONNECTED)
    assert FRAME_BYTES_MAX == 5_253_120
    assert machine.frame_size(memoryview(struct.pack(">I", 5_253_116))) == FRAME_BYTES_MAX
    with pytest.raises(ProtocolError):
        machine.frame_size(memoryview(struct.pack(">I", 5_253_117)))


def test_first_frame_is_a_small_one():
    machine = machine_in(ConnectionState.CONNECTING)
    machine.frame_size(memoryview(struct.pack(">I", FIRST_FRAME_BYTES_MAX - 4)))
    with pytest.raises(ProtocolError):
        machine.frame_size(memoryview(struct.pack(">I", FIRST_FRAME_BYTES_MAX - 3)))


@pytest.mark.parametrize("start", [struct.pack(">IIB", 100, 97, 8), struct.pack(">IIB", 9, 1, 8)])
def test_a_command_larger_than_its_frame_is_refused_early(start):
    with pytest.raises(ProtocolError):
        machine_in(ConnectionState.CONNECTED).frame_size(memoryview(start))


def test_a_frame_without_a_type_is_refused_early():
    with pytest.raises(ProtocolError):
        machine_in(ConnectionState.CONNECTED).frame_size(
            memoryview(struct.pack(">IIB", 100, 50, 10))
        )


@pytest.mark.parametrize("seed", range(20))
def test_damaged_frames_raise_only_protocol_errors(seed):
    rng = random.Random(seed)
    for name in golden.by_client():
        frame = bytearray(golden.sent(name))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        machine = machine_in(state_for(name))
        try:
            if machine.frame_size(memoryview(frame)) == len(frame):
                machine.decode(memoryview(frame))
        except ProtocolError:
            pass
