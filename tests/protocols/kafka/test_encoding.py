"""Replies to bytes: typed values compared with recorded frames and with construct's description."""

from collections.abc import Mapping, Sequence

import pytest

from braidlog.protocols.kafka.encoding import encode
from braidlog.protocols.kafka.fields import PIECE_BYTES_MIN
from braidlog.protocols.kafka.messages import BY_ID_VERSION, StoredSet, StoredSets
from braidlog.protocols.kafka.wire.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from braidlog.storage.formats.quick import SPEEDUPS
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.golden import golden_answers, golden_frames
from tests.protocols.kafka.layouts import REQUESTS, parse_reply

HEX = set("0123456789abcdef")
ANSWERS = [
    pytest.param(row.api_key, row.answer, id=f"frames {row.label}")
    for row in golden_frames()
    if row.answer and (row.api_key, row.version) in REQUESTS
] + [
    pytest.param(row.api_key, bytes.fromhex(row.answer), id=f"answers {row.label}")
    for row in golden_answers()
    if row.answer and set(row.answer) <= HEX and row.api_key not in (11, 12)
]
FOO = b"foo"
US = m.BrokerAddress(1, b"127.0.0.1", 43233)

PAIRS = {
    "produce": (
        0,
        "0000001f 00000001 00000001 0003666f6f 00000001 00000000 0000 0000000000000003",
        m.ProduceReply({FOO: {0: m.Produced(0, 3)}}),
    ),
    "fetch, one error and one set": (
        1,
        "00000038 00000001 00000001 0003666f6f 00000002"
        " 00000000 0001 ffffffffffffffff 00000000"
        " 00000001 0000 0000000000000009 00000003 616263",
        m.FetchReply({FOO: {0: m.Fetched(1, -1, []), 1: m.Fetched(0, 9, [b"abc"], 3)}}),
    ),
    "offsets": (
        2,
        "0000002b 00000001 00000001 0003666f6f 00000001 00000000 0000 00000002"
        " 000000000000000b 0000000000000000",
        m.OffsetsReply({FOO: {0: m.OffsetsFound(0, [11, 0])}}),
    ),
    "metadata": (
        3,
        "00000044 00000001 00000001 00000001 0009 3132372e302e302e31 0000a8e1 00000001"
        " 0000 0003666f6f 00000001 0000 00000000 00000001 00000001 00000001 00000001 00000001",
        m.MetadataReply([US], [m.TopicMetadata(0, FOO, [m.PartitionMetadata(0, 0, 1, [1], [1])])]),
    ),
    "commit": (
        8,
        "0000001d 00000001 00000001 0003666f6f 00000002 00000000 0000 00000001 000c",
        m.OffsetCommitReply({FOO: {0: 0, 1: 12}}),
    ),
    "offset fetch, null and empty metadata": (
        9,
        "00000031 00000001 00000001 0003666f6f 00000002"
        " 00000000 ffffffffffffffff ffff 0003"
        " 00000001 0000000000000016 0000 0000",
        m.OffsetFetchReply(
            {FOO: {0: m.CommittedOffset(-1, None, 3), 1: m.CommittedOffset(22, b"", 0)}}
        ),
    ),
    "consumer metadata": (
        10,
        "00000019 00000001 0000 00000001 0009 3132372e302e302e31 0000a8e1",
        m.ConsumerMetadataReply(0, US),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_literal_frame_equals_its_typed_reply(name: str) -> None:
    api_key, text, reply = PAIRS[name]
    frame = bytes.fromhex(text)
    assert b"".join(encode(1, m.handled(reply))) == frame
    assert parse_reply(api_key, frame) == (1, reply)


@pytest.mark.parametrize(("api_key", "frame"), ANSWERS)
def test_recorded_answer_survives_both_descriptions(api_key: int, frame: bytes) -> None:
    correlation_id, reply = parse_reply(api_key, frame)
    assert b"".join(encode(correlation_id, m.handled(reply))) == frame


def test_large_fetch_pieces_are_not_copied_and_small_pieces_are_joined() -> None:
    large = memoryview(bytearray(PIECE_BYTES_MIN))
    reply = m.FetchReply(
        {FOO: {0: m.Fetched(0, 9, [b"a", large, b"b"], PIECE_BYTES_MIN + 2), 1: m.Fetched(0, 9)}}
    )
    parts = encode(7, m.full(reply))
    assert len(parts) == 4  # size and correlation id, fields and "a", the large piece, the rest
    assert parts[2] is large
    joined = b"".join(parts)
    assert parse_reply(1, joined)[0] == 7
    assert len(joined) == 4 + int.from_bytes(joined[:4], "big")


def test_a_reply_without_large_pieces_is_a_single_part() -> None:
    reply = m.FetchReply({FOO: {0: m.Fetched(0, 9, [b"abc"], 3)}})
    assert len(encode(1, m.full(reply))) == 1
    assert len(encode(1, m.full(m.FetchReply({})))) == 1


needs_extension = pytest.mark.skipif(SPEEDUPS is None, reason="needs the extension")
STORED: Sequence[Mapping[bytes, list[StoredSet]]] = (
    {b"foo": [(0, 0, 0)]},
    {b"a" * 126: [(5, 2**62, 7)], b"a" * 127: [(2**31 - 1, 1, 2**40)], b"\xff": [(0, 3, 3)] * 126},
    {b"a" * 249: [(index, index * 1000, 5) for index in range(127)]},
    {b"%d" % topic: [(index, 0, 0) for index in range(200)] for topic in range(130)},
)


@needs_extension
@pytest.mark.parametrize("version", range(ProduceRequest.VERSIONS[1] + 1))
@pytest.mark.parametrize("stored", STORED)
def test_stored_sets_are_encoded_as_the_generated_structures(
    version: int, stored: Mapping[bytes, list[StoredSet]]
) -> None:
    topics = stored
    if version >= BY_ID_VERSION:
        topics = {name.rjust(16, b".")[:16]: sets for name, sets in stored.items()}
    responses = [
        TopicProduceResponse(
            name=key,
            topic_id=key,
            partition_responses=[
                PartitionProduceResponse(index=index, base_offset=base, log_start_offset=start)
                for index, base, start in sets
            ],
        )
        for key, sets in topics.items()
    ]
    expected = encode(-7, ProduceResponse(responses=responses), version)
    assert encode(-7, StoredSets(topics), version) == [b"".join(map(bytes, expected))]


@needs_extension
@pytest.mark.parametrize(
    "topics",
    [{"foo": []}, {b"foo": ()}, {b"foo": [3]}, {b"foo": [()]}, {b"foo": [("x", 0, 0)]}, []],
)
def test_the_extension_refuses_other_objects(topics: object) -> None:
    assert SPEEDUPS is not None
    with pytest.raises((TypeError, IndexError, SystemError)):
        SPEEDUPS.kafka_produced(3, 1, topics)
