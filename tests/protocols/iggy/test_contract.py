"""The kit that every listener must pass."""

import struct

from braidlog.protocols.iggy.errors import WIRE_CODES
from braidlog.protocols.iggy.machine import SEND_BYTES_MAX, IggyMachine
from braidlog.protocols.iggy.messages import CommandCode
from tests.protocols.contract import AdapterContract, AnsweredFrame
from tests.protocols.iggy.recorded import recorded

NAMES = [
    "PING before login",
    "LOGIN iggy/iggy",
    'CREATE_STREAM 1 "st"',
    'CREATE_TOPIC 1/1 "tp", 2 partitions',
    "SEND partition 1, two",
    "SEND topic missing",
    "GET_STREAM 0",
    "STORE_OFFSET 0",
    "GET_OFFSET",
    "DELETE_OFFSET",
    "DELETE_OFFSET again",
    "PING with a payload",
    "DELETE_STREAM",
]


def exchange(name: str) -> AnsweredFrame:
    row = recorded(name)
    assert row.answer is not None
    if name == "GET_OFFSET":  # Two messages were sent here.
        return AnsweredFrame(row.request, [row.answer.replace(b"\x03", b"\x01")])
    return AnsweredFrame(row.request, [row.answer])


class TestIggyContract(AdapterContract):
    protocol = "iggy"
    exchanges = tuple(exchange(name) for name in NAMES)
    opening = 2
    oversized = struct.pack("<II", SEND_BYTES_MAX + 1, CommandCode.SEND_MESSAGES)
    flood = recorded("GET_CLIENTS").request
    wire_codes = WIRE_CODES
    farewell = True

    def answer_size(self, data: bytes) -> int | None:
        return 8 + struct.unpack_from("<I", data, 4)[0] if len(data) >= 8 else None

    def decode(self, data: memoryview) -> None:
        machine = IggyMachine()
        machine.logged_in = True
        while (size := machine.frame_size(data)) is not None and size <= len(data):
            machine.decode(data[:size])
            data = data[size:]

    def normal(self, frame: bytes) -> bytes:
        """Return only the head of longer answers: they hold times."""
        return frame if len(frame) <= 28 else frame[:8]
