"""Commands about missing objects, which the newest dialects answer differently."""

import struct

import pytest

from tests.protocols.iggy.description import named
from tests.protocols.iggy.vtalk import CREATE_TOPIC, STREAM, TOPIC

NOWHERE = b"\x02\x07nowhere"
GROUP = b"\x02\x03grp"
GET_TOPICS, GET_GROUP, GET_GROUPS = 301, 600, 601
DELETE_SEGMENTS, STORE_OFFSET, DELETE_OFFSET = 138, 161, 162
PARTITION_0 = b"\x01" + bytes(4)
NEW_TOPIC = STREAM + struct.pack("<I", 1) + TOPIC[1:]


@pytest.fixture
async def client(client):
    """Return the client, with topic `tp` in its stream."""
    assert await client.status(CREATE_TOPIC, NEW_TOPIC) == 0
    return client


@pytest.mark.parametrize("code", [GET_GROUP, GET_GROUPS])
@pytest.mark.parametrize(("place", "number"), [(NOWHERE + TOPIC, 1009), (STREAM + NOWHERE, 2010)])
async def test_in_v_groups_of_a_missing_stream_or_topic_are_an_error(client, code, place, number):
    assert await client.query(code, place + (GROUP if code == GET_GROUP else b"")) == (number, b"")


async def test_in_v_a_missing_group_is_an_empty_answer(client):
    assert await client.query(GET_GROUP, STREAM + TOPIC + GROUP) == (0, b"")


async def test_in_v_topics_of_a_missing_stream_are_none(client):
    assert await client.query(GET_TOPICS, NOWHERE) == (0, bytes(4))


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("0.6.203", {"status": 1010}),
        ("0.7.0", {"status": 1010}),
        ("0.8.0", {"status": 1010}),
        ("0.10.0", {"status": 0}),
    ],
)
async def test_topics_of_a_missing_stream_are_none_since_d5(connect, version, answer):
    talk = await connect()
    assert await talk.login(version=version) == 0
    assert await talk.ask(GET_TOPICS, stream=named("nowhere")) == answer


@pytest.mark.parametrize("operation", [STORE_OFFSET, DELETE_OFFSET])
@pytest.mark.parametrize("place", [STREAM + NOWHERE, NOWHERE + TOPIC])
@pytest.mark.parametrize("reader", [b"\x01\x02\x01c", b"\x02" + GROUP])
async def test_in_v_an_offset_of_a_missing_object_gets_20(client, operation, place, reader):
    tail = bytes(8) if operation == STORE_OFFSET else b""
    body = reader + place + PARTITION_0 + tail + b"\x01"
    assert await client.perform(operation, body) == (20, b"")


async def test_in_v_an_offset_of_a_missing_group_gets_20(client):
    body = b"\x02" + GROUP + STREAM + TOPIC + PARTITION_0 + b"\x01"
    assert await client.perform(DELETE_OFFSET, body) == (20, b"")


async def test_in_v_a_refused_segment_deletion_has_its_error_in_the_header(client):
    numbers = struct.pack("<II", 0, 1)
    assert await client.perform(DELETE_SEGMENTS, NOWHERE + TOPIC + numbers) == (1009, b"")
    assert await client.perform(DELETE_SEGMENTS, STREAM + NOWHERE + numbers) == (2010, b"")
    absent_partition = struct.pack("<II", 7, 1)
    assert await client.perform(DELETE_SEGMENTS, STREAM + TOPIC + absent_partition) == (3007, b"")
    assert await client.perform(DELETE_SEGMENTS, STREAM + TOPIC + numbers) == (0, b"")
