"""The examples of PIP-64's endpoints, as `docs/api.md` shows them."""

from tests.protocols.http.pip64.conftest import BASE
from tests.protocols.http.pip64.example_bodies import FIRST_TWO


async def test_produce_with_a_schema_then_with_its_version_then_read(orders, ask):
    answer = await ask("POST", BASE, FIRST_TWO)
    assert answer.status == 200, answer.body
    assert answer.json == {
        "schema_version": 0,
        "messageIds": [
            {"partition": 1, "messageId": "CAIQABgB", "error_code": None, "error": None},
            {"partition": 1, "messageId": "CAIQARgB", "error_code": None, "error": None},
        ],
    }
    again = {"schema_version": 0, "messages": [{"value": {"id": 9, "note": None}}]}
    answer = await ask("POST", f"{BASE}/partitions/1", again)
    assert answer.json["messageIds"][0]["messageId"] == "CAIQAhgB"

    path = f"{BASE}/partitions/1/messages?max_messages=2&include_schema=true"
    answer = await ask("GET", path)
    assert answer.status == 200, answer.body
    first, second = answer.json["messages"]
    assert first == {
        "messageId": "CAIQABgB",
        "partition": 1,
        "offset": 0,
        "key": "c1",
        "value": {"id": 7, "note": {"string": "first"}},
        "properties": {"src": "web"},
        "publishTime": 1795228435964,
        "eventTime": 1764000000000,
        "producerName": "rest",
        "schema_version": 0,
    }
    assert second["messageId"] == "CAIQARgB"
    assert second["value"] == {"id": 8, "note": None}
    assert "key" not in second and second["properties"] == {}
    (schema,) = answer.json["schemas"]
    assert (schema["type"], schema["version"]) == ("AVRO", 0)
    assert schema["data"].startswith("eyJ0eXBl")
    assert answer.json["next_offset"] == 2
    assert answer.json["next_message_id"] == "CAIQARgB"
    assert answer.json["log_start_offset"] == 0
    assert answer.json["high_watermark"] == 3


async def test_the_shipped_dialect(orders, ask):
    body = {"producerName": "cli", "messages": [{"key": "k", "payload": '{"id": 1}'}]}
    answer = await ask("POST", "/topics/persistent/public/default/orders", body)
    assert answer.status == 200, answer.body
    (result,) = answer.json["messagePublishResults"]
    ledger, entry, partition = map(int, result["messageId"].split(":"))
    assert entry == 0 and ledger == partition + 1
    assert result == {"messageId": result["messageId"], "errorCode": 0, "schemaVersion": 0}
    assert answer.json["schemaVersion"] == -1
