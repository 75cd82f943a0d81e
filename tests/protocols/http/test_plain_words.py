"""A refused body is answered in plain words: no types, marks and texts of Python's libraries."""

import re

import pytest

from tests.protocols.http.asgi import call
from tests.protocols.http.test_description import NAMES, operations, prepare

LIBRARY = re.compile(
    r"`|\$[.\[]|\[Errno|serialize|Expected|\bgot\b|\bstr\b|\bint\b|NoneType|object is not|attribute"
    r"|recursion|malformed|truncated|[a-z]Error\b|Exception|Traceback|char \d"
)
HUGE = 10**30
BODIES = [
    b"{",
    b"nul",
    b'{"a": 1}x',
    b"\xff",
    b"[" * 5000,
    b'{"a": 1, "a": 2}',
    b"1e999",
    b'{"a": {"b": 1e999}}',
    b"[1,]",
    b"5",
    b"%d" % HUGE,
    b'"x"',
    b'{"partitions": "x", "settings": 5, "active": 1, "roles": {}, "expires_us": []}',
    b'{"expires_us": %d, "password": 5}' % HUGE,
    b'{"settings": {"retention_ms": %d}}' % HUGE,
    b'{"settings": {"durability": "x"}}',
    b'{"settings": {"durability": 5}}',
    b'{"settings": {"segment_bytes": 1}}',
    b'{"settings": {"retention_ms": []}}',
    b'{"subject": 5, "action": {}, "resource": null}',
    b'{"positions": %d}' % HUGE,
    b'{"positions": {"0": "x"}}',
    b'{"positions": {"0": %d}}' % HUGE,
    b'{"messages": 5}',
    b'{"messages": [5]}',
    b'{"messages": [{"properties": 5}]}',
    b'{"messages": [{"properties": {"a": 5}}]}',
    b'{"messages": [{"value": }]}',
    b'{"messages": [{"key": {}}], "key_schema": "x"}',
    b'{"messages": [{"eventTime": %d, "sequenceId": %d}]}' % (HUGE, HUGE),
    b'{"messages": [{}], "value_schema": {"type": "AVRO", "schema": 5}}',
    b'{"messages": [{}], "value_schema": {"type": "AVRO", "schema": {}}}',
    b'{"messages": [{}], "value_schema": {"type": "AVRO", "schema": "{"}}',
    b'{"messages": [{}], "value_schema": {"type": "AVRO", "schema": {"type": "array"}}}',
    b'{"messages": [{}], "value_schema": {"type": "JSON", "schema": "{"}}',
    b'{"messages": [{}], "value_schema": {"type": 5}}',
    b'{"messages": [{}], "schema_version": "x", "schema_type": 5, "producer_name": {}}',
    b'{"messages": [{"value": "x"}], "schema_type": "INT32"}',
    b'{"messages": [{"value": %d}], "schema_type": "INT64"}' % HUGE,
    b'{"name": 5, "id": [], "ack_timeout_ms": %d}' % HUGE,
    b'{"subscription_type": "x"}',
    b'{"type": "Seek", "messageIds": "x"}',
    b'{"type": "Seek", "timestamp": %d}' % HUGE,
    b'{"type": "Cumulative", "messageIds": ["x", 5]}',
    b'{"ledgerId": %d, "entryId": %d}' % (HUGE, HUGE),
    b'{"ledgerId": "x", "entryId": []}',
    b'{"type": "AVRO", "schema": "{", "properties": {}}',
    b'{"type": "AVRO", "schema": "5", "properties": {}}',
    b'{"type": "KEY_VALUE", "schema": "{", "properties": {}}',
    b'{"type": "JSON", "schema": "x", "properties": {"a": 5}}',
    b'{"retentionTimeInMinutes": %d, "retentionSizeInMB": %d}' % (HUGE, HUGE),
    b'{"retentionTimeInMinutes": "x", "retentionSizeInMB": []}',
    b'{"limitSize": %d, "policy": "x"}' % HUGE,
    b'{"limitTime": {}, "limit": %d, "policy": "producer_exception"}' % HUGE,
]


def path_of(path):
    names = NAMES | {"partition": "0", "user": "anna", "token": "nightly"}
    return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], "1"), path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
async def test_no_refusal_shows_the_words_of_a_library(app, part):
    document = (await call(app, "GET", "/openapi.json")).json
    changing = [(method, path) for method, path, _ in operations(document) if method != "GET"]
    shown = {}
    for method, path in changing[part::4]:
        await prepare(app)
        for body in BODIES:
            answer = await call(app, method, path_of(path), pieces=[body])
            assert answer.status == 501 or answer.status < 500, (method, path, body, answer.body)
            if answer.status >= 400 and LIBRARY.search(answer.json["reason"]):
                shown.setdefault(answer.json["reason"], f"{method} {path} {body[:80]!r}")
    assert shown == {}
