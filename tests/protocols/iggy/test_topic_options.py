"""Options of topics, as clients of the newest dialect set them."""

import struct

import pytest

from storage.metadata.names import TopicName
from tests.protocols.iggy.vtalk import CREATE_TOPIC, STREAM, TOPIC, UPDATE_TOPIC

UPDATE_STREAM = 129
STRING, UINT64 = 2, 12
DAY_US = 86_400_000_000


def u64(number: int) -> tuple[int, bytes]:
    """A number option."""
    return UINT64, struct.pack("<Q", number)


def settings(broker) -> dict:
    """Those of the topic, without the options as they were given."""
    meta = broker.catalogue.state.topic(TopicName("public", "st", "tp"))
    return {key: value for key, value in meta.settings.items() if key != "iggy_options"}


GIVEN = {
    "compression_algorithm": (STRING, b"gzip"),
    "durability": (STRING, b"persisted"),
    "max_topic_size": u64(4096),
    "message_expiry": u64(DAY_US),
    "segment_size": u64(1 << 20),
}
OF_GIVEN = {
    "durability": "synced",
    "iggy_compression": 2,
    "retention_bytes": 2048,
    "retention_ms": DAY_US // 1000,
    "segment_bytes": 1 << 20,
}


@pytest.mark.parametrize(
    ("key", "value", "setting"),
    [
        ("compression_algorithm", (STRING, b"none"), "iggy_compression"),
        ("durability", (STRING, b"replicated"), "durability"),
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
    assert settings(broker) == {name: kept for name, kept in OF_GIVEN.items() if name != setting}


@pytest.mark.parametrize("name", [b"\x02st", b"\x03new"])
async def test_a_stream_has_no_options(client, name):
    assert await client.status(UPDATE_STREAM, STREAM + name, {"any": u64(1)}) == 4041
    assert await client.status(UPDATE_STREAM, STREAM + name, {}) == 0
