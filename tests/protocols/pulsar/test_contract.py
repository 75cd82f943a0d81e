"""The kit that every listener must pass."""

import struct

import pytest

from braidlog.protocols.pulsar.errors import WIRE_CODES
from braidlog.protocols.pulsar.machine import FIRST_FRAME_BYTES_MAX, PulsarMachine, Type
from braidlog.protocols.pulsar.messages import NO_SEQUENCE, PING, PONG, ReceiptWriter, success
from braidlog.storage.metadata.names import parse_topic
from tests.protocols.contract import AdapterContract, AnsweredFrame
from tests.protocols.pulsar.golden import sent, taken_apart

RECEIPTS = ReceiptWriter()


def receipt(sequence_id):
    """Return the receipt of the broker's first partition."""
    RECEIPTS.begin(0, 1)
    return RECEIPTS.write(sequence_id, sequence_id, NO_SEQUENCE)


class TestPulsarContract(AdapterContract):
    """The topic exists: a client waits for the answer before it sends to a new topic."""

    protocol = "pulsar"
    exchanges = (
        AnsweredFrame(sent("connect_none"), [b"CONNECTED"]),
        AnsweredFrame(PING, [PONG]),
        AnsweredFrame(PONG),
        AnsweredFrame(sent("partitioned_metadata"), [sent("partitioned_metadata_response")]),
        AnsweredFrame(sent("lookup"), [b"LOOKUP_RESPONSE"]),
        AnsweredFrame(sent("producer_named"), [sent("producer_success")]),
        AnsweredFrame(sent("send_plain"), [receipt(0)]),
        AnsweredFrame(sent("send_key_ordering_props_eventtime"), [receipt(1)]),
        AnsweredFrame(sent("send_deliver_at"), [receipt(2)]),
        AnsweredFrame(sent("close_producer"), [success(3)]),
    )
    opening = 1
    oversized = struct.pack(">I", FIRST_FRAME_BYTES_MAX)
    flood = PING
    wire_codes = WIRE_CODES

    @pytest.fixture
    async def broker(self, broker):
        await broker.topics.create(parse_topic("g1"), 1)
        return broker

    def answer_size(self, data: bytes) -> int | None:
        return 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else None

    def decode(self, data: memoryview) -> None:
        machine = PulsarMachine()
        while (size := machine.frame_size(data)) is not None and size <= len(data):
            if machine.decode(data[:size]).type == Type.CONNECT:
                machine.connected()
            data = data[size:]

    def normal(self, frame: bytes) -> bytes:
        """Return an answer without the broker's version and address."""
        if frame in (b"CONNECTED", b"LOOKUP_RESPONSE"):
            return frame
        command, _ = taken_apart(frame)
        if command.type in (Type.CONNECTED, Type.LOOKUP_RESPONSE):
            return Type.Name(command.type).encode()
        return frame
