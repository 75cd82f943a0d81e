import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.protocols.http.limits import READ_MESSAGES_MAX
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, PULSAR
from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import EntryMetadata
from tests.protocols.http.pip64.conftest import BASE
from tests.protocols.http.records import append_records
from tests.waiting import until

READ = f"{BASE}/partitions/0/messages"


@pytest.fixture
async def five(orders, ask):
    """Return a topic with five messages in partition 0: values 0 to 4."""
    body = {"messages": [{"value": n} for n in range(5)]}
    await ask("POST", f"{BASE}/partitions/0", body)
    return orders.partitions[0]


def values(answer):
    assert answer.status == 200, answer.body
    return [int(message["value"]) for message in answer.json["messages"]]


@pytest.mark.parametrize(
    ("query", "expected", "next_offset"),
    [
        ("", [0, 1, 2, 3, 4], 5),
        ("?position=earliest", [0, 1, 2, 3, 4], 5),
        ("?position=3", [3, 4], 5),
        ("?position=latest&timeout=0", [], 5),
        ("?position=5&timeout=0", [], 5),
        ("?max_messages=2", [0, 1], 2),
        ("?maxMessage=2", [0, 1], 2),
        ("?max_bytes=1", [0], 1),
        ("?maxByte=3&position=1", [1, 2, 3], 4),
        (f"?max_messages={READ_MESSAGES_MAX + 1}&timeout=99999999", [0, 1, 2, 3, 4], 5),
        ("?message_id=CAEQARgA", [2, 3, 4], 5),
        ("?message_id=CAEQARgA%3D", [2, 3, 4], 5),
        ("?messageId=CAEQARgAMAA", [2, 3, 4], 5),
        ("?timestamp=0", [0, 1, 2, 3, 4], 5),
        ("?timestamp=1795228435965&timeout=0", [], 5),
        ("?colour=red", [0, 1, 2, 3, 4], 5),
    ],
)
async def test_start_and_end_of_a_read(five, ask, query, expected, next_offset):
    answer = await ask("GET", READ + query)
    assert values(answer) == expected
    assert answer.json["next_offset"] == next_offset
    assert answer.json["high_watermark"] == 5


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?position=6", 41601),
        ("?position=-1", 40002),
        ("?position=soon", 40002),
        ("?position=1&message_id=CAEQARgA", 40002),
        ("?position=1&timestamp=5", 40002),
        ("?timestamp=x", 40002),
        ("?timeout=-1", 40002),
        ("?timeout=1.5", 40002),
        ("?max_messages=0", 40002),
        ("?max_bytes=0", 40002),
        ("?encoding=hex", 40002),
        ("?include_schema=maybe", 40002),
        ("?int64=text", 40002),
        ("?schema_type=JSON", 42202),
        ("?schema_type=colour", 42204),
        ("?message_id=rubbish", 40003),
        ("?message_id=CAEQARgB", 40003),
        ("?message_id=CAEQAQ==", 40003),
        ("?message_id=CAkQARgA", 40003),
        ("?message_id=CAEQCRgA", 40003),
    ],
)
async def test_a_bad_query_is_refused(five, ask, query, code):
    answer = await ask("GET", READ + query)
    assert answer.json["error_code"] == code, answer.body
    assert answer.status == code // 100


async def test_none_of_the_accepted_formats(five, ask):
    answer = await ask("GET", READ, headers={"Accept": "image/png"})
    assert (answer.status, answer.json["error_code"]) == (406, 40601)


async def test_an_empty_partition_has_no_last_id(orders, ask):
    answer = await ask("GET", f"{READ}?timeout=0")
    assert answer.json == {
        "messages": [],
        "next_offset": 0,
        "next_message_id": None,
        "log_start_offset": 0,
        "high_watermark": 0,
    }


async def test_a_read_waits_for_the_first_message_and_no_longer(
    broker, orders, ask, nursery, autojump_clock
):
    answers = []

    async def read():
        answers.append(await ask("GET", f"{READ}?timeout=60000"))

    nursery.start_soon(read)
    await trio.sleep(30)
    assert not answers
    append_records(broker, orders.partitions[0], 2)
    await until(lambda: answers)
    assert len(answers[0].json["messages"]) == 2


async def test_a_read_ends_empty_after_its_timeout(orders, ask, autojump_clock):
    began = trio.current_time()
    answer = await ask("GET", f"{READ}?timeout=2000")
    assert answer.json["messages"] == [] and answer.json["next_offset"] == 0
    assert trio.current_time() - began == pytest.approx(2, abs=0.1)


async def test_a_stop_answers_a_waiting_read_at_once(broker, orders, ask, nursery):
    answers = []

    async def read():
        answers.append(await ask("GET", f"{READ}?timeout=60000"))
        done.set()

    done = trio.Event()
    nursery.start_soon(read)
    await wait_all_tasks_blocked(0.01)
    broker.stop()
    await done.wait()
    assert answers[0].status == 200 and answers[0].json["messages"] == []


async def test_a_waiting_read_does_not_count_as_work(broker, orders, app, ask, nursery):
    scope = trio.CancelScope()

    async def read():
        with scope:
            await ask("GET", f"{READ}?timeout=60000")

    nursery.start_soon(read)
    await wait_all_tasks_blocked(0.01)
    assert app.working == 0
    scope.cancel()
    await wait_all_tasks_blocked(0.01)
    assert app.working == 0
    assert (await ask("GET", "/healthz")).status == 200


ROWS = [
    ("STRING", ["", "ä", "x" * 1024 * 1024]),
    ("BYTES", ["", "AAEC/w=="]),
    ("BOOLEAN", [True, False]),
    ("INT8", [-128, 127, 0]),
    ("INT16", [-(2**15), 2**15 - 1]),
    ("INT32", [-(2**31), 2**31 - 1]),
    ("INT64", [-(2**63), 2**63 - 1, 0]),
    ("FLOAT", [0.1, -1.5, "NaN", "Infinity", "-Infinity", 3.4028235e38]),
    ("DOUBLE", [0.1, 5e-324, 1.7976931348623157e308, "NaN", "-Infinity"]),
    ("DATE", [1764000000000, -1]),
    ("TIME", [49500000]),
    ("TIMESTAMP", [1764000000000]),
    ("INSTANT", ["2026-11-21T13:45:00.123456789Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]),
    ("LOCAL_DATE", ["2026-11-21", "0001-01-01", "9999-12-31"]),
    ("LOCAL_TIME", ["13:45:00.5", "00:00:00", "23:59:59.999999999"]),
    ("LOCAL_DATE_TIME", ["2026-11-21T13:45:00", "1969-12-31T00:00:00.000000001"]),
]


@pytest.mark.parametrize(("name", "values"), ROWS, ids=[row[0] for row in ROWS])
async def test_each_type_round_trips(orders, ask, name, values):
    body = {"schema_type": name, "messages": [{"value": value} for value in [*values, None]]}
    answer = await ask("POST", f"{BASE}/partitions/0", body)
    assert answer.status == 200, answer.body
    assert answer.json["schema_version"] == (None if name == "BYTES" else 0)
    extra = "&schema_type=BYTES" if name == "BYTES" else ""
    answer = await ask("GET", f"{READ}?max_bytes=10485760{extra}")
    shown = answer.json["messages"]
    assert [message["value"] for message in shown] == [*values, None]
    assert not any("encoding" in message for message in shown)


async def test_json_keeps_the_text_of_the_request(orders, ask):
    text = b'{"b": 1.10, "a": 123456789012345678901234567890, "c": [ ]}'
    schema = b'{"type": "JSON", "schema": {"type": "record", "name": "x", "fields": []}}'
    body = b'{"value_schema": %b, "messages": [{"value": %b }]}' % (schema, text)
    answer = await ask("POST", f"{BASE}/partitions/0", pieces=[body])
    assert answer.status == 200, answer.body
    assert text in (await ask("GET", READ)).body


async def test_64_bit_numbers_are_text_on_request(orders, ask):
    body = {"schema_type": "INT64", "messages": [{"value": str(2**63 - 1)}]}
    await ask("POST", f"{BASE}/partitions/0", body)
    (message,) = (await ask("GET", f"{READ}?int64=string")).json["messages"]
    assert message["value"] == str(2**63 - 1)


async def test_a_pair_of_key_and_value(orders, ask):
    body = {
        "key_schema": {"type": "INT32"},
        "value_schema": json.dumps({"type": "STRING"}),
        "messages": [{"key": 5, "value": "five"}, {"key": 6, "value": None}],
    }
    answer = await ask("POST", f"{BASE}/partitions/0", body)
    assert answer.status == 200, answer.body
    shown = (await ask("GET", f"{READ}?include_schema=true")).json
    assert [(message["key"], message["value"]) for message in shown["messages"]] == [
        (5, "five"),
        (6, None),
    ]
    (schema,) = shown["schemas"]
    assert schema["type"] == "KEY_VALUE"
    assert schema["properties"]["kv.encoding.type"] == "SEPARATED"


async def test_bytes_that_do_not_fit_their_schema_are_shown_as_base64(orders, ask):
    body = {"messages": [{"value": "/w==", "encoding": "base64"}]}
    await ask("POST", f"{BASE}/partitions/0", body)
    (message,) = (await ask("GET", f"{READ}?schema_type=INT32")).json["messages"]
    assert (message["value"], message["encoding"]) == ("/w==", "base64")
    assert "4 bytes" in message["decode_error"]


async def test_without_schema_text_is_text_or_base64_on_request(five, ask):
    (message,) = (await ask("GET", f"{READ}?max_messages=1")).json["messages"]
    assert (message["value"], message["encoding"]) == ("0", "utf8")
    answer = await ask("GET", f"{READ}?max_messages=1&encoding=base64")
    (message,) = answer.json["messages"]
    assert (message["value"], message["encoding"]) == ("MA==", "base64")


def chunk(number, count, payload, whole):
    metadata = EntryMetadata(producer_name=b"p", sequence_id=0, publish_time=1, uuid=b"u")
    metadata.chunk_id, metadata.num_chunks_from_msg = number, count
    metadata.total_chunk_msg_size = whole
    packed = metadata.SerializeToString()
    entry = len(packed).to_bytes(4, "big") + packed + payload
    return ENTRY_PREFIX.pack(len(entry), 0, 1) + entry


async def test_a_chunked_pulsar_message_is_read_whole_at_its_last_chunk(broker, orders, ask):
    partition = orders.partitions[0]
    pieces = [b"one ", b"two ", b"three"]
    for number, piece in enumerate(pieces):
        body = chunk(number, 3, piece, 13)
        info = PULSAR.inspect(body)
        partition.append([body], info, body_format=PULSAR.format, append_us=1)
        if number == 0:  # Other clients write between the pieces.
            await ask("POST", f"{BASE}/partitions/0", {"messages": [{"value": "between"}]})
    await broker.durability.all_durable()
    answer = (await ask("GET", READ)).json
    assert [(message["offset"], message["value"]) for message in answer["messages"]] == [
        (1, "between"),
        (3, "one two three"),
    ]
    assert answer["next_offset"] == 4
    only = (await ask("GET", f"{READ}?position=2")).json["messages"]
    assert [message["value"] for message in only] in (["one two three"], [])
    created = await ask("POST", f"{BASE}/subscription/s", {"initial_position": "Earliest"})
    path = f"{BASE}/subscription/s/consumer/{created.json['id']}/messages?timeout=1000"
    fetched = (await ask("GET", path)).json["messages"]
    assert [message["value"] for message in fetched] == ["between", "one two three"]
    ids = [message["messageId"] for message in fetched]
    ack = {"type": "Cumulative", "messageIds": [ids[1]]}
    cursor = (await ask("POST", f"{BASE}/subscription/s/cursor", ack)).json["cursor"]
    assert cursor["partitions"][0]["backlog"] == 0
