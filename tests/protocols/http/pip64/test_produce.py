import base64
import json
import tracemalloc

import pytest
import trio

from braidlog.broker.topics.partitioning import key_partition
from braidlog.protocols.http.limits import MESSAGES_MAX, RECORD_BYTES_MAX
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.plain.codec import PLAIN
from tests.protocols.http.pip64.conftest import BASE, ORDERS

MIB = 1024 * 1024


def total(orders) -> int:
    return sum(partition.next_offset for partition in orders.partitions)


async def records_of(partition):
    records = []
    for batch in await partition.read(0, MIB):
        records += PLAIN.decode(batch.body, batch.base_offset, batch.header.append_us).records
    return records


async def test_stored_records_equal_sent_messages(orders, ask):
    message = {
        "key": "k",
        "value": "v",
        "partition": 0,
        "properties": {"a": "1", "b": ""},
        "event_time": "1764000000001",
        "sequence_id": 18446744073709551615,
    }
    body = {"producer_name": "shop", "messages": [message, {"partition": 0}]}
    assert (await ask("POST", BASE, body)).status == 200
    first, second = await records_of(orders.partitions[0])
    assert (first.key, first.value) == (b"k", b"v")
    assert [(h.name, h.value) for h in first.headers] == [(b"a", b"1"), (b"b", b"")]
    assert first.event_us == 1764000000001000
    assert first.publish_us == 1795228435964000
    assert (first.producer_name, first.sequence_id) == (b"shop", 2**64 - 1)
    assert (second.key, second.value, second.event_us) == (None, None, None)
    assert first.schema_version is None


async def test_delivery_times_are_stored_and_shown(orders, ask):
    times = [
        {"deliverAt": 1764000000001},
        {"deliver_at": "1764000000002"},
        {"deliverAfterMs": 5000},
        {"deliver_after_ms": 0},
        {"deliverAt": 0},
        {},
    ]
    body = {"messages": [{"value": "v", "partition": 0, **time_fields} for time_fields in times]}
    assert (await ask("POST", BASE, body)).status == 200
    assert [record.deliver_at_us for record in await records_of(orders.partitions[0])] == [
        1764000000001000,
        1764000000002000,
        1795228440964000,  # From the time of the broker's receipt.
        *(None, None, None),
    ]
    (batch,) = await orders.partitions[0].read(0, MIB)
    assert batch.header.flags & BatchFlag.DELAYED
    shown = (await ask("GET", f"{BASE}/partitions/0/messages")).json["messages"]
    assert [message.get("deliverAt") for message in shown[:4]] == [
        *(1764000000001, 1764000000002, 1795228440964, None)
    ]


async def test_produce_is_answered_once_the_records_are_on_disk(broker, orders, ask):
    await ask("POST", BASE, {"messages": [{"value": "x"}]})
    assert sum(partition.high_watermark for partition in orders.partitions) == 1


async def test_a_key_chooses_the_partition_and_keyless_messages_take_turns(orders, ask):
    body = {"messages": [{"key": f"k{n}", "value": n} for n in range(20)]}
    answer = await ask("POST", BASE, body)
    chosen = [result["partition"] for result in answer.json["messageIds"]]
    assert chosen == [key_partition(b"k%d" % n, 2) for n in range(20)]
    assert set(chosen) == {0, 1}
    answer = await ask("POST", BASE, {"messages": [{"value": n} for n in range(4)]})
    assert [result["partition"] for result in answer.json["messageIds"]] == [0, 1, 0, 1]


async def test_messages_to_several_partitions_are_at_their_ids(orders, ask):
    body = {"messages": [{"value": n, "partition": n % 2} for n in range(6)]}
    for base_offset in (0, 3):
        answer = await ask("POST", BASE, body)
        for partition in orders.partitions:
            records = await records_of(partition)
            assert [record.offset for record in records] == list(range(base_offset + 3))
        expected_ids = [
            result["messageId"] for result in answer.json["messageIds"] if result["partition"] == 1
        ]
        shown = (await ask("GET", f"{BASE}/partitions/1/messages")).json["messages"]
        assert [message["messageId"] for message in shown[base_offset:]] == expected_ids


async def test_a_request_is_a_single_batch_per_partition(orders, ask):
    body = {"messages": [{"value": n, "partition": n % 2} for n in range(300)]}
    await ask("POST", BASE, body)
    for partition in orders.partitions:
        (batch,) = await partition.read(0, MIB)
        assert batch.header.record_count == 150
        values = [record.value for record in await records_of(partition)]
        assert values == [b"%d" % n for n in range(partition.index, 300, 2)]


FULL = {"value": "good"}
LARGE_DEFAULT = {
    "type": "AVRO",
    "schema": {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "string", "default": "x" * 60_000}],
    },
}
DEEP = "[" * 101 + "]" * 101


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], 40001),
        ("text", 40001),
        ({"messages": []}, 42205),
        ({}, 42205),
        ({"messages": {}}, 42205),
        ({"messages": [FULL, None]}, 42205),
        ({"messages": [FULL, {"value": "x", "partition": 2}]}, 42205),
        ({"messages": [FULL, {"value": "x", "partition": -1}]}, 42205),
        ({"messages": [FULL, {"value": "x", "properties": {"a": 1}}]}, 42205),
        ({"messages": [FULL, {"value": "x", "properties": []}]}, 42205),
        ({"messages": [FULL, {"value": "x", "eventTime": -5}]}, 42205),
        ({"messages": [FULL, {"value": "x", "eventTime": "soon"}]}, 42205),
        ({"messages": [FULL, {"value": "x", "eventTime": 2**63}]}, 42205),
        ({"messages": [FULL, {"value": "x", "sequenceId": -1}]}, 42205),
        ({"messages": [FULL, {"value": "x", "encoding": "hex"}]}, 42205),
        ({"messages": [FULL, {"value": "x", "encoding": "base64"}]}, 42205),
        ({"messages": [FULL, {"value": "x", "deliverAt": 1, "deliverAfterMs": 1}]}, 42205),
        ({"messages": [FULL, {"value": "x", "deliver_at": -1}]}, 42205),
        ({"messages": [FULL, {"value": "x", "deliverAfterMs": 2**63 // 1000}]}, 42205),
        ({"messages": [FULL, {"value": json.loads(DEEP)}]}, 42205),
        ({"messages": [FULL, {"key": json.loads(DEEP)}]}, 42205),
        ({"messages": [FULL] * (MESSAGES_MAX + 1)}, 42205),
        ({"messages": [FULL, {"value": "x" * (RECORD_BYTES_MAX + 1)}]}, 41302),
        ({"value_schema": LARGE_DEFAULT, "messages": [{"value": {}}] * 300}, 41302),
        ({"schema_type": "BYTES", "messages": [{"value": "AAAA"}, {"value": "%"}]}, 42205),
        ({"schema_type": "INT32", "messages": [{"value": 1}, {"value": 2**31}]}, 42205),
        ({"schema_type": "INT8", "messages": [{"value": 1}, {"value": True}]}, 42205),
        ({"schema_type": "STRING", "messages": [{"value": "x"}, {"value": 5}]}, 42205),
        ({"schema_type": "NUMBER", "messages": [FULL]}, 42204),
        ({"schema_type": 5, "messages": [FULL]}, 42204),
        ({"schema_type": "AVRO", "messages": [FULL]}, 42202),
        ({"schema_type": "JSON", "messages": [FULL]}, 42202),
        ({"schema_type": "KEY_VALUE", "messages": [FULL]}, 42201),
        ({"schema_type": "KEY_VALUE", "key_schema": {"type": "STRING"}, "messages": [FULL]}, 42201),
        ({"key_schema": "{", "value_schema": {"type": "STRING"}, "messages": [FULL]}, 42203),
        ({"key_schema": {"type": "NO"}, "value_schema": {"type": "STRING"}}, 42205),
        ({"value_schema": {"type": "AVRO", "schema": "{"}, "messages": [FULL]}, 42204),
        ({"value_schema": {"type": "AVRO"}, "messages": [FULL]}, 42204),
        ({"value_schema": {"schema": {}}, "messages": [FULL]}, 42204),
        ({"value_schema": 7, "messages": [FULL]}, 42204),
        ({"schema_type": "JSON", "value_schema": {"type": "STRING"}, "messages": [FULL]}, 42204),
        ({"schema_version": 3, "messages": [FULL]}, 42204),
        ({"schema_version": "0", "messages": [FULL]}, 42204),
    ],
)
async def test_a_fault_anywhere_writes_nothing(orders, ask, body, code):
    answer = await ask("POST", BASE, body)
    assert answer.json["error_code"] == code, answer.body
    assert answer.status == code // 100
    assert answer.json["reason"] == answer.json["message"]
    assert total(orders) == 0
    assert not orders.meta.schemas


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ([b'{"messages": [{"value": "\xff"}]}'], 40001),
        ([b'{"messages": [{"value": "x"}'], 40001),
        ([b""], 40001),
        ([b'{"messages": [{"value": ' + b"[" * 5000 + b"]" * 5000 + b"}]}"], 42205),
        ([b'{"messages": [{"value": "\\ud800"}]}'], 40001),
        ([b" " * MIB] * 10 + [b"x"], 41301),
    ],
)
async def test_an_invalid_body_writes_nothing(orders, ask, pieces, code):
    answer = await ask("POST", BASE, pieces=pieces)
    assert answer.json["error_code"] == code, answer.body
    assert total(orders) == 0


@pytest.mark.parametrize(
    "headers", [{"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}], ids=str
)
async def test_non_standard_json_is_refused(orders, ask, headers):
    answer = await ask("POST", BASE, {"messages": [FULL]}, headers=headers)
    assert (answer.status, answer.json["error_code"]) == (415, 41501)
    assert total(orders) == 0


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/topics/public/default/none", 40401),
        ("/topics/public/nowhere/orders", 40401),
        ("/topics/non-persistent/public/default/orders", 40401),
        (f"{BASE}/partitions/2", 40402),
        (f"{BASE}/partitions/x", 40402),
        (f"{BASE}/partitions/-1", 40402),
        (f"{BASE}-partition-0", 41201),
        ("/topics/public/default/or%00ders", 41201),
        ("/topics/persistent/persistent/default/orders", 41201),
        ("/topics/public/default", 40400),
        (f"{BASE}/", 40400),
    ],
)
async def test_missing_destinations(orders, ask, path, code):
    answer = await ask("POST", path, {"messages": [FULL]})
    assert answer.json["error_code"] == code, answer.body
    assert total(orders) == 0


async def test_a_partition_of_a_message_must_agree_with_the_path(orders, ask):
    answer = await ask("POST", f"{BASE}/partitions/1", {"messages": [FULL | {"partition": 0}]})
    assert answer.json["error_code"] == 42205
    answer = await ask("POST", f"{BASE}/partitions/1", {"messages": [FULL | {"partition": 1}]})
    assert answer.status == 200


async def test_unknown_fields_and_both_spellings_are_accepted(orders, ask):
    body = {"schemaType": "string", "schemaVersion": -1, "messages": [FULL | {"colour": "red"}]}
    answer = await ask("POST", BASE, body | {"more": [1]})
    assert answer.json["schema_version"] == 0
    assert [schema.type for schema in orders.meta.schemas] == [1]


async def test_the_same_schema_is_a_single_version_and_another_type_is_refused(orders, ask):
    for _ in range(2):
        body = {"schema_type": "INT64", "messages": [{"value": 5}]}
        assert (await ask("POST", BASE, body)).json["schema_version"] == 0
    answer = await ask("POST", BASE, {"schema_type": "STRING", "messages": [FULL]})
    assert answer.json["error_code"] == 42204
    assert total(orders) == 2


async def test_any_bytes_can_be_sent_as_base64(orders, ask):
    data = bytes(range(256))
    text = base64.b64encode(data).decode()
    message = {"key": text, "key_encoding": "base64", "value": text, "encoding": "base64"}
    await ask("POST", f"{BASE}/partitions/0", {"messages": [message]})
    (record,) = await records_of(orders.partitions[0])
    assert record.key == record.value == data
    answer = await ask("GET", f"{BASE}/partitions/0/messages")
    (shown,) = answer.json["messages"]
    assert (shown["value"], shown["encoding"]) == (text, "base64")
    assert (shown["key"], shown["key_encoding"]) == (text, "base64")


@pytest.mark.parametrize("app", [{"auto_create_topics": True}], indirect=True)
async def test_a_missing_topic_is_created_if_the_listener_may(broker, ask):
    answer = await ask("POST", BASE, {"messages": [FULL]})
    assert answer.status == 200
    assert broker.topics.find(ORDERS) is not None
    assert answer.json["messageIds"][0]["messageId"] == "CAEQAA=="


async def test_a_stopping_broker_takes_no_messages(broker, orders, ask):
    broker.stopping.set()
    answer = await ask("POST", BASE, {"messages": [FULL]})
    assert answer.status == 503 or answer.json["messageIds"][0]["error_code"] == 2
    assert total(orders) == 0


def record_of(*fields):
    return {"type": "AVRO", "schema": {"type": "record", "name": "R", "fields": list(fields)}}


ID = {"name": "id", "type": "int"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
COUNT = {"name": "count", "type": "int"}  # Without a default.


@pytest.mark.parametrize(
    ("setting", "following", "version"),
    [
        ("full", record_of(ID, NOTE), 1),
        ("full", record_of(ID, COUNT), None),
        ("full", record_of({"name": "id", "type": "string"}), None),
        ("backward", record_of(ID, COUNT), None),
        ("forward", record_of(ID, COUNT), 1),
        ("always_compatible", record_of(COUNT), 1),
        ("always_incompatible", record_of(ID, NOTE), None),
        ("full", {"type": "STRING"}, None),
        ("full", record_of(ID), 0),
    ],
)
async def test_the_topics_setting_decides_about_a_new_schema(
    broker, orders, ask, setting, following, version
):
    await ask("PATCH", "/api/v1/topics/public/default/orders", strategy(setting))
    first = {"value_schema": record_of(ID), "messages": [{"value": {"id": 1}}]}
    assert (await ask("POST", BASE, first)).json["schema_version"] == 0
    values = {"AVRO": {"id": 2, "count": 3, "note": None}, "STRING": "x"}
    names = [field["name"] for field in following.get("schema", {}).get("fields", ())]
    value = values[following["type"]]
    if isinstance(value, dict):
        value = {name: value[name] for name in names}
    answer = await ask("POST", BASE, {"value_schema": following, "messages": [{"value": value}]})
    if version is None:
        assert (answer.status, answer.json["error_code"]) == (422, 42204)
        assert total(orders) == 1
    else:
        assert answer.json["schema_version"] == version, answer.body


def strategy(name):
    return {"settings": {"schema_compatibility": name}}


MANY = 200_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [' + b"{}," * MANY + b"{}]}",
        b'{"messages": [{"value": 1, "properties": {'
        + b",".join(b'"%d": ""' % number for number in range(MANY))
        + b"}}]}",
        b'{"messages": {"a": [' + b"1," * MANY + b"1]}}",
        b'{"messages": [' + b"1," * 5000 + b"1]" + b" " * 100_000 + b"}",
    ],
    ids=["messages", "properties", "no array", "no objects"],
)
async def test_a_large_body_of_very_many_items_is_refused_in_small_steps(orders, ask, body):
    answer = await ask("POST", BASE, pieces=[body])
    assert (answer.status, answer.json["error_code"]) == (422, 42205), answer.body
    assert total(orders) == 0


async def test_a_large_body_is_stored_like_a_small_body(orders, ask):
    messages = [
        {"key": f"k{n}", "value": "v" * 100, "properties": {"n": str(n)}, "partition": 0}
        for n in range(1000)
    ]
    answer = await ask("POST", BASE, {"messages": messages, "producer_name": "large"})
    assert answer.status == 200, answer.body
    records = await records_of(orders.partitions[0])
    assert [record.key for record in records] == [b"k%d" % n for n in range(1000)]
    assert records[7].headers[0].value == b"7"
    assert records[0].producer_name == b"large"


async def test_partitions_removed_during_the_parsing_are_not_found(broker, orders, ask):
    body = {"messages": [{"key": "k"}] * 4000}  # Read in forty turns of the loop.
    answers = []

    async def produce():
        answers.append(await ask("POST", BASE, body))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert not answers
        await broker.topics.keep_partitions(ORDERS, 0)
    assert (answers[0].status, answers[0].json["error_code"]) == (404, 40402)


@pytest.mark.slow
async def test_many_large_requests_take_the_memory_of_a_few(orders, ask):
    """Objects of a request take some 4 MB; four requests at once took 16 MB."""
    body = {"messages": [{"value": "", "partition": 0}] * MESSAGES_MAX}
    statuses = []

    async def produce():
        statuses.append((await ask("POST", BASE, body)).status)

    tracemalloc.start()
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(produce)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 200 in statuses and set(statuses) <= {200, 429}  # A slow machine refuses after a wait.
    assert most_bytes < 10 * MIB
