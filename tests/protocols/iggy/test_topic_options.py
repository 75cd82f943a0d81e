"""Options of topics, as clients of the newest dialect set them."""

import struct

import pytest

from protocols.iggy.topic_options import Options, packed
from storage.metadata.names import TopicName
from tests.protocols.frame_stream import FrameStream
from tests.protocols.iggy.test_vsr import LOGIN, frame

CREATE_STREAM, UPDATE_STREAM, CREATE_TOPIC, UPDATE_TOPIC = 128, 129, 132, 133
STRING, UINT64 = 2, 12
STREAM, TOPIC = b"\x02\x02st", b"\x02\x02tp"
DAY_US = 86_400_000_000


def u64(number: int) -> tuple[int, bytes]:
    """A number option."""
    return UINT64, struct.pack("<Q", number)


class Client:
    """A client of the newest dialect that has logged in."""

    def __init__(self, stream) -> None:
        self._frames = FrameStream(stream, _size)
        self._session = bytes(8)

    async def login(self) -> None:
        """Log root in."""
        answer = await self._exchange(LOGIN)
        self._session = answer[264:272]

    async def status(self, operation: int, body: bytes, options: Options) -> int:
        """The status of an answer."""
        request = frame(operation=operation, body=body + packed(options))
        answer = await self._exchange(request[:184] + self._session + request[192:])
        return int(struct.unpack_from("<I", answer, 216)[0])

    async def _exchange(self, request: bytes) -> bytes:
        await self._frames.stream.send_all(request)
        answer = await self._frames.frame()
        assert answer is not None, "connection was closed"
        return answer


def _size(data: bytes) -> int | None:
    return struct.unpack_from("<I", data, 48)[0] if len(data) >= 52 else None


@pytest.fixture
async def client(broker, open_client):
    """A client, and stream `st`."""
    client = Client(await open_client("iggy"))
    await client.login()
    assert await client.status(CREATE_STREAM, STREAM[1:], {}) == 0
    return client


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
