"""Bodies with a repeated field name in an object: refused, because readers differ
in their choice.
"""

import json

import pytest

from tests.protocols.http.asgi import call
from tests.protocols.http.pip64.conftest import BASE
from tests.protocols.http.pip64.test_produce import records_of, total

RECORD = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}


def schema_of(kind: str) -> str:
    """Return the fields of a request with a schema."""
    schema = json.dumps(RECORD)
    return f'"schema_type": "{kind}", "value_schema": {{"type": "{kind}", "schema": {schema}}}'


@pytest.mark.parametrize("padding", [0, 100_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"messages": [{"value": "a"}], "messages": [{"value": "b"}]}', 40001),
        ('{"messages": [{"value": "a"}, {"value": "b", "value": "c"}]}', 42205),
        ('{"messages": [{"value": "a", "other": 1, "key": null, "key": "k"}]}', 42205),
        (r'{"messages": [{"value": "\u003a", "payload": "\u003a", "payload": ""}]}', 42205),
        ('{"messages": [{"properties": {"p": "1", "p": "2"}}]}', 42205),
        (f'{{{schema_of("AVRO")}, "messages": [{{"value": {{"id": 1, "id": 2}}}}]}}', 42205),
        (
            f'{{{schema_of("AVRO")}, "messages": [{{"value": {{"id": 1}}}}]}}'.replace(
                '"name": "R"', '"name": "R", "name": "S"'
            ),
            42204,
        ),
    ],
    ids=["body", "message", "null", "escaped", "properties", "value", "schema"],
)
async def test_a_repeated_field_name_is_refused(app, orders, body, code, padding):
    answer = await call(app, "POST", BASE, pieces=[body.encode(), b" " * padding])
    assert answer.json["error_code"] == code, answer.body
    assert "an object names a field twice" in answer.json["message"]
    assert total(orders) == 0


async def test_a_json_value_is_the_clients_own_text(app, orders):
    value = '{"a":1,"a":2,"b":null}'
    body = f'{{{schema_of("JSON")}, "messages": [{{"value": {value}, "partition": 0}}]}}'
    answer = await call(app, "POST", BASE, pieces=[body.encode()])
    assert answer.status == 200, answer.body
    (record,) = await records_of(orders.partitions[0])
    assert record.value == value.encode()


@pytest.mark.parametrize("extra", ['"key": null', '"other": {"a": 1}', r'"key": "\u003a"'])
async def test_a_repeated_unused_field_is_accepted(app, orders, extra):
    body = f'{{"messages": [{{"value": "a", "partition": 0, {extra}}}]}}'
    answer = await call(app, "POST", BASE, pieces=[body.encode()])
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", f"{BASE}/subscription/s", '{"name": "a", "name": "b"}', 400),
        ("PUT", "/api/v1/topics/public/default/made", '{"partitions": 1, "partitions": 2}', 400),
        (
            "PUT",
            "/api/v1/topics/public/default/made",
            '{"settings": {"retention_ms": 1, "retention_ms": 2}}',
            400,
        ),
        (
            "POST",
            "/admin/v2/namespaces/public/default/retention",
            '{"retentionSizeInMB": 1, "retentionSizeInMB": 2, "retentionTimeInMinutes": 3}',
            400,
        ),
    ],
)
async def test_every_api_refuses_a_repeated_name(app, orders, method, path, body, status):
    answer = await call(app, method, path, pieces=[body.encode()])
    assert answer.status == status, answer.body
    assert "an object names a field twice" in answer.json["reason"]
