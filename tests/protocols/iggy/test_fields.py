"""Pieces of the classic layouts: a value and its bytes, and invalid bytes."""

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy.messages import (
    ConsumerKind,
    ConsumerRef,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from braidlog.protocols.reader import LittleEndianReader


def read(piece: f.Readable, data: str) -> object:
    reader = LittleEndianReader(memoryview(bytes.fromhex(data)))
    value = piece.read(reader)
    assert reader.left == 0
    return value


@pytest.mark.parametrize(
    ("piece", "data", "value"),
    [
        (f.IDENTIFIER_FROM_1, "0104 01000000", 1),
        (f.IDENTIFIER_FROM_1, "0104 00000000", 0),
        (f.IDENTIFIER_FROM_1, "0206 6f7264657273", "orders"),
        (f.IDENTIFIER_FROM_1, "0202 c5bc", "ż"),
        (f.IDENTIFIER_FROM_0, "0104 00000000", 1),
        (f.IDENTIFIER_FROM_0, "0104 ffffffff", 1 << 32),
        (f.IDENTIFIER_FROM_0, "0206 6f7264657273", "orders"),
        (f.GIVEN_IDENTIFIER, "0104 00000000", 0),
        (f.CONSUMER_FROM_1, "01 0104 07000000", ConsumerRef(ConsumerKind.CONSUMER, 7)),
        (f.CONSUMER_FROM_1, "02 0203 677270", ConsumerRef(ConsumerKind.GROUP, "grp")),
        (f.CONSUMER_FROM_1, "02 0104 07000000", ConsumerRef(ConsumerKind.GROUP, 7)),
        (f.CONSUMER_FROM_0, "01 0104 07000000", ConsumerRef(ConsumerKind.CONSUMER, 7)),
        (f.CONSUMER_FROM_0, "02 0104 07000000", ConsumerRef(ConsumerKind.GROUP, 8)),
        (f.PartitionOrZero(), "00000000", None),
        (f.PartitionOrZero(), "01000000", 0),
        (f.PartitioningField(1), "0100", Partitioning(PartitioningKind.BALANCED)),
        (f.PartitioningField(1), "0204 03000000", Partitioning(PartitioningKind.PARTITION, 2)),
        (f.PartitioningField(1), "0204 00000000", Partitioning(PartitioningKind.PARTITION, -1)),
        (f.PartitioningField(1), "0302 00ff", Partitioning(PartitioningKind.KEY, key=b"\x00\xff")),
        (f.STRATEGY_FIELD, "02 0100000000000000", PollingStrategy(PollingKind.TIMESTAMP, 1)),
        (f.ChosenId(zero_picks=True), "00000000", None),
        (f.ChosenId(zero_picks=True), "09000000", 9),
        (f.FLAG, "01", True),
        (f.FLAG, "00", False),
        (f.FLAG, "07", False),
        (f.STR32, "00000000", ""),
    ],
)
def test_piece_of_a_request(piece, data, value):
    assert read(piece, data) == value


@pytest.mark.parametrize(
    ("piece", "data"),
    [
        (f.IDENTIFIER_FROM_1, "0103 010000"),
        (f.IDENTIFIER_FROM_1, "0105 0100000000"),
        (f.IDENTIFIER_FROM_1, "0200"),
        (f.IDENTIFIER_FROM_1, "0304 01000000"),
        (f.IDENTIFIER_FROM_1, "0202 fffe"),
        (f.IDENTIFIER_FROM_1, "0204 61"),
        (f.CONSUMER_FROM_1, "03 0104 01000000"),
        (f.CONSUMER_FROM_1, "01 01000000"),
        (f.PartitioningField(1), "0203 010000"),
        (f.PartitioningField(1), "0300"),
        (f.PartitioningField(1), "0400"),
        (f.STRATEGY_FIELD, "06 0000000000000000"),
        (f.STRATEGY_FIELD, "00 0000000000000000"),
        (f.ChosenId(zero_picks=False), "00000000"),
        (f.NAME8, "00"),
        (f.NAME8, "02 fffe"),
        (f.STR8, "05 6162"),
    ],
)
def test_invalid_bytes_of_a_piece(piece, data):
    with pytest.raises(ProtocolError):
        read(piece, data)


@pytest.mark.parametrize(
    ("piece", "value", "data"),
    [
        (f.U8_FIELD, 255, "ff"),
        (f.U32_FIELD, 1, "01000000"),
        (f.U64_FIELD, (1 << 64) - 1, "ffffffffffffffff"),
        (f.F32_FIELD, 0.5, "0000003f"),
        (f.STR8, "ż", "02c5bc"),
        (f.STR32, "ab", "020000006162"),
        (f.NUMBER_FROM_1, 7, "07000000"),
        (f.NUMBER_FROM_0, 7, "06000000"),
        (f.PartitionNumber(1), 0, "01000000"),
        (f.PartitionNumber(0), 0, "00000000"),
        (f.PartitionNumbers(1), [0, 2], "02000000 01000000 03000000"),
        (f.PartitionNumbers(1), [], "00000000"),
    ],
)
def test_piece_of_a_reply(piece, value, data):
    assert piece.write(value) == bytes.fromhex(data)
