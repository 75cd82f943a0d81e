"""Requests from bytes: typed values compared with literal frames and with
construct's description.
"""

import random
import struct
from dataclasses import replace

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka import decoding
from braidlog.protocols.kafka.codec import read
from braidlog.protocols.kafka.decoding import DECODERS, RequestReader, produce_at_once
from braidlog.protocols.kafka.fields import ENTRIES_MAX
from braidlog.protocols.kafka.machine import REQUEST_BYTES_MIN, KafkaMachine
from braidlog.protocols.kafka.tables import APIS
from braidlog.protocols.kafka.wire.produce import PartitionProduceData, TopicProduceData
from braidlog.protocols.kafka.wire.produce import ProduceRequest as WireProduceRequest
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import table_request
from tests.protocols.kafka.golden import GoldenFrame, golden_frames
from tests.protocols.kafka.layouts import REQUESTS, build_request
from tests.storage.formats.speedup_samples import mutated

MACHINE = KafkaMachine(frame_bytes_max=104857600)
SERVED = [row for row in golden_frames() if (row.api_key, row.version) in REQUESTS]
FOO = b"foo"

# Kafka 0.8.2 protocol guide, a literal frame for each api and version.
PAIRS = {
    "metadata of one topic": (
        3,
        0,
        "00000016 0003 0000 00000001 0003636964 00000001 0003666f6f",
        m.Request(1, b"cid", m.MetadataRequest([FOO])),
    ),
    "produce without a client id": (
        0,
        0,
        "0000002a 0000 0000 fffffffb ffff ffff 00007530 00000001 0003666f6f 00000001"
        " 00000002 00000005 6162636465",
        m.Request(-5, None, m.ProduceRequest(-1, 30000, {FOO: {2: memoryview(b"abcde")}})),
    ),
    "fetch with an empty client id": (
        1,
        0,
        "00000033 0001 0000 00000002 0000 ffffffff 000001f4 00000001 00000001 0003666f6f"
        " 00000001 00000000 0000000000000007 00100000",
        m.Request(2, b"", m.FetchRequest(-1, 500, 1, {FOO: {0: m.FetchTarget(7, 1 << 20)}})),
    ),
    "offsets, the earliest": (
        2,
        0,
        "0000002e 0002 0000 00000001 0003636964 ffffffff 00000001 0003666f6f 00000001"
        " 00000000 fffffffffffffffe 00000001",
        m.Request(1, b"cid", m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(-2, 1)}})),
    ),
    "commit v0 with null metadata": (
        8,
        0,
        "0000002c 0008 0000 00000001 0003636964 00026731 00000001 0003666f6f 00000001"
        " 00000000 0000000000000015 ffff",
        m.Request(
            1,
            b"cid",
            m.OffsetCommitRequest(0, b"g1", -1, b"", {FOO: {0: m.CommitTarget(21, None, None)}}),
        ),
    ),
    "commit v1, one with a time": (
        8,
        1,
        "00000052 0008 0001 00000002 0003636964 00026731 00000005 000178 00000001 0003666f6f"
        " 00000002 00000000 0000000000000015 ffffffffffffffff 00016d"
        " 00000001 0000000000000003 0000000000000064 0000",
        m.Request(
            2,
            b"cid",
            m.OffsetCommitRequest(
                1,
                b"g1",
                5,
                b"x",
                {FOO: {0: m.CommitTarget(21, b"m", None), 1: m.CommitTarget(3, b"", 100)}},
            ),
        ),
    ),
    "offset fetch v0": (
        9,
        0,
        "00000022 0009 0000 00000001 0003636964 00026731 00000001 0003666f6f 00000001 00000004",
        m.Request(1, b"cid", m.OffsetFetchRequest(0, b"g1", {FOO: [4]})),
    ),
    "offset fetch v1, null group": (
        9,
        1,
        "00000020 0009 0001 00000001 0003636964 ffff 00000001 0003666f6f 00000001 00000004",
        m.Request(1, b"cid", m.OffsetFetchRequest(1, None, {FOO: [4]})),
    ),
    "consumer metadata": (
        10,
        0,
        "00000011 000a 0000 00000001 0003636964 00026731",
        m.Request(1, b"cid", m.ConsumerMetadataRequest(b"g1")),
    ),
}


def decode(frame: bytes) -> m.Request:
    request = MACHINE.decode(memoryview(frame))
    request.body = m.short(request.body, request.version)
    return request


def body(api_key: int, data: bytes) -> m.RequestBody:
    reader = RequestReader(memoryview(data))
    decoder = DECODERS.get(api_key)
    return m.short(decoder(reader, 0) if decoder else read(APIS[api_key].request, reader, 0))


@pytest.mark.parametrize("name", PAIRS)
def test_a_literal_frame_equals_its_typed_request(name: str) -> None:
    api_key, version, text, request = PAIRS[name]
    request = replace(request, version=version)
    frame = bytes.fromhex(text)
    assert decode(frame) == request
    assert build_request(api_key, version, request) == frame


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row.label)
def test_frame_of_a_real_client_agrees_with_the_second_description(row: GoldenFrame) -> None:
    assert build_request(row.api_key, row.version, decode(row.request)) == row.request


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row.label)
def test_frame_cut_anywhere_raises_protocol_error(row: GoldenFrame) -> None:
    for end in range(4, len(row.request)):
        with pytest.raises(ProtocolError):
            decode(row.request[:end])


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row.label)
def test_trailing_bytes_are_ignored(row: GoldenFrame) -> None:
    assert decode(row.request + b"\xff" * 7) == decode(row.request)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_frames_raise_protocol_error_or_decode(seed: int) -> None:
    rng = random.Random(seed)
    for row in SERVED:
        for _ in range(20):
            frame = bytearray(row.request)
            for _ in range(rng.randint(1, 4)):
                frame[rng.randrange(12, len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                decode(bytes(frame))
            except ProtocolError:
                pass


def produce_frame(chance: random.Random, version: int) -> bytes:
    """Return a Produce of any version, which names some topics or partitions twice."""
    partitions = [
        PartitionProduceData(
            index=chance.randrange(5), records=[chance.randbytes(chance.randrange(200))]
        )
        for _ in range(chance.randrange(1, 4))
    ]
    topics = [
        TopicProduceData(
            name=chance.choice((b"foo", b"bar", b"n" * 130)),
            topic_id=chance.choice((b"1" * 16, b"2" * 16)),
            partition_data=partitions[at:],
        )
        for at in range(chance.randrange(1, 3))
    ]
    request = WireProduceRequest(
        transactional_id=b"t" if chance.random() < 0.1 and version >= 3 else None,
        acks=chance.choice((-1, 1)),
        timeout_ms=1000,
        topic_data=topics,
    )
    return table_request(0, version, chance.randrange(1000), request)


@pytest.mark.skipif(
    decoding.SPEEDUPS is None,
    reason="without the extension Python reads every request, as the other tests here check",
)
@pytest.mark.parametrize("version", range(14))
def test_the_extension_reads_a_produce_as_python_does(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(version)
    read_at_once = 0
    for _ in range(100):
        frame = memoryview(mutated(chance, produce_frame(chance, version)))
        if len(frame) < REQUEST_BYTES_MIN:
            continue
        entries_max = chance.choice((ENTRIES_MAX, 4))
        at_once = produce_at_once(frame, entries_max)
        if at_once is not None:
            read_at_once += 1
            with monkeypatch.context() as patched:
                patched.setattr(decoding, "SPEEDUPS", None)
                request = MACHINE.decode(frame, inline_max=entries_max)
            assert at_once == (request, MACHINE.entries)
    assert read_at_once > 20


def test_a_message_set_is_a_view_that_can_be_stamped_in_place() -> None:
    frame = bytearray(bytes.fromhex(PAIRS["produce without a client id"][2]))
    request = MACHINE.decode(memoryview(frame)).body
    assert isinstance(request, m.ProduceRequest)
    request.topics[FOO][2][0] = ord("X")
    assert frame.endswith(b"Xbcde")


def targets(*topics: tuple[bytes, list[int]]) -> bytes:
    """Return an OffsetFetch body without its group."""
    out = struct.pack(">i", len(topics))
    for name, partitions in topics:
        out += struct.pack(">h", len(name)) + name
        out += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out


def test_a_partition_named_twice_appears_once() -> None:
    data = targets((b"a", [3, 1, 3]), (b"b", [0]), (b"a", [1, 2]))
    request = body(9, b"\x00\x01g" + data)
    assert request == m.OffsetFetchRequest(0, b"g", {b"a": [3, 1, 2], b"b": [0]})


def test_of_a_partition_named_twice_the_last_entry_wins() -> None:
    entry = struct.pack(">iqi", 0, 5, 100)
    two = struct.pack(">iqi", 0, 6, 200)
    data = struct.pack(">iiii", -1, 0, 0, 1) + b"\x00\x01a" + struct.pack(">i", 2) + entry + two
    request = body(1, data)
    assert isinstance(request, m.FetchRequest)
    assert request.topics == {b"a": {0: m.FetchTarget(6, 200)}}


def test_topic_without_partitions_is_left_out() -> None:
    assert body(9, b"\x00\x01g" + targets((b"a", []), (b"b", [0]))) == m.OffsetFetchRequest(
        0, b"g", {b"b": [0]}
    )


@pytest.mark.parametrize("api_key", [0, 1, 2, 8, 9])
def test_negative_count_is_an_empty_array(api_key: int) -> None:
    head = {0: 6, 1: 12, 2: 4, 8: 2, 9: 2}[api_key]
    request = body(api_key, bytes(head) + b"\xff\xff\xff\xff")
    assert not isinstance(request, m.MetadataRequest | m.ConsumerMetadataRequest)
    assert request.topics == {}


def test_negative_count_of_metadata_ends_the_connection() -> None:
    with pytest.raises(ProtocolError):
        body(3, b"\xff\xff\xff\xff")


@pytest.mark.parametrize("length", [b"\xff\xff", b"\xff\xfe", b"\x80\x00"])
def test_any_negative_string_length_is_null(length: bytes) -> None:
    assert body(10, length) == m.ConsumerMetadataRequest(None)


@pytest.mark.parametrize("size", [-1, 6, 2**31 - 1])
def test_message_set_size_outside_the_frame_ends_the_connection(size: int) -> None:
    data = struct.pack(">hii", 1, 0, 1) + b"\x00\x01a" + struct.pack(">iii", 1, 0, size) + b"abcde"
    with pytest.raises(ProtocolError):
        body(0, data)


def test_entries_above_the_limit_are_refused_before_they_are_built() -> None:
    with pytest.raises(ProtocolError, match="more than"):
        body(9, b"\x00\x01g" + struct.pack(">i", ENTRIES_MAX + 1))
    with pytest.raises(ProtocolError):
        body(3, struct.pack(">i", ENTRIES_MAX + 1))
    split = struct.pack(">i", 1) + b"\x00\x01a" + struct.pack(">i", ENTRIES_MAX)
    with pytest.raises(ProtocolError, match="more than"):
        body(9, b"\x00\x01g" + split)


def zookeeper_frame(*, session=0, last_zxid=0, flag=b""):
    """Return a ConnectRequest of ZooKeeper's Java client."""
    body = struct.pack(">iqiqi", 0, last_zxid, 30_000, session, 16) + bytes(16) + flag
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("flag", [b"", b"\x00"], ids=["3.3", "3.4"])
def test_a_zookeeper_client_is_recognised(flag):
    with pytest.raises(ProtocolError, match="a ZooKeeper session") as caught:
        KafkaMachine(1 << 20).decode(memoryview(zookeeper_frame(flag=flag)))
    assert "zookeeper.connect" in caught.value.hint


def test_a_produce_without_topics_is_no_zookeeper_frame():
    frame = struct.pack(">ihhih", 20, 0, 0, 0, 0) + struct.pack(">hii", 0, 30_000, 0)
    request = KafkaMachine(1 << 20).decode(memoryview(frame))
    assert request.body.topics == {}
