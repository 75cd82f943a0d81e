"""The tables against frames of real clients, and against literal bytes."""

import random

import pytest

from braidlog.broker.server.endings import ProtocolError
from braidlog.protocols.kafka import messages as m
from braidlog.protocols.kafka.decoding import DECODERS
from braidlog.protocols.kafka.encoding import encode_with
from braidlog.protocols.kafka.fields import ENTRIES_MAX, INT16, INT32, FieldReader, Writer
from braidlog.protocols.kafka.machine import HEADER, KafkaMachine
from braidlog.protocols.kafka.tables import APIS, PRODUCE, is_served, ranges
from braidlog.protocols.kafka.wire.api_versions import ApiVersion, ApiVersionsResponse
from tests.protocols.kafka.golden import GoldenFrame, golden_frames

MACHINE = KafkaMachine(frame_bytes_max=104857600)
BODY_POS = 8  # of an answer, behind its size and correlation id
ROWS = [
    row
    for row in golden_frames()
    if is_served(row.api_key, row.version) and row.api_key != 18  # Its requests are not read.
]
LATER = [row for row in ROWS if (row.api_key, row.version) not in DECODERS]
ANSWERED = [row for row in ROWS if row.answer]


def written(api_key: int, version: int, reply: object) -> bytes:
    out = Writer()
    APIS[api_key].reply.write(out, reply, version)
    return b"".join(map(bytes, out.parts()))


def read_request(row: GoldenFrame, frame: bytes) -> object:
    reader = FieldReader(memoryview(frame), 4)
    assert (reader.i16(), reader.i16()) == (row.api_key, row.version)
    reader.i32()
    reader.string()
    body = APIS[row.api_key].request.read(reader, row.version)
    assert not reader.left
    return body


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_request_of_a_real_client_is_read_to_its_end(row: GoldenFrame) -> None:
    body = read_request(row, row.request)
    by_hand = DECODERS.get((row.api_key, row.version))
    if by_hand is not None:
        decoded = MACHINE.decode(memoryview(row.request)).body
        assert repr(normal(body)) == repr(normal(decoded))


def normal(body: object) -> object:
    if isinstance(body, m.OffsetCommitRequest):
        times = [one.time_ms for part in body.topics.values() for one in part.values()]
        return body.group, body.generation, body.topics.keys(), [time or -1 for time in times]
    if isinstance(body, m.ProduceRequest):
        return body.acks, [bytes(one) for part in body.topics.values() for one in part.values()]
    if isinstance(body, m.OffsetFetchRequest):
        return body.group, {name: list(part) for name, part in (body.topics or {}).items()}
    return body


@pytest.mark.parametrize("row", LATER, ids=lambda row: row.label)
def test_request_cut_anywhere_raises_protocol_error(row: GoldenFrame) -> None:
    for end in range(4, len(row.request), 1 + len(row.request) // 300):
        with pytest.raises(ProtocolError):
            MACHINE.decode(memoryview(row.request[:end]))


@pytest.mark.parametrize("row", ANSWERED, ids=lambda row: row.label)
def test_answer_that_a_real_client_took_is_written_again_as_it_was(row: GoldenFrame) -> None:
    reader = FieldReader(memoryview(row.answer), BODY_POS)
    reply = APIS[row.api_key].reply.read(reader, row.version)
    assert not reader.left
    if row.api_key == 1:
        for partitions in reply.topics.values():
            for one in partitions.values():
                one.parts = [one.parts]
    if row.api_key != 9 or row.version < 5:
        assert len(written(row.api_key, row.version, reply)) == len(row.answer) - BODY_POS


@pytest.mark.parametrize("seed", range(6))
def test_damaged_requests_raise_protocol_error_or_are_read(seed: int) -> None:
    rng = random.Random(seed)
    for row in LATER:
        for _ in range(20):
            frame = bytearray(row.request)
            for _ in range(rng.randint(1, 4)):
                frame[rng.randrange(8, len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                MACHINE.decode(memoryview(frame))
            except ProtocolError:
                pass


def test_api_versions_in_the_layout_that_every_client_falls_back_to() -> None:
    reply = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    assert written(18, 0, reply).hex(" ", 2) == "0023 0000 0001 0012 0000 0002"
    assert ("produce", next(one.min_version for one in ranges())) == ("produce", 0)


def test_fetch_v11_with_a_session_and_a_rack() -> None:
    text = (
        "ffffffff 000001f4 00000001 00100000 01 00000000 ffffffff 00000001 0003 666f6f 00000001"
        " 00000000 00000005 0000000000000007 ffffffffffffffff 00000400 00000000 0000"
    )
    reader = FieldReader(memoryview(bytes.fromhex(text)))
    request = APIS[1].request.read(reader, 11)
    assert not reader.left
    target = m.FetchTarget(7, 1024)
    assert request == m.FetchRequest(-1, 500, 1, {b"foo": {0: target}}, 1 << 20)
    fetched = m.Fetched(0, 9, [b"abc"], 3, 2)
    assert written(1, 11, m.FetchReply({b"foo": {0: fetched}})).hex() == (
        "00000000 0000 00000000 00000001 0003 666f6f 00000001 00000000 0000 0000000000000009"
        " 0000000000000009 0000000000000002 ffffffff ffffffff 00000003 616263"
    ).replace(" ", "")


def test_metadata_v1_tells_no_topics_from_all() -> None:
    read = APIS[3].request.read
    assert read(FieldReader(memoryview(bytes(4))), 1).topics == []
    assert read(FieldReader(memoryview(b"\xff" * 4)), 1).topics is None


def test_more_entries_than_the_limit_are_refused_before_they_are_built() -> None:
    data = (ENTRIES_MAX + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="more than"):
        APIS[3].request.read(FieldReader(memoryview(data)), 1)


@pytest.mark.parametrize("version", range(PRODUCE.version_max + 1))
def test_produce_by_hand_is_as_its_table_says(version: int) -> None:
    rng = random.Random(version)
    for _ in range(50):
        names = [None, b"", rng.randbytes(rng.randrange(20))]
        sets = {
            name: {
                rng.randrange(-(2**31), 2**31): memoryview(rng.randbytes(rng.randrange(30)))
                for _ in range(rng.randrange(1, 4))
            }
            for name in rng.sample(names, rng.randrange(4))
        }
        request = m.ProduceRequest(rng.randrange(-2, 3), rng.randrange(9999), sets)
        request.transactional_id = rng.choice(names) if version >= 3 else None
        out = Writer()
        PRODUCE.request.write(out, request, version)
        frame = HEADER.pack(0, version, 7) + INT16.pack(-1) + b"".join(out.parts())
        machine = KafkaMachine(1 << 20)
        decoded = machine.decode(memoryview(INT32.pack(len(frame)) + frame))
        assert decoded == m.Request(7, None, request, version)
        reply = m.ProduceReply(
            {
                name: {
                    index: m.Produced(
                        rng.randrange(80), rng.randrange(2**40), -1, 3, rng.choice(names)
                    )
                    for index in found
                }
                for name, found in sets.items()
            }
        )
        expected = b"".join(encode_with(PRODUCE.reply, 7, reply, version))
        assert b"".join(machine.encode(7, reply)) == expected
