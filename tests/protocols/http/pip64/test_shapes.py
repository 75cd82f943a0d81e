"""Rare forms of requests: pairs in a single payload, payloads as text, ids of removed messages, a
client's rate.
"""

import pytest

from braidlog.broker.topics.schemas import SchemaMeta
from braidlog.protocols.http.limits import MESSAGES_MAX
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.values import join_pair
from braidlog.storage.formats.pulsar.entry_runs import PULSAR
from tests.broker.records import append
from tests.protocols.http.pip64.conftest import BASE
from tests.protocols.http.pip64.test_consumers import CURSOR, SUBSCRIPTION, batch_entry
from tests.protocols.http.pip64.test_produce import records_of, total
from tests.protocols.http.pip64.test_reading import chunk

EMPTY = b'{"type": "record", "name": "R", "fields": []}'
SHIPPED = BASE.replace("/topics/", "/topics/persistent/")
PARTITION = f"{BASE}/partitions/0"


@pytest.fixture
def stored(orders, ask):
    """Return `stored`: `await stored(body)` returns the keys and values stored in partition 0."""

    async def stored(body, path=PARTITION):
        answer = await ask("POST", path, body)
        assert answer.status == 200, answer.body
        return [(record.key, record.value) for record in await records_of(orders.partitions[0])]

    return stored


async def test_a_pair_is_stored_in_a_single_payload_by_its_schema(broker, orders, stored):
    properties = {"key.schema.type": "INT32", "value.schema.type": "STRING"}
    schema = SchemaMeta(types.NUMBERS["KEY_VALUE"], "", join_pair(b"", b""), properties)
    broker.schemas.add(orders, schema)
    messages = [{"key": 5, "value": "five"}, {"key": None, "value": "none"}]
    assert await stored({"schema_version": 0, "messages": messages}) == [
        (None, join_pair(b"\0\0\0\5", b"five")),
        (None, join_pair(None, b"none")),
    ]


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        ("BYTES", "text, not base64", b"text, not base64"),
        ("STRING", "5", b"5"),
        ("INT32", "5", b"\0\0\0\5"),
        ("DATE", "1970-01-02", (86_400_000).to_bytes(8, "big")),
    ],
)
async def test_a_payload_is_text_for_any_type(stored, kind, payload, value):
    assert await stored({"schema_type": kind, "messages": [{"payload": payload}]}) == [
        (None, value)
    ]


async def test_the_default_encoding_may_be_named(stored):
    message = {"key": "a2V5", "key_encoding": "base64", "value": "v", "encoding": "utf8"}
    assert await stored({"messages": [message]}) == [(b"key", b"v")]


async def test_no_messages_are_accepted_only_in_the_shipped_dialect(orders, ask):
    assert (await ask("POST", SHIPPED, {"messages": []})).json["messagePublishResults"] == []
    for path in (SHIPPED, BASE):
        answer = await ask("POST", path, pieces=[b'{"messages": null}'])
        assert answer.json["error_code"] == 42205, answer.body
    large = b'{"messages": null, "more": "' + b"x" * 100_000 + b'"}'
    assert (await ask("POST", BASE, pieces=[large])).json["error_code"] == 42205
    assert total(orders) == 0


async def test_a_small_body_may_hold_too_many_messages(orders, ask):
    body = b'{"messages": [' + b"{}," * MESSAGES_MAX + b"{}]}"
    answer = await ask("POST", BASE, pieces=[body])
    assert answer.json["error_code"] == 42205 and "at most" in answer.json["reason"]
    assert total(orders) == 0


async def test_a_type_that_json_cannot_express_takes_only_base64(broker, orders, ask, stored):
    broker.schemas.add(orders, SchemaMeta(types.NUMBERS["PROTOBUF"], "", EMPTY, {}))
    answer = await ask("POST", PARTITION, {"schema_version": 0, "messages": [{"value": 1}]})
    assert answer.json["error_code"] == 42204 and "cannot be given as JSON" in answer.json["reason"]
    message = {"value": "/w==", "encoding": "base64"}
    assert await stored({"schema_version": 0, "messages": [message]}) == [(None, b"\xff")]


async def test_a_topic_without_partitions_takes_nothing(broker, orders, ask):
    await broker.topics.keep_partitions(orders.name, 0)
    answer = await ask("POST", BASE, {"messages": [{"value": "x"}]})
    assert (answer.status, answer.json["error_code"]) == (404, 40402)


async def test_values_are_read_by_primitive_types_only(broker, orders, ask):
    broker.schemas.add(orders, SchemaMeta(types.NUMBERS["AVRO"], "", b'"int"', {}))
    answer = await ask("GET", f"{PARTITION}/messages?schema_type=AVRO")
    assert answer.json["error_code"] == 40002 and "not a primitive type" in answer.json["reason"]


async def test_a_read_continues_behind_a_batch_message_or_at_the_log_start(broker, orders, ask):
    body = batch_entry([b"0", b"1", b"2"])
    orders.partitions[0].append(
        [body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1
    )
    await append(broker, orders.partitions[0], "plain", [b"3"])

    async def values(message_id):
        answer = await ask("GET", f"{PARTITION}/messages?message_id={message_id}")
        return [message["value"] for message in answer.json["messages"]]

    shown = (await ask("GET", f"{PARTITION}/messages")).json["messages"]
    ids = [message["messageId"] for message in shown]
    assert await values(ids[0]) == ["1", "2", "3"]
    assert await values(ids[2]) == ["3"]
    broker.retention.delete_below(orders.partitions[0], 3)
    assert await values(ids[0]) == ["3"]


async def test_a_seek_goes_to_a_message_within_a_batch(broker, orders, ask):
    body = batch_entry([b"0", b"1", b"2"])
    orders.partitions[1].append(
        [body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1
    )
    await broker.durability.all_durable()
    subscription = broker.subscriptions.open(orders, b"billing")
    subscription.start(1, 0)
    shown = (await ask("GET", f"{BASE}/partitions/1/messages")).json["messages"]
    answer = await ask("POST", CURSOR, {"type": "Seek", "messageIds": [shown[2]["messageId"]]})
    assert answer.status == 200, answer.body
    assert subscription.position(1) == 2


async def test_a_chunked_message_is_acknowledged_with_all_chunks(broker, orders, ask):
    for number, piece in enumerate((b"one ", b"two")):
        body = chunk(number, 2, piece, 7)
        orders.partitions[1].append(
            [body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1
        )
    await append(broker, orders.partitions[1], "plain", [b"behind"])
    subscription = broker.subscriptions.open(orders, b"billing")
    subscription.start(1, 0)
    shown = (await ask("GET", f"{BASE}/partitions/1/messages")).json["messages"]
    assert [message["value"] for message in shown] == ["one two", "behind"]
    body = {"type": "Individual", "messageIds": [shown[0]["messageId"]]}
    assert (await ask("POST", CURSOR, body)).status == 200
    assert (subscription.position(1), list(subscription.acked(1))) == (2, [])


async def test_returning_a_message_that_is_not_held_changes_nothing(broker, orders, ask):
    await append(broker, orders.partitions[1], "plain", [b"0", b"1"])
    subscription = broker.subscriptions.open(orders, b"billing")
    subscription.start(1, 0)
    body = {"type": "Negative", "messageIds": ["CAIQABgB"]}
    assert (await ask("POST", CURSOR, body)).status == 200
    broker.retention.delete_below(orders.partitions[1], 1)
    for kind in ("Negative", "Individual"):
        body = {"type": kind, "messageIds": ["CAIQABgB"]}
        assert (await ask("POST", CURSOR, body)).status == 200
    assert subscription.backlog(1) == 1


class FakeAllowance:
    """A client's rate."""

    wait_s = 0.0

    def __init__(self):
        self.spent = [0, 0]

    def spend(self, requests, size):
        self.spent = [self.spent[0] + requests, self.spent[1] + size]
        return self.wait_s


async def test_requests_count_against_the_clients_rate(broker, orders, ask, monkeypatch):
    allowance = FakeAllowance()
    monkeypatch.setattr(broker.quotas, "of", lambda principal: allowance)
    headers = {"content-length": "1000"}
    body = {"messages": [{"value": "x"}]}
    assert (await ask("POST", BASE, body, headers=headers)).status == 200
    assert allowance.spent[0] == 1 and allowance.spent[1] > 1000  # With the answer.
    allowance.wait_s = 2.5
    answer = await ask("POST", SUBSCRIPTION, {})
    assert (answer.status, answer.json["error_code"]) == (429, 42901)
    assert "again in 2.5 s" in answer.json["reason"]
