"""The machine: frame sizes for any chunking, and refusal at the first possible byte."""

import random
import struct

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.decoding import DECODERS
from braidlog.protocols.kafka.machine import KafkaMachine
from braidlog.protocols.kafka.tables import SERVED, is_served
from braidlog.protocols.kafka.wire.find_coordinator import FindCoordinatorResponse
from tests.protocols.kafka.golden import GoldenFrame, golden_frames

FRAME_BYTES_MAX = 104857600
MACHINE = KafkaMachine(FRAME_BYTES_MAX)
ROWS = golden_frames()
OWN = [row for row in ROWS if row.api_key in DECODERS and is_served(row.api_key, row.version)]
REFUSED = [row for row in ROWS if row.api_key != 18 and not is_served(row.api_key, row.version)]


@pytest.mark.parametrize("row", OWN, ids=lambda row: row.label)
def test_size_is_the_same_byte_by_byte_whole_and_with_a_trailing_frame(row: GoldenFrame) -> None:
    frame = row.request
    for end in range(len(frame)):
        size = MACHINE.frame_size(memoryview(frame[:end]))
        assert size == (None if end < 4 else len(frame))
    assert MACHINE.frame_size(memoryview(frame)) == len(frame)
    assert MACHINE.frame_size(memoryview(frame + OWN[0].request)) == len(frame)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.label)
def test_an_unserved_key_or_version_is_refused_at_its_eighth_byte(
    row: GoldenFrame,
) -> None:
    assert MACHINE.frame_size(memoryview(row.request[:7])) is not None
    with pytest.raises(ProtocolError, match=f"api key {row.api_key} version {row.version}"):
        MACHINE.frame_size(memoryview(row.request[:8]))
    with pytest.raises(ProtocolError):
        MACHINE.decode(memoryview(row.request))


@pytest.mark.parametrize("api_key", [-1, 4, 5, 6, 7, 24, 25, 26, 28, 67, 99])
@pytest.mark.parametrize("version", [0, 1])
def test_inter_broker_and_other_keys_are_refused(api_key: int, version: int) -> None:
    head = struct.pack(">ihhi", 13, api_key, version, 1)
    with pytest.raises(ProtocolError):
        MACHINE.frame_size(memoryview(head))


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\x00\x00\x00\x00", b"\xff" * 4],
    ids=["HTTP", "TLS hello", "size 0", "size -1"],
)
def test_foreign_first_bytes_are_refused_at_the_fourth(data: bytes) -> None:
    assert MACHINE.frame_size(memoryview(data[:3])) is None
    with pytest.raises(ProtocolError):
        MACHINE.frame_size(memoryview(data[:4]))


def test_the_limit_of_the_frame_size_is_exact() -> None:
    largest = struct.pack(">i", FRAME_BYTES_MAX)
    assert MACHINE.frame_size(memoryview(largest)) == FRAME_BYTES_MAX + 4
    with pytest.raises(ProtocolError):
        MACHINE.frame_size(memoryview(struct.pack(">i", FRAME_BYTES_MAX + 1)))


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_raise_only_protocol_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        kind = rng.choice(sorted(SERVED))
        data = struct.pack(">hh", *kind) + rng.randbytes(rng.randrange(100))
        frame = struct.pack(">i", len(data)) + data
        try:
            MACHINE.frame_size(memoryview(frame))
            MACHINE.decode(memoryview(frame))
        except ProtocolError:
            pass
        try:
            MACHINE.frame_size(memoryview(rng.randbytes(rng.randrange(20))))
        except ProtocolError:
            pass


def test_the_names_of_a_produce_are_counted_in_every_parser() -> None:
    machine = KafkaMachine(FRAME_BYTES_MAX)
    head = struct.pack(">hhih", 0, 0, 1, 0) + struct.pack(">hiih", 1, 0, 1, 3) + b"foo"
    for sets, named in ((1, 2), (2, 3)):
        body = (
            head
            + struct.pack(">i", sets)
            + b"".join(struct.pack(">ii", index, 0) for index in range(sets))
        )
        machine.decode(memoryview(struct.pack(">i", len(body)) + body))
        assert machine.entries == named


def test_answer_carries_the_correlation_id_as_it_came() -> None:
    reply = FindCoordinatorResponse(error_code=15, node_id=-1, port=-1)
    frame = b"".join(KafkaMachine(FRAME_BYTES_MAX).encode(-5, reply))
    assert frame == bytes.fromhex("00000010 fffffffb 000f ffffffff 0000 ffffffff")
