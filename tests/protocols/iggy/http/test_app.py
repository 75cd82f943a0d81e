"""Iggy's HTTP API: each path, rights, limits and errors."""

import base64

import pytest
import structlog

from braidlog.protocols.iggy.http.routes import ROWS
from tests.protocols.iggy.talk import Talk

MESSAGES = "/streams/st/topics/tp/messages"
OFFSETS = "/streams/st/topics/tp/consumer-offsets"
GROUPS = "/streams/st/topics/tp/consumer-groups"
PARTITION_0 = {"kind": "partition_id", "value": "AAAAAA=="}
HEADER = {
    "key": {"kind": "string", "value": "a2V5"},
    "value": {"kind": "uint32", "value": "BwAAAA=="},
}


def base64_of(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


async def send(client, *payloads: bytes, partitioning=PARTITION_0, **more):
    messages = [{"id": 0, "payload": base64_of(payload), **more} for payload in payloads]
    body = {"partitioning": partitioning, "messages": messages}
    return await client.ask("POST", MESSAGES, body)


async def payloads(client, query: str) -> list[bytes]:
    status, answer = await client.ask("GET", f"{MESSAGES}?{query}")
    assert status == 200, answer
    return [base64.b64decode(message["payload"]) for message in answer["messages"]]


async def test_streams(client):
    status, created = await client.ask("POST", "/streams", {"name": "other"})
    assert (status, created["id"], created["name"], created["topics"]) == (200, 1, "other", [])
    _, listed = await client.ask("GET", "/streams")
    assert [(stream["id"], stream["name"]) for stream in listed] == [(0, "st"), (1, "other")]
    assert (await client.ask("PUT", "/streams/1", {"name": "renamed"}))[0] == 204
    _, shown = await client.ask("GET", "/streams/renamed")
    assert (shown["id"], shown["size"]) == (1, "0 B")
    assert (await client.ask("DELETE", "/streams/1/purge"))[0] == 204
    assert (await client.ask("DELETE", "/streams/1"))[0] == 204
    status, error = await client.ask("GET", "/streams/1")
    assert status == 404
    assert error == {
        "id": 1009,
        "code": "stream_id_not_found",
        "reason": "stream id not found",
        "field": "stream_id",
    }
    status, error = await client.ask("POST", "/streams", {"name": "st"})
    assert (status, error["id"], error["field"]) == (400, 1012, "name")


async def test_topics(client):
    body = {
        "name": "long",
        "partitions_count": 3,
        "compression_algorithm": "gzip",
        "message_expiry": 60_000_000,
        "max_topic_size": 6_000_000_000,
        "options": {"segment_size": "128 MiB"},
    }
    status, created = await client.ask("POST", "/streams/0/topics", body)
    assert status == 200
    assert (created["id"], created["name"], len(created["partitions"])) == (1, "long", 3)
    assert (created["message_expiry"], created["compression_algorithm"]) == (60_000_000, "gzip")
    assert created["options"]["segment_size"] == {
        "value": "134217728",
        "kind": "uint64",
        "explicit": True,
    }
    change = {"name": "longer", "message_expiry": "never_expire"}
    assert (await client.ask("PUT", "/streams/st/topics/1", change))[0] == 204
    _, shown = await client.ask("GET", "/streams/st/topics/longer")
    assert shown["message_expiry"] == (1 << 64) - 1
    assert shown["max_topic_size"] == 6_000_000_000
    partitions = "/streams/st/topics/longer/partitions"
    assert (await client.ask("POST", partitions, {"partitions_count": 2}))[0] == 200
    assert (await client.ask("DELETE", f"{partitions}?partitions_count=1"))[0] == 204
    _, listed = await client.ask("GET", "/streams/st/topics")
    assert [(topic["name"], topic["partitions_count"]) for topic in listed] == [
        ("tp", 2),
        ("longer", 4),
    ]
    assert (await client.ask("DELETE", f"{partitions}/0?segments_count=1"))[0] == 204
    assert (await client.ask("DELETE", "/streams/st/topics/longer/purge"))[0] == 204
    assert (await client.ask("DELETE", "/streams/st/topics/longer"))[0] == 204
    assert (await client.ask("GET", "/streams/st/topics/longer"))[0] == 404


@pytest.mark.parametrize(
    ("options", "number"), [({"nothing": "1"}, 4041), ({"segment_size": "much"}, 4042)]
)
async def test_options_of_a_topic_are_checked(client, options, number):
    body = {"name": "bad", "partitions_count": 1, "options": options}
    status, error = await client.ask("POST", "/streams/st/topics", body)
    assert (status, error["id"]) == (400, number)


async def test_messages_are_sent_and_polled(client):
    status, answer = await send(client, b"one", b"two", user_headers=[HEADER])
    assert status == 201
    place = {"stream_id": 0, "topic_id": 0, "partition_id": 0, "base_offset": 0}
    assert answer == {"confirmations": [place]}
    _, polled = await client.ask("GET", f"{MESSAGES}?consumer_id=7&partition_id=0&count=5")
    assert (polled["partition_id"], polled["current_offset"], polled["count"]) == (0, 1, 2)
    first, second = polled["messages"]
    assert first["user_headers"] == [HEADER]
    assert (first["header"]["offset"], second["header"]["offset"]) == (0, 1)
    assert first["header"]["id"] != second["header"]["id"]
    assert first["header"]["payload_length"] == 3


async def test_each_start_of_a_poll(client):
    await send(client, b"0", b"1", b"2")
    assert await payloads(client, "kind=first&count=2") == [b"0", b"1"]
    assert await payloads(client, "kind=last&count=2") == [b"1", b"2"]
    assert await payloads(client, "kind=offset&value=2") == [b"2"]
    assert await payloads(client, "kind=timestamp&value=0&count=1") == [b"0"]
    assert await payloads(client, "kind=next&count=2&auto_commit=true&consumer_id=c") == [
        b"0",
        b"1",
    ]
    assert await payloads(client, "kind=next&count=2&auto_commit=true&consumer_id=c") == [b"2"]
    assert await payloads(client, "partition_id=1") == []


async def test_each_choice_of_a_partition(client):
    for _ in range(2):
        await send(client, b"turn", partitioning={"kind": "balanced", "value": ""})
    assert await payloads(client, "partition_id=0") == [b"turn"]
    assert await payloads(client, "partition_id=1") == [b"turn"]
    key = {"kind": "messages_key", "value": base64_of(b"key-1")}
    _, answer = await send(client, b"keyed", partitioning=key)
    (place,) = answer["confirmations"]
    assert b"keyed" in await payloads(client, f"partition_id={place['partition_id']}")


async def test_headers_may_be_bytes(client):
    packed = b"\x02\x03\x00\x00\x00key\x0b\x04\x00\x00\x00\x07\x00\x00\x00"
    await send(client, b"m", user_headers=base64_of(packed))
    _, polled = await client.ask("GET", MESSAGES)
    assert polled["messages"][0]["user_headers"] == [HEADER]


async def test_offsets(client):
    await send(client, b"0", b"1", b"2")
    place = f"{OFFSETS}?consumer_id=reader&partition_id=0"
    assert (await client.ask("GET", place))[0] == 404
    body = {"consumer_id": "reader", "partition_id": 0, "offset": 1}
    assert (await client.ask("PUT", OFFSETS, body))[0] == 204
    assert await client.ask("GET", place) == (
        200,
        {"partition_id": 0, "current_offset": 2, "stored_offset": 1},
    )
    assert (await client.ask("PUT", OFFSETS, body | {"offset": 9}))[1]["id"] == 4100
    assert (await client.ask("DELETE", f"{OFFSETS}/reader?partition_id=0"))[0] == 204
    assert (await client.ask("DELETE", f"{OFFSETS}/reader?partition_id=0"))[0] == 404


async def test_groups(client):
    _, created = await client.ask("POST", GROUPS, {"name": "grp"})
    assert created == {
        "id": 0,
        "name": "grp",
        "partitions_count": 2,
        "members_count": 0,
        "members": [],
    }
    assert (await client.ask("GET", GROUPS))[1] == [
        {"id": 0, "name": "grp", "partitions_count": 2, "members_count": 0}
    ]
    assert (await client.ask("GET", f"{GROUPS}/0"))[1]["name"] == "grp"
    assert (await client.ask("DELETE", f"{GROUPS}/grp"))[0] == 204
    assert (await client.ask("GET", f"{GROUPS}/grp"))[0] == 404


RIGHTS = {
    "global": {"read_servers": True},
    "streams": {"0": {"read_stream": True, "topics": {"0": {"poll_messages": True}}}},
}


async def test_users(client, make_client):
    user = {"username": "bob", "password": "secret", "status": "active", "permissions": RIGHTS}
    status, created = await client.ask("POST", "/users", user)
    assert (status, created["id"], created["status"]) == (200, 1, "active")
    assert created["permissions"]["global"]["read_servers"]
    assert created["permissions"]["streams"]["0"]["topics"]["0"]["poll_messages"]
    change = {"current_password": "secret", "new_password": "other"}
    assert (await client.ask("PUT", "/users/bob/password", change))[0] == 204
    bob = make_client()
    bob.app = client.app
    assert await bob.login("bob", "secret") == 400
    assert await bob.login("bob", "other") == 200
    assert (await bob.ask("GET", "/users/me"))[1]["username"] == "bob"
    assert (await bob.ask("GET", "/users/0"))[0] == 403
    none = {"permissions": {"global": {}, "streams": None}}
    assert (await client.ask("PUT", "/users/bob/permissions", none))[0] == 204
    assert (await bob.ask("GET", MESSAGES))[0] == 403
    assert (await client.ask("PUT", "/users/bob", {"username": "rob"}))[0] == 204
    _, listed = await client.ask("GET", "/users")
    assert [user["username"] for user in listed] == ["iggy", "rob"]
    assert (await client.ask("PUT", "/users/rob", {"status": "inactive"}))[0] == 204
    assert (await bob.ask("GET", "/users/me"))[0] == 401
    assert (await client.ask("DELETE", "/users/1"))[0] == 204
    assert (await client.ask("GET", "/users/rob"))[0] == 404


async def test_rights_are_those_of_every_protocol(client, make_client):
    await send(client, b"seen")
    user = {"username": "bob", "password": "secret", "permissions": RIGHTS}
    await client.ask("POST", "/users", user)
    bob = make_client()
    bob.app = client.app
    await bob.login("bob", "secret")
    assert await payloads(bob, "kind=first") == [b"seen"]
    assert (await send(bob, b"no"))[0] == 403
    assert (await bob.ask("POST", "/streams", {"name": "no"}))[0] == 403
    assert (await bob.ask("GET", "/stats"))[0] == 200


async def test_tokens(client, make_client):
    _, created = await client.ask("POST", "/personal-access-tokens", {"name": "tok", "expiry": 0})
    listed = [{"name": "tok", "expiry_at": None}]
    assert (await client.ask("GET", "/personal-access-tokens"))[1] == listed
    other = make_client()
    status, answer = await other.ask(
        "POST", "/personal-access-tokens/login", {"token": created["token"]}
    )
    assert (status, answer["user_id"]) == (200, 0)
    other.token = answer["access_token"]["token"]
    assert (await other.ask("GET", "/streams"))[0] == 200
    assert (await client.ask("DELETE", "/personal-access-tokens/tok"))[0] == 204
    assert (await other.ask("GET", "/streams"))[0] == 401


async def test_the_broker(client, connect):
    over_tcp = await connect()
    await over_tcp.login()
    _, stats = await client.ask("GET", "/stats")
    assert (stats["streams_count"], stats["clients_count"]) == (1, 1)
    _, (listed,) = await client.ask("GET", "/clients")
    assert (listed["transport"], listed["user_id"]) == ("TCP", 0)
    _, shown = await client.ask("GET", f"/clients/{listed['client_id']}")
    assert shown["consumer_groups"] == []
    assert (await client.ask("GET", "/clients/4294967295"))[0] == 404
    _, cluster = await client.ask("GET", "/cluster/metadata")
    assert cluster["nodes"][0]["role"] == "leader"
    _, options = await client.ask("GET", "/options/topic")
    assert "segment_size" in {option["key"] for option in options}
    status, error = await client.ask("POST", "/snapshot", {})
    assert (status, error["id"]) == (400, 5)
    assert await client.ask("GET", "/ping") == (200, b"pong")
    assert (await client.ask("GET", "/"))[0] == 200


async def test_topics_are_those_of_the_binary_protocol(client, connect):
    talk: Talk = await connect()
    await talk.login("0.10.0")
    await send(client, b"over http")
    assert [stream["name"] for stream in (await talk.ask(201))["streams"]] == ["st"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
async def test_every_path_but_the_public_ones_needs_a_login(make_client, row):
    client = make_client()
    status, answer = await client.ask(row.method, row.path.replace("{", "").replace("}", ""), {})
    assert row.is_public or (status, answer["id"]) == (401, 40)
    public = {"/", "/ping", "/users/login", "/users/refresh-token", "/personal-access-tokens/login"}
    assert row.is_public == (row.path in public)


@pytest.mark.parametrize("token", ["x", "a.b.c", ""])
async def test_a_bad_token_is_refused(make_client, token):
    client = make_client()
    status, error = await client.ask("GET", "/streams", authorization=f"Bearer {token}")
    assert (status, error["id"]) == (401, 40)


async def test_a_wrong_password_is_refused(make_client):
    client = make_client()
    assert await client.login(password="wrong") == 400
    assert await client.login("nobody") == 400


async def test_logout_ends_the_token(client):
    assert (await client.ask("DELETE", "/users/logout"))[0] == 204
    assert (await client.ask("GET", "/streams"))[0] == 401


async def test_a_token_is_refreshed(client):
    earlier = client.token
    _, answer = await client.ask("POST", "/users/refresh-token", {"token": earlier})
    client.token = answer["access_token"]["token"]
    assert client.token != earlier
    assert (await client.ask("GET", "/streams"))[0] == 200
    status, _ = await client.ask("POST", "/users/refresh-token", {"token": "x.y.z"})
    assert status == 401


BAD_BODIES = [
    ("POST", "/streams", b"{"),
    ("POST", "/streams", b"[]"),
    ("POST", "/streams", b'{"name": 5}'),
    ("POST", "/streams", b'{"name": "\xff"}'),
    ("POST", "/streams", b"[" * 100_000),
    ("POST", "/streams/st/topics", b'{"name": "x", "partitions_count": -1}'),
    ("POST", "/streams/st/topics", b'{"name": "x", "message_expiry": 18446744073709551616}'),
    ("POST", MESSAGES, b'{"partitioning": {"kind": "balanced"}, "messages": []}'),
    ("POST", MESSAGES, b'{"partitioning": {"kind": "luck"}, "messages": [{"payload": "YQ=="}]}'),
    ("POST", MESSAGES, b'{"partitioning": {"kind": "balanced"}, "messages": [{"payload": "!"}]}'),
    (
        "POST",
        MESSAGES,
        b'{"partitioning": {"kind": "partition_id", "value": "AA=="},'
        b' "messages": [{"payload": "YQ=="}]}',
    ),
    (
        "POST",
        MESSAGES,
        b'{"partitioning": {"kind": "balanced"}, "messages": [{"payload": "YQ==", "id": -1}]}',
    ),
    ("PUT", OFFSETS, b'{"offset": -1}'),
    ("PUT", OFFSETS, b'{"offset": 1, "consumer_id": -1}'),
    ("GET", f"{MESSAGES}?kind=luck", b""),
    ("GET", f"{MESSAGES}?count=-1", b""),
    ("GET", f"{MESSAGES}?value={'9' * 50}", b""),
    ("GET", f"{MESSAGES}?auto_commit=maybe", b""),
    ("GET", f"{MESSAGES}?{'&'.join(f'a{at}=1' for at in range(40))}", b""),
    ("GET", "/options/nothing", b""),
    ("GET", f"{MESSAGES}?count={'9' * 5000}", b""),
    ("GET", f"{MESSAGES}?count={'0' * 40}{'9' * 40}", b""),
    ("GET", f"{MESSAGES}?consumer_id={'9' * 5000}", b""),
    ("GET", f"{MESSAGES}?consumer_id={'x' * 256}", b""),
    ("GET", f"{MESSAGES}?consumer_id=%FF", b""),
    ("GET", "/streams/%FF", b""),
    ("PUT", OFFSETS, b'{"offset": 1, "consumer_id": "%s"}' % (b"9" * 5000)),
    ("PUT", OFFSETS, b'{"offset": 1, "consumer_id": "%s"}' % (b"x" * 256)),
    ("POST", "/streams/st/topics/tp/consumer-groups", b'{"name": "%s"}' % (b"x" * 256)),
    ("POST", "/streams/st/topics/tp/consumer-groups", b'{"name": ""}'),
    ("PUT", "/users/0/permissions", b'{"permissions": {"global": {}, "streams": {"x": {}}}}'),
]


@pytest.mark.parametrize(("method", "target", "body"), BAD_BODIES)
async def test_bad_input_gets_a_readable_error(client, method, target, body):
    status, error = await client.ask(method, target, body)
    assert status == 400 and error["reason"]


async def test_a_body_above_the_limit_is_refused(make_client):
    client = make_client(request_bytes_max=1024)
    status, error = await client.ask("POST", "/users/login", b"x" * 1025)
    assert (status, error["code"]) == (413, "payload_too_large")
    status, _ = await client.ask("POST", "/users/login", b"", **{"content-length": "9999"})
    assert status == 413


async def test_bodies_of_all_requests_have_a_limit(make_client):
    client = make_client(body_bytes_all_max=100)
    status, _ = await client.ask("POST", "/users/login", b"x" * 101)
    assert (status, client.headers["retry-after"]) == (503, "1")
    assert await client.login() == 200


async def test_other_paths_and_methods(client):
    assert (await client.ask("GET", "/nothing"))[0] == 404
    status, _ = await client.ask("PATCH", "/streams", {})
    assert (status, client.headers["allow"]) == (405, "GET, POST")
    assert (await client.ask("OPTIONS", "/streams"))[0] == 204


@pytest.mark.parametrize("path", ["/streams/{}", "/users/{}", "/streams/st/topics/{}"])
async def test_a_number_may_have_any_length(client, path):
    """Python refuses to convert more than 4,300 digits."""
    assert (await client.ask("GET", path.format("9" * 5000)))[0] == 404
    assert (await client.ask("GET", f"{MESSAGES}?partition_id={'0' * 5000}&count=1"))[0] == 200


async def test_names_may_be_percent_encoded(client):
    body = {"name": "with space"}
    status, created = await client.ask("POST", "/streams", body)
    if status == 200:
        assert (await client.ask("GET", "/streams/with%20space"))[1]["id"] == created["id"]
    assert (await client.ask("GET", "/streams/%73t"))[1]["id"] == 0


@pytest.mark.parametrize(
    ("allowed", "origin", "is_allowed"),
    [
        ((), "http://a.example", False),
        (("http://a.example",), "http://a.example", True),
        (("*",), "http://b.example", True),
        (("http://a.example",), "http://b.example", False),
    ],
)
async def test_scripts_of_allowed_pages_may_read_answers(make_client, allowed, origin, is_allowed):
    client = make_client(allowed_origins=allowed)
    await client.ask("OPTIONS", "/streams", origin=origin)
    expected = origin if is_allowed else None
    assert client.headers.get("access-control-allow-origin") == expected


async def test_a_bug_ends_only_its_request(client, monkeypatch):
    monkeypatch.setattr(client.app, "_session", None)
    with structlog.testing.capture_logs() as events:
        assert (await client.ask("GET", "/streams"))[0] == 500
    assert [event["event"] for event in events] == ["request_failed"]
    assert await client.ask("GET", "/ping") == (200, b"pong")
