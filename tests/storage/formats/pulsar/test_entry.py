import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.pulsar.entry import decode_entry, read_metadata, record_to_entry
from braidlog.storage.formats.pulsar.entry_runs import parse_send
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import KeyValue, MessageMetadata
from braidlog.storage.formats.record import Header, HeaderKind, Record
from tests.storage.formats.entries_of import entry, metadata, single
from tests.storage.formats.strategies import QUICK

RECORD = Record(7, 2_500, value=b"value")


def opened(raw: bytes, count: int = 1) -> list[Record]:
    return decode_entry(raw, 7, count, 1, 0)


def published(record: Record) -> MessageMetadata:
    """Return the metadata as any Pulsar client parses it, with text checked."""
    raw = record_to_entry(record)
    _, payload_pos = read_metadata(raw, check=True)
    return MessageMetadata.FromString(raw[10:payload_pos])


def test_a_foreign_record_as_literal_bytes() -> None:
    record = Record(7, 2_500, key=b"k", value=b"hello", headers=[Header(b"a", b"1")])
    raw = bytes.fromhex(
        "0e01 481f8325 00000019"
        "0a08 627261 69646c6f67"  # producer_name "braidlog"
        "1007 1802"  # sequence_id 7, publish_time 2 ms
        "2206 0a0161 120131"  # property a = 1
        "32016b 68656c6c6f"  # partition_key "k", payload
    )
    assert record_to_entry(record) == raw
    (seen,) = opened(raw)
    assert seen == replace(
        record, append_us=1, publish_us=2_000, producer_name=b"braidlog", sequence_id=7
    )


def test_required_fields_are_always_there() -> None:
    meta = published(RECORD)
    assert (meta.producer_name, meta.sequence_id, meta.publish_time) == ("braidlog", 7, 2)
    assert meta.null_partition_key
    assert not meta.HasField("partition_key")
    assert not meta.null_value
    assert not meta.HasField("event_time")


def test_times_are_floored_to_milliseconds_and_never_negative() -> None:
    assert published(replace(RECORD, publish_us=1_999)).publish_time == 1
    assert published(replace(RECORD, publish_us=-1)).publish_time == 0
    assert published(replace(RECORD, event_us=1_999)).event_time == 1
    assert not published(replace(RECORD, event_us=999)).HasField("event_time")


@pytest.mark.parametrize(
    ("key", "text", "encoded"),
    [(b"", "", False), (b"k", "k", False), ("ä".encode(), "ä", False), (b"\xff", "/w==", True)],
)
def test_keys_are_text_or_base64(key: bytes, text: str, encoded: bool) -> None:
    meta = published(replace(RECORD, key=key))
    assert (meta.partition_key, meta.partition_key_b64_encoded) == (text, encoded)
    assert meta.HasField("partition_key")
    assert not meta.null_partition_key
    assert opened(record_to_entry(replace(RECORD, key=key)))[0].key == key


def test_absent_empty_and_present_values_differ() -> None:
    for value in (None, b"", b"x"):
        assert opened(record_to_entry(replace(RECORD, value=value)))[0].value == value
    assert published(replace(RECORD, value=None)).null_value


def test_binary_properties_are_base64_and_listed() -> None:
    headers = [
        Header(b"plain", b"text"),
        Header(b"raw", b"\xff\x00", HeaderKind.RAW),
        Header(b"n", b"\x07\x00\x00\x00", HeaderKind.UINT32),
        Header(b"\xfe", b"value"),
        Header(b"plain", b"again"),
    ]
    meta = published(replace(RECORD, headers=headers))
    assert [(p.key, p.value) for p in meta.properties] == [
        ("plain", "text"),
        (base64.b64encode(b"raw").decode(), base64.b64encode(b"\xff\x00").decode()),
        ("n", "7"),
        (base64.b64encode(b"\xfe").decode(), base64.b64encode(b"value").decode()),
        ("plain", "again"),
        ("braidlog.base64", "1,3"),
    ]


def test_all_fields_of_an_unbatched_message_are_read() -> None:
    meta = metadata(
        sequence_id=2**64 - 1,
        event_time=3,
        partition_key=base64.b64encode(b"\xffkey").decode(),
        partition_key_b64_encoded=True,
        ordering_key=b"",
        schema_version=b"\x01",
        properties=[KeyValue(key="a", value="1"), KeyValue(key="a", value="")],
    )
    assert opened(entry(meta, b"v")) == [
        Record(
            7,
            1,
            9_000,
            3_000,
            b"\xffkey",
            b"v",
            [Header(b"a", b"1"), Header(b"a", b"")],
            b"",
            b"p",
            2**64 - 1,
            0,
            b"\x01",
        )
    ]


def test_properties_with_invalid_utf_8_are_unchanged() -> None:
    """C++ and Go clients may put any bytes into a proto2 string."""
    packed = metadata(properties=[KeyValue(key="aa", value="bb")]).SerializeToString()
    raw = entry(packed.replace(b"aa", b"\xff\xfe").replace(b"bb", b"\xfd\xfc"), b"")
    assert opened(raw)[0].headers == [Header(b"\xff\xfe", b"\xfd\xfc")]


def test_each_message_of_a_batch_has_its_own_and_the_entrys_fields() -> None:
    meta = metadata(num_messages_in_batch=3, schema_version=b"s", event_time=99)
    messages = (
        single(b"a", partition_key="k", sequence_id=5, event_time=8, ordering_key=b"o")
        + single(b"", null_value=True, null_partition_key=True, partition_key="ignored")
        + single(b"", properties=[KeyValue(key="x", value="y")], partition_key="")
    )
    common = {"publish_us": 9_000, "producer_name": b"p", "schema_version": b"s"}
    assert opened(entry(meta, messages), 3) == [
        Record(
            7, 1, event_us=8_000, key=b"k", value=b"a", ordering_key=b"o", sequence_id=5, **common
        ),
        Record(8, 1, sequence_id=4, **common),
        Record(9, 1, key=b"", value=b"", headers=[Header(b"x", b"y")], sequence_id=4, **common),
    ]


def test_a_step_back_is_not_the_next_sequence_id() -> None:
    numbers = [5117, 5118, 5119, 4992, 4993]
    messages = b"".join(single(b"v", sequence_id=number) for number in numbers)
    records = opened(entry(metadata(num_messages_in_batch=len(numbers)), messages), len(numbers))
    assert [record.sequence_id for record in records] == numbers


@pytest.mark.parametrize("first", [0, 100, 5000, 2**63, 2**64 - 40])
@pytest.mark.parametrize("seed", range(6))
def test_similar_consecutive_messages_are_read_like_single_messages(seed: int, first: int) -> None:
    rng = random.Random(seed)
    number, fields, count = first, {"event_time": 5}, 300
    values, singles = [], []
    for _ in range(count):
        if rng.random() < 0.05:
            fields = rng.choice(
                [{}, {"event_time": 6}, {"null_value": True}, {"partition_key": "k"}]
            )
        number += rng.choice([1] * 30 + [0, 2, -3])
        known = {"sequence_id": number % 2**64} if rng.random() < 0.97 else {}
        values.append(b"v" * rng.choice([3] * 20 + [4]))
        singles.append(single(values[-1], **fields, **known))
    alone = metadata(num_messages_in_batch=1)
    expected = [
        replace(opened(entry(alone, packed))[0], offset=7 + at) for at, packed in enumerate(singles)
    ]
    together = entry(metadata(num_messages_in_batch=count), b"".join(singles))
    assert opened(together, count) == expected, f"seed {seed}"


def test_a_sequence_id_of_zero_is_not_absent() -> None:
    raw = entry(metadata(num_messages_in_batch=1), single(b"a", sequence_id=0))
    assert opened(raw)[0].sequence_id == 0


def test_a_key_wrongly_flagged_base64_is_unchanged() -> None:
    meta = metadata(partition_key="not base64!", partition_key_b64_encoded=True)
    assert opened(entry(meta, b""))[0].key == b"not base64!"


def test_tags_in_their_longer_form_are_found() -> None:
    """Protobuf readers accept a tag with more bytes than needed; the fast paths
    must not miss it.
    """
    long_property = b"\xa2\x00\x06\x0a\x01a\x12\x01b"
    raw = entry(metadata().SerializeToString() + long_property, b"")
    assert opened(raw)[0].headers == [Header(b"a", b"b")]
    packed = b"\x92\x00\x01k\x18\x01"
    in_batch = len(packed).to_bytes(4, "big") + packed + b"v"
    assert opened(entry(metadata(num_messages_in_batch=1), in_batch))[0].key == b"k"


@pytest.mark.parametrize("size", [-1, 2, 2**31 - 1])
def test_payload_sizes_that_do_not_fit_the_batch_are_corrupt(size: int) -> None:
    raw = entry(metadata(num_messages_in_batch=1), single(b"x", payload_size=size))
    with pytest.raises(BodyError):
        opened(raw)


@QUICK
@given(meta=st.binary(max_size=30), payload=st.binary(max_size=30), count=st.integers(0, 3))
def test_any_metadata_and_payload_are_read_or_refused(
    meta: bytes, payload: bytes, count: int
) -> None:
    batched = meta + b"\x58" + bytes((count,))
    for packed in (meta, batched):
        raw = entry(packed, payload)
        try:
            parse_send(raw)
            assert len(opened(raw, count)) <= max(count, 1)
        except BodyError:
            pass
