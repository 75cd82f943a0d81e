"""The generated structures, read and written: literal bytes of Kafka's layouts, and round trips."""

import importlib
import random
from collections.abc import Iterator

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka import wire
from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.fields import ENTRIES_MAX, FieldReader, Writer, uvarint_bytes
from braidlog.protocols.kafka.schema import (
    NO_UUID,
    RECORDS,
    UINT16,
    UINT32,
    Array,
    Field,
    Fixed,
    Sized,
    Struct,
)
from braidlog.protocols.kafka.versions import NEWEST
from braidlog.protocols.kafka.wire.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from braidlog.protocols.kafka.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from braidlog.protocols.kafka.wire.fetch import FetchRequest, ReplicaState
from braidlog.protocols.kafka.wire.find_coordinator import FindCoordinatorRequest
from braidlog.protocols.kafka.wire.metadata import MetadataRequest, MetadataRequestTopic


def written(value: Struct, version: int) -> bytes:
    out = Writer()
    write(out, value, version)
    return b"".join(bytes(part) for part in out.parts() if not hasattr(part, "send"))


def read_whole(kind: type[Struct], data: bytes, version: int) -> Struct:
    reader = FieldReader(memoryview(data))
    value = read(kind, reader, version)
    assert not reader.left
    return value


def requests_and_responses() -> Iterator[tuple[type[Struct], type[Struct]]]:
    for key in NEWEST:
        module = importlib.import_module(f"{wire.__name__}.{key.name.lower()}")
        assert key == module.REQUEST.KEY
        yield module.REQUEST, module.RESPONSE


MESSAGES = list(requests_and_responses())

# Kafka protocol guide and KIP-482, encoded by hand.
PAIRS: dict[str, tuple[int, Struct, str]] = {
    "compact strings and no tags": (
        3,
        ApiVersionsRequest(client_software_name=b"java", client_software_version=b"4.3.1"),
        "05 6a617661 06 342e332e31 00",
    ),
    "an old array, as every client falls back to": (
        0,
        ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        "0023 00000001 0012 0000 0004",
    ),
    "tagged fields of a response": (
        3,
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=18, max_version=4)],
            supported_features=[SupportedFeatureKey(name=b"f", min_version=1, max_version=2)],
            finalized_features_epoch=7,
        ),
        "0000 02 0012 0000 0004 00 00000000 02 00 08 02 02 66 0001 0002 00 01 08 0000000000000007",
    ),
    "a nullable structure that is null": (
        0,
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name=b"t")]),
        "02 02 74 00 000007d0 ff 00",
    ),
    "a nullable structure": (
        0,
        DescribeTopicPartitionsRequest(
            topics=[], response_partition_limit=1, cursor=Cursor(topic_name=b"t", partition_index=3)
        ),
        "01 00000001 01 02 74 00000003 00 00",
    ),
    "a tagged structure, and one with a default": (
        17,
        FetchRequest(
            replica_state=ReplicaState(replica_id=1, replica_epoch=2),
            max_wait_ms=3,
            topics=[],
            forgotten_topics_data=[],
        ),
        "00000003 00000000 7fffffff 00 00000000 ffffffff 01 01 01"
        " 01 01 0d 00000001 0000000000000002 00",
    ),
    "a null array, which is not an empty array": (1, MetadataRequest(topics=None), "ffffffff"),
    "a UUID and a null string": (
        12,
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(range(16)), name=None)]),
        "02 000102030405060708090a0b0c0d0e0f 00 00 01 00 00",
    ),
    "a compact array of strings": (
        4,
        FindCoordinatorRequest(key_type=1, coordinator_keys=[b"a", b""]),
        "01 03 02 61 01 00",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_literal_bytes_equal_their_structure(name: str) -> None:
    version, value, text = PAIRS[name]
    data = bytes.fromhex(text)
    assert written(value, version).hex() == data.hex()
    assert read_whole(type(value), data, version) == value


def test_unknown_tags_are_skipped() -> None:
    known = "0000 01 00000000"
    plain = read_whole(ApiVersionsResponse, bytes.fromhex(known + "00"), 3)
    tagged = read_whole(ApiVersionsResponse, bytes.fromhex(known + "02 05 03 616263 7f 00"), 3)
    assert tagged == plain


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0000 01 00000000 01 01 09 0000000000000007", "tagged field 1"),
        ("0000 00 00000000 00", "cannot be null"),
        ("0000 01 00000000 ffffffff8f", "more than"),
        ("0000 01 00000000 808080808000", "more than"),
        ("0000 81808004 00000000 00", "more than"),
        ("0000 01 00000000 01 05 04 616263", "wanted"),
        ("0000 01 0000", "wanted"),
    ],
)
def test_invalid_bytes_raise_protocol_error(text: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        read(ApiVersionsResponse, FieldReader(memoryview(bytes.fromhex(text))), 3)


def test_a_tagged_field_with_its_default_is_not_written() -> None:
    assert written(ApiVersionsResponse(supported_features=[], zk_migration_ready=False), 3) == (
        written(ApiVersionsResponse(), 3)
    )


def test_tags_count_as_entries() -> None:
    head = bytes.fromhex("0000 01 00000000")
    data = head + uvarint_bytes(ENTRIES_MAX + 1) + bytes((9, 0)) * (ENTRIES_MAX + 1)
    with pytest.raises(ProtocolError, match="more than"):
        read(ApiVersionsResponse, FieldReader(memoryview(data)), 3)


def test_structures_compare_by_fields_and_show_non_default_values() -> None:
    version = ApiVersion(api_key=18, max_version=4)
    assert version == ApiVersion(api_key=18, max_version=4) != ApiVersion(api_key=18)
    assert version != Cursor()
    assert repr(version) == "ApiVersion(api_key=18, max_version=4)"


@pytest.mark.parametrize(
    ("request_kind", "response_kind"), MESSAGES, ids=lambda kind: kind.__name__
)
def test_every_version_of_every_message_round_trips(
    request_kind: type[Struct], response_kind: type[Struct]
) -> None:
    first, last = request_kind.VERSIONS
    rng = random.Random(request_kind.KEY)
    for version in range(first, last + 3):
        for kind in (request_kind, response_kind):
            for _ in range(3):
                value = filled(kind, version, rng)
                assert read_whole(kind, written(value, version), version) == value, version


@pytest.mark.parametrize(
    ("request_kind", "response_kind"), MESSAGES, ids=lambda kind: kind.__name__
)
def test_a_frame_that_ends_early_raises_protocol_error(
    request_kind: type[Struct], response_kind: type[Struct]
) -> None:
    rng = random.Random(request_kind.KEY)
    for kind in (request_kind, response_kind):
        for version in request_kind.VERSIONS:
            data = written(filled(kind, version, rng), version)[:300]
            for size in range(len(data)):
                with pytest.raises(ProtocolError):
                    read(kind, FieldReader(memoryview(data)[:size]), version)


def filled(kind: type[Struct], version: int, rng: random.Random) -> Struct:
    """Return a structure with values in all fields of a version."""
    values = {
        field.name: value_of(field, version, rng)
        for field in kind.FIELDS
        if field.since <= version <= field.until
        and not (field.tag is not None and rng.random() < 0.5)
    }
    return kind(**values)


def value_of(field: Field, version: int, rng: random.Random) -> object:
    if field.nullable <= version and rng.random() < 0.3:
        return None
    if isinstance(field.kind, Array):
        of = field.kind.of
        return [single(of, version, rng) for _ in range(rng.randrange(4))]
    return single(field.kind, version, rng)


def single(kind: Fixed | Sized | type[Struct], version: int, rng: random.Random) -> object:
    if isinstance(kind, Fixed):
        letter = kind.format
        if letter == "16s":
            return rng.choice((NO_UUID, rng.randbytes(16)))
        if letter in "?d":
            return rng.random() < 0.5 if letter == "?" else rng.random()
        bits = 8 * {"b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8}[letter]
        is_unsigned = kind in (UINT16, UINT32)
        low = 0 if is_unsigned else -(1 << (bits - 1))
        return rng.choice((low, low + (1 << bits) - 1, 0, 1, rng.randrange(100)))
    if isinstance(kind, Sized):
        data = rng.choice((b"", rng.randbytes(rng.randrange(300))))
        return memoryview(data) if kind is RECORDS else data
    return filled(kind, version, rng)
