"""The tables, compared with frames of real clients and with literal bytes."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.decoding import (
    DECODERS,
    PRODUCE_KEY,
    RequestReader,
    decode_produce,
)
from braidlog.protocols.kafka.encoding import encode
from braidlog.protocols.kafka.fields import (
    ENTRIES_MAX,
    INT16,
    INT32,
    FieldReader,
    Writer,
)
from braidlog.protocols.kafka.machine import HEADER, KafkaMachine
from braidlog.protocols.kafka.messages import BY_ID_VERSION
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.tables import APIS, FLEXIBLE, is_served, ranges
from braidlog.protocols.kafka.wire import produce
from braidlog.protocols.kafka.wire.api_versions import ApiVersion, ApiVersionsResponse
from braidlog.protocols.kafka.wire.fetch import ForgottenTopic
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.golden import GoldenFrame, golden_frames

MACHINE = KafkaMachine(frame_bytes_max=104857600)
BODY_POS = 8  # of an answer, behind size and correlation id
ROWS = [
    row
    for row in golden_frames()
    # The tables do not read its requests.
    if is_served(row.api_key, row.version) and row.api_key != 18
]
ANSWERED = [row for row in ROWS if row.answer]


def written(value: Struct, version: int) -> bytes:
    out = Writer()
    write(out, value, version)
    return b"".join(map(bytes, out.parts()))


def body_of(row: GoldenFrame) -> FieldReader:
    """A reader behind the header of a recorded request."""
    reader = FieldReader(memoryview(row.request), 4)
    assert (reader.i16(), reader.i16()) == (row.api_key, row.version)
    reader.i32()
    reader.string()
    return reader


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_request_of_a_real_client_is_read_to_its_end(row: GoldenFrame) -> None:
    reader = body_of(row)
    start = reader.pos
    body = read(APIS[row.api_key].request, reader, row.version)
    assert not reader.left
    assert written(body, row.version) == row.request[start:]
    if row.api_key in DECODERS:
        assert m.short(body) == m.short(MACHINE.decode(memoryview(row.request)).body)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_request_cut_anywhere_raises_protocol_error(row: GoldenFrame) -> None:
    for end in range(4, len(row.request), 1 + len(row.request) // 300):
        with pytest.raises(ProtocolError):
            MACHINE.decode(memoryview(row.request[:end]))


@pytest.mark.parametrize("row", ANSWERED, ids=lambda row: row.label)
def test_an_answer_of_a_real_broker_round_trips(row: GoldenFrame) -> None:
    reader = FieldReader(memoryview(row.answer), BODY_POS)
    reply = read(APIS[row.api_key].reply, reader, row.version)
    assert not reader.left
    assert written(reply, row.version) == row.answer[BODY_POS:]


@pytest.mark.parametrize("seed", range(6))
def test_damaged_requests_raise_protocol_error_or_are_read(seed: int) -> None:
    rng = random.Random(seed)
    for row in ROWS:
        for _ in range(20):
            frame = bytearray(row.request)
            for _ in range(rng.randint(1, 4)):
                frame[rng.randrange(8, len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                MACHINE.decode(memoryview(frame))
            except ProtocolError:
                pass


def test_api_versions_in_the_fallback_layout() -> None:
    reply = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    assert written(reply, 0).hex(" ", 2) == "0023 0000 0001 0012 0000 0002"
    assert ("produce", next(version.min_version for version in ranges())) == ("produce", 0)


def test_fetch_v11_with_a_session_and_a_rack() -> None:
    text = (
        "ffffffff 000001f4 00000001 00100000 01 00000000 ffffffff 00000001 0003 666f6f 00000001"
        " 00000000 00000005 0000000000000007 ffffffffffffffff 00000400 00000000 0000"
    )
    data = memoryview(bytes.fromhex(text))
    reader = FieldReader(data)
    request = m.short(read(APIS[1].request, reader, 11))
    assert not reader.left
    target = m.FetchTarget(7, 1024, 5)
    assert request == m.FetchRequest(-1, 500, 1, {b"foo": {0: target}}, 1 << 20)
    reply = m.FetchReply({b"foo": {0: m.Fetched(0, 9, [b"abc"], 3, 2)}})
    frame = b"".join(encode(7, m.full(reply), 11))
    assert frame[BODY_POS:].hex() == (
        "00000000 0000 00000000 00000001 0003 666f6f 00000001 00000000 0000 0000000000000009"
        " 0000000000000009 0000000000000002 ffffffff ffffffff 00000003 616263"
    ).replace(" ", "")


def test_metadata_v1_distinguishes_no_topics_from_all() -> None:
    no_topics, all_topics = FieldReader(memoryview(bytes(4))), FieldReader(memoryview(b"\xff" * 4))
    assert read(APIS[3].request, no_topics, 1).topics == []
    assert read(APIS[3].request, all_topics, 1).topics is None


def test_entries_above_the_limit_are_refused_before_they_are_built() -> None:
    data = (ENTRIES_MAX + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="more than"):
        read(APIS[3].request, FieldReader(memoryview(data)), 1)


NAMES = [None, b"", b"topic"]


def by_partition(
    rng: random.Random, make: Callable[[], object], names: Sequence[bytes | None] = NAMES
) -> m.ByPartition[Any]:
    """Return values for some partitions of some topics."""
    return {
        name: {rng.randrange(-(2**31), 2**31): make() for _ in range(rng.randrange(1, 4))}
        for name in rng.sample(names, rng.randrange(4))
    }


def names_of(version: int) -> Sequence[bytes | None]:
    """Return names of topics for a version of Produce, or their ids."""
    if version < produce.ProduceRequest.FLEXIBLE:
        return NAMES
    if version < BY_ID_VERSION:
        return [b"", b"topic", bytes(127), bytes(130)]
    return [b"1" * 16, b"2" * 16, b"3" * 16]


def check_by_hand(version: int, request: m.ProduceRequest) -> None:
    """Compare the hand-written parser of Produce with the generated structures."""
    tags = b"\0" * ((PRODUCE_KEY, version) in FLEXIBLE)
    frame = HEADER.pack(PRODUCE_KEY, version, 7) + INT16.pack(-1) + tags
    frame += written(m.full(request), version)
    machine = KafkaMachine(1 << 20)
    decoded = machine.decode(memoryview(INT32.pack(len(frame)) + frame))
    assert decoded == m.Request(7, None, request, version)


@pytest.mark.parametrize("version", range(APIS[0].version_max + 1))
def test_the_hand_written_produce_parser_equals_its_table(version: int) -> None:
    rng = random.Random(version)
    names = names_of(version)
    for _ in range(50):
        sets = by_partition(
            rng,
            lambda: memoryview(rng.randbytes(rng.randrange(rng.choice((30, 300, 40_000))))),
            names,
        )
        request = m.ProduceRequest(rng.randrange(-2, 3), rng.randrange(9999), sets)
        request.transactional_id = rng.choice(NAMES) if version >= 3 else None
        check_by_hand(version, request)


def test_partitions_that_a_fetch_session_forgets_are_skipped() -> None:
    topic = b"t" * 16
    request = m.full(m.FetchRequest(-1, 1, 2, {topic: {0: m.FetchTarget(3, 4)}}, 5))
    request.forgotten_topics_data = [
        ForgottenTopic(topic=b"old", topic_id=topic, partitions=[1, 2])
    ]
    request.rack_id = b"r"
    for version in range(7, APIS[1].version_max + 1):
        reader = FieldReader(memoryview(written(request, version)))
        assert m.short(read(APIS[1].request, reader, version)) == m.short(request)
        assert not reader.left


@pytest.mark.parametrize("version", [0, 7, 9, 13])
def test_a_topic_without_partitions_is_left_out_of_produce(version: int) -> None:
    name, topic_id, other_id = b"t", b"t" * 16, b"e" * 16
    key = topic_id if version >= BY_ID_VERSION else name
    sets = [produce.PartitionProduceData(records=b"")]
    topics = [
        produce.TopicProduceData(name=b"empty", topic_id=other_id),
        produce.TopicProduceData(name=name, topic_id=topic_id, partition_data=sets),
    ]
    data = memoryview(written(produce.ProduceRequest(topic_data=topics), version))
    assert list(decode_produce(RequestReader(data), version).topics) == [key]
