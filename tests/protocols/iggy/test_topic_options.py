"""Options of topics, as clients of the newest dialect set them."""

import struct

import pytest

from braidlog.storage.metadata.names import TopicName
from tests.protocols.iggy import description_v
from tests.protocols.iggy.vtalk import CREATE_TOPIC, STREAM, TOPIC, UPDATE_TOPIC

UPDATE_STREAM = 129
STRING, BOOL, UINT64 = 2, 3, 12
DAY_US = 86_400_000_000


def u64(number: int) -> tuple[int, bytes]:
    """Return a number option."""
    return UINT64, struct.pack("<Q", number)


def settings(broker) -> dict:
    """Return the topic's settings, without the stored form of the options."""
    meta = broker.catalogue.state.topic(TopicName("public", "st", "tp"))
    return {key: value for key, value in meta.settings.items() if key != "iggy_options"}


GIVEN = {
    "compression_algorithm": (STRING, b"gzip"),
    "durability": (STRING, b"persisted"),
    "max_topic_size": u64(1 << 21),
    "message_expiry": u64(DAY_US),
    "segment_size": u64(1 << 20),
}
OF_GIVEN = {
    "durability": "synced",
    "iggy_compression": 2,
    "retention_bytes": 1 << 20,
    "retention_ms": DAY_US // 1000,
    "segment_bytes": 1 << 20,
}


@pytest.mark.parametrize(
    ("key", "value", "setting"),
    [
        ("compression_algorithm", (STRING, b"none"), "iggy_compression"),
        ("max_topic_size", u64(0), "retention_bytes"),
        ("message_expiry", u64(0), "retention_ms"),
    ],
)
async def test_an_option_goes_back_to_its_default_and_others_stay(
    broker, client, key, value, setting
):
    body = STREAM + struct.pack("<I", 2) + TOPIC[1:]
    assert await client.status(CREATE_TOPIC, body, GIVEN) == 0
    assert settings(broker) == OF_GIVEN
    assert await client.status(UPDATE_TOPIC, STREAM + TOPIC + TOPIC[1:], {}) == 0
    assert settings(broker) == OF_GIVEN
    assert await client.status(UPDATE_TOPIC, STREAM + TOPIC + TOPIC[1:], {key: value}) == 0
    assert settings(broker) == {name: value for name, value in OF_GIVEN.items() if name != setting}


@pytest.mark.parametrize(
    ("key", "value"),
    [("segment_size", u64(1 << 21)), ("durability", (STRING, b"replicated"))],
)
async def test_an_option_of_segments_keeps_its_value(broker, client, key, value):
    body = STREAM + struct.pack("<I", 2) + TOPIC[1:]
    assert await client.status(CREATE_TOPIC, body, GIVEN) == 0
    changed = {key: value, "message_expiry": u64(1000)}
    assert await client.status(UPDATE_TOPIC, STREAM + TOPIC + TOPIC[1:], changed) == 4041
    assert settings(broker) == OF_GIVEN


@pytest.mark.parametrize("name", [b"\x02st", b"\x03new"])
async def test_a_stream_has_no_options(client, name):
    assert await client.status(UPDATE_STREAM, STREAM + name, {"any": u64(1)}) == 4041
    assert await client.status(UPDATE_STREAM, STREAM + name, {}) == 0


async def test_options_sent_as_texts_are_returned_in_their_kinds(broker, client):
    body = STREAM + struct.pack("<I", 1) + TOPIC[1:]
    texts = {"segment_size": "2 MiB", "enforce_fsync": "true", "message_expiry": "1h"}
    options = {key: (STRING, value.encode()) for key, value in texts.items()}
    assert (
        await client.status(CREATE_TOPIC, body, {**options, "max_topic_size": (STRING, b"0")}) == 0
    )
    assert settings(broker) == {"segment_bytes": 2 << 20, "retention_ms": 3_600_000}
    _, answer_body = await client.query(300, STREAM + TOPIC)
    topic = description_v.BODIES[300].parse(answer_body).topic
    assert {option.key.decode(): (option.kind, option.value) for option in topic.options} == {
        "enforce_fsync": (BOOL, b"\1"),
        "message_expiry": u64(3_600_000_000),
        "segment_size": u64(2 << 20),
    }
    derived = {option.key.decode(): option.value for option in topic.derived}
    assert derived["max_topic_size"] == bytes([255]) * 8


async def test_a_segment_size_of_0_is_the_servers_and_returned_as_derived(client):
    body = STREAM + struct.pack("<I", 1) + TOPIC[1:]
    assert await client.status(CREATE_TOPIC, body, {"segment_size": u64(0)}) == 0
    topic = description_v.BODIES[300].parse((await client.query(300, STREAM + TOPIC))[1]).topic
    assert list(topic.options) == []
    assert {option.key.decode(): option.value for option in topic.derived}["segment_size"] == u64(
        1 << 30
    )[1]


@pytest.mark.parametrize(
    ("options", "size", "status"),
    [
        ({}, (1 << 30) - 1, 1019),
        ({}, 1 << 30, 0),
        ({}, 0, 0),
        ({}, (1 << 64) - 1, 0),
        ({"segment_size": u64(1 << 20)}, (1 << 20) - 1, 1019),
        ({"segment_size": u64(1 << 20)}, 1 << 20, 0),
    ],
)
async def test_a_topic_holds_a_segment_at_least(client, options, size, status):
    body = STREAM + struct.pack("<I", 1) + TOPIC[1:]
    assert (
        await client.status(CREATE_TOPIC, body, {**options, "max_topic_size": u64(size)}) == status
    )


async def test_an_update_to_less_than_a_segment_is_refused_and_changes_nothing(broker, client):
    body = STREAM + struct.pack("<I", 2) + TOPIC[1:]
    assert await client.status(CREATE_TOPIC, body, GIVEN) == 0
    smaller = {"max_topic_size": u64((1 << 20) - 1)}
    assert await client.status(UPDATE_TOPIC, STREAM + TOPIC + TOPIC[1:], smaller) == 1019
    assert settings(broker) == OF_GIVEN
