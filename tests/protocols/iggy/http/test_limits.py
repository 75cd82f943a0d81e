"""Bodies and headers of the HTTP API that would hold up other clients are refused."""

import base64

import pytest

from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fields import OPTIONS_BYTES_MAX, OPTIONS_MAX
from braidlog.protocols.iggy.http.app import REASON_CHARACTERS_MAX
from braidlog.protocols.iggy.http.json_messages import HEADERS_BYTES_MAX
from braidlog.protocols.iggy.http.routes import (
    COMMAND_BODY_BYTES_MAX,
    PUBLIC_BODY_BYTES_MAX,
    ROWS,
)
from braidlog.protocols.iggy.permission_field import PERMITTED_MAX

MESSAGES = "/streams/st/topics/tp/messages"
BALANCED = {"kind": "balanced"}


def a_path_of(row) -> str:
    path = row.path.replace("{stream}", "st").replace("{topic}", "tp").replace("{user}", "1")
    return path.replace("{", "").replace("}", "")


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.method != "GET" and not row.takes_messages],
    ids=lambda row: f"{row.method} {row.path}",
)
async def test_a_body_without_messages_has_a_small_limit(client, row):
    """The JSON of 4 MiB may be 300,000 objects, whose reading takes a fifth of a second."""
    limit = PUBLIC_BODY_BYTES_MAX if row.is_public else COMMAND_BODY_BYTES_MAX
    status, answer = await client.ask(row.method, a_path_of(row), b" " * (limit + 1))
    assert (status, answer["reason"]) == (413, f"the body may have {limit} bytes")


async def test_the_largest_permissions_fit(client):
    await client.ask("POST", "/users", {"username": "bob", "password": "secret"})
    rights = dict.fromkeys(("manage_topic", "read_topic", "poll_messages", "send_messages"), False)
    topics = {str(4_000_000_000 + number): rights for number in range(PERMITTED_MAX - 1)}
    body = {"permissions": {"global": {}, "streams": {"0": {"topics": topics}}}}
    status, answer = await client.ask("PUT", "/users/bob/permissions", body)
    assert (status, answer["id"]) == (404, ErrorCode.TOPIC_ID_NOT_FOUND)


@pytest.mark.parametrize(
    "options",
    [
        {f"key{number}": "1" for number in range(OPTIONS_MAX + 1)},
        {"segment_size": "1" * OPTIONS_BYTES_MAX},
        {"k" * OPTIONS_BYTES_MAX: "1"},
    ],
    ids=["many", "long value", "long key"],
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/streams/st/topics", {"name": "new", "partitions_count": 1}),
        ("PUT", "/streams/st/topics/tp", {"name": "tp"}),
        ("POST", "/streams", {"name": "new"}),
        ("PUT", "/streams/st", {"name": "st"}),
        ("PUT", "/users/1", {}),
    ],
)
async def test_options_have_the_limits_of_the_binary_protocol(client, method, path, body, options):
    status, answer = await client.ask(method, path, {**body, "options": options})
    assert (status, answer["id"]) == (400, ErrorCode.OPTIONS_BLOCK_TOO_LARGE)


@pytest.mark.parametrize("form", ["list", "text"])
@pytest.mark.parametrize("more", [0, 1])
async def test_headers_of_a_message_have_a_limit(client, form, more):
    pairs = [(b"k%09d" % number, b"v" * 230) for number in range(HEADERS_BYTES_MAX // 250)]
    pairs[0] = (pairs[0][0], b"v" * (230 + more))
    if form == "list":
        headers = [{"key": raw(key), "value": raw(value)} for key, value in pairs]
    else:
        packed = b"".join(packed_raw(key) + packed_raw(value) for key, value in pairs)
        assert len(packed) == HEADERS_BYTES_MAX + more
        headers = encoded(packed)
    message = {"payload": "YQ==", "user_headers": headers}
    body = {"partitioning": BALANCED, "messages": [message]}
    status, answer = await client.ask("POST", MESSAGES, body)
    if more:
        assert (status, answer["id"]) == (400, ErrorCode.TOO_BIG_HEADERS_PAYLOAD)
        return
    assert status == 201
    partition = answer["confirmations"][0]["partition_id"]
    _, polled = await client.ask("GET", f"{MESSAGES}?partition_id={partition}")
    assert polled["messages"][0]["user_headers"] == [
        {"key": raw(key), "value": raw(value)} for key, value in pairs
    ]


def raw(value: bytes) -> dict[str, str]:
    return {"kind": "raw", "value": encoded(value)}


def packed_raw(value: bytes) -> bytes:
    return b"\1" + len(value).to_bytes(4, "little") + value


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


async def test_many_headers_are_refused_before_they_are_read(client):
    field = {"kind": "raw", "value": "YQ=="}
    headers = [{"key": field, "value": field}] * 9_999 + [
        {"key": field, "value": {**field, "value": "?"}}
    ]
    body = {"partitioning": BALANCED, "messages": [{"payload": "YQ==", "user_headers": headers}]}
    status, answer = await client.ask("POST", MESSAGES, body)
    assert (status, answer["id"]) == (400, ErrorCode.TOO_BIG_HEADERS_PAYLOAD)


async def test_the_reason_of_an_error_is_short(client):
    status, answer = await client.ask("POST", "/streams/st/topics", {"name": "\n" * 200_000})
    assert status == 400 and len(answer["reason"]) == REASON_CHARACTERS_MAX
