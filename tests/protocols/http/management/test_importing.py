"""An import stores what an exact read shows: every byte and every time."""

import base64
import json

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.http.limits import INLINE_BODY_BYTES, MESSAGES_MAX
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing
from tests.protocols.http.asgi import call

COPY = "/api/v1/topics/public/default/copy/messages"
RECORDS = [
    Record(0, 0, 1_700_000_000_000_001, 7, b"k", b"v", [Header(b"n", b"x")]),
    Record(1, 0, None, None, None, None),
    Record(2, 0, 1_600_000_000_000_000, None, b"", b""),
    Record(
        3,
        0,
        1_800_000_000_000_999,
        2**63 - 1,
        b"\xff\x00",
        b"\xfe\r\n\x00",
        [
            Header(b"n", b"1"),
            Header(b"n", b"\x00\x80", HeaderKind.RAW),
            Header(b"\xff", b"\x07\x00\x00\x00", HeaderKind.INT32),
            Header(b"", b"", 77),
        ],
        ordering_key=b"o\xff",
        producer_name=b"anna",
        sequence_id=2**64 - 1,
        message_id=2**128 - 1,
        deliver_at_us=1_900_000_000_000_001,
    ),
    Record(4, 0, 5, None, "schlüssel\u2028".encode(), b"\x1b[31m" * 20),
]


@pytest.fixture
async def topics(broker):
    """Return partition 0 of a topic with records, and an empty topic of two partitions."""
    topic = await broker.topics.create(TopicName("public", "default", "first"), 1)
    body = PLAIN.encode(RECORDS, 0)
    partition = topic.partition(0)
    partition.append([body], PLAIN.inspect(body), body_format=PLAIN.format, append_us=9)
    copy = await broker.topics.create(TopicName("public", "default", "copy"), 2)
    await broker.durability.all_durable()
    return partition, copy


async def exact(app, topic="first", partition=0):
    path = f"/topics/public/default/{topic}/partitions/{partition}/messages"
    query = "position=earliest&timeout=0&exact=true"
    answer = await call(app, "GET", f"{path}?{query}", headers={"Accept": "application/x-ndjson"})
    return [json.loads(line) for line in answer.body.splitlines()]


async def stored(partition):
    (batch,) = await partition.read(0, 1 << 20)
    return batch.header, PLAIN.decode(bytes(batch.body), 0, 0).records


async def test_an_exact_read_then_an_import_keeps_every_field(app, topics):
    messages = await exact(app)
    answer = await call(app, "POST", COPY, {"messages": messages})
    assert (answer.status, answer.json) == (200, {"stored": len(RECORDS)})
    header, records = await stored(topics[1].partition(0))
    assert records == RECORDS
    assert header.first_publish_us == RECORDS[0].publish_us
    assert header.max_publish_us == RECORDS[3].publish_us


async def test_a_large_import_is_read_in_a_thread_and_keeps_every_field(app, topics):
    value = base64.b64encode(bytes(range(256)) * 400).decode()
    large = {"value": value, "encoding": "base64", "partition": 1}
    assert len(value) > INLINE_BODY_BYTES
    answer = await call(app, "POST", COPY, {"messages": [large, *await exact(app)]})
    assert answer.json == {"stored": 1 + len(RECORDS)}
    _, records = await stored(topics[1].partition(1))
    assert records[0].value == bytes(range(256)) * 400


async def test_messages_without_a_partition_go_by_key(app, topics):
    messages = [{"key": "a", "value": str(number)} for number in range(4)]
    await call(app, "POST", COPY, {"messages": messages})
    assert sorted(partition.high_watermark for partition in topics[1].partitions) == [0, 4]


async def test_a_permission_to_produce_does_not_allow_an_import(app, topics, broker):
    broker.access = Access(Nothing(Action.PRODUCE, Action.CREATE, Action.ALTER))
    answer = await call(app, "POST", COPY, {"messages": [{"value": "x"}]})
    assert (answer.status, answer.json["code"]) == (403, "not_authorized")
    broker.access = Access(Nothing(Action.ADMINISTER))
    assert (await call(app, "POST", COPY, {"messages": [{"value": "x"}]})).status == 200


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "messages"),
        ({"messages": []}, 422, "at least one"),
        ({"messages": {}}, 422, "expected a list"),
        ({"messages": [{"value": "x"}, {"valu": "x"}]}, 422, "messages[1]: unknown field 'valu'"),
        ({"messages": [{"value": 7}]}, 422, "messages[0].value"),
        ({"messages": [{"value": "*", "encoding": "base64"}]}, 422, "value is not base64"),
        ({"messages": [{"value": "x", "encoding": "hex"}]}, 422, "messages[0].encoding"),
        ({"messages": [{"publish_us": -1}]}, 422, "messages[0].publish_us"),
        ({"messages": [{"event_us": 2**63}]}, 422, "messages[0].event_us"),
        ({"messages": [{"partition": 2}]}, 422, "has no partition 2"),
        ({"messages": [{"sequence_id": 2**64}]}, 422, "sequence_id"),
        ({"messages": [{"message_number": "-1"}]}, 422, "128 bits"),
        ({"messages": [{"headers": [{"name": "n", "value": "", "kind": "text"}]}]}, 422, "kind"),
        ({"messages": [{"headers": [{"name": "n", "value": ""}] * 1001}]}, 422, "1000 headers"),
        ({"messages": [{"value": "x" * (5 << 20), "key": "k"}]}, 413, "5242881 bytes"),
        ({"messages": [{}] * (MESSAGES_MAX + 1)}, 422, f"at most {MESSAGES_MAX}"),
    ],
)
async def test_a_bad_message_refuses_the_whole_request(app, topics, body, status, text):
    answer = await call(app, "POST", COPY, body)
    assert (answer.status, text in answer.json["message"]) == (status, True), answer.json
    assert [partition.high_watermark for partition in topics[1].partitions] == [0, 0]


async def test_a_repeated_name_is_refused(app, topics):
    body = b'{"messages": [{"value": "a", "value": "b"}]}'
    answer = await call(app, "POST", COPY, pieces=[body])
    assert (answer.status, "twice" in answer.json["message"]) == (422, True)


async def test_an_import_into_a_missing_topic_is_refused(app):
    answer = await call(app, "POST", COPY, {"messages": [{"value": "x"}]})
    assert (answer.status, answer.json["code"]) == (404, "topic_not_found")
