"""The calls of Iggy's web UI, as its pages make them (apache/iggy, web/src/lib/api/ApiSchema.ts at
4ca831a45): numbers instead of names, and the bodies of its forms.
"""

import pytest

TOPIC = {
    "compression_algorithm": "gzip",
    "max_topic_size": 0,
    "message_expiry": 0,
    "name": "made",
    "partitions_count": 1,
    "stream_id": 0,
}
CHANGED = {
    "name": "renamed",
    "message_expiry": 0,
    "compression_algorithm": 1,
    "max_topic_size": 0,
}
USER = {"username": "anna", "password": "secret", "status": "active", "permissions": None}
NO_PERMISSIONS = {
    "global": dict.fromkeys(
        (
            *("manage_servers", "read_servers", "manage_users", "read_users"),
            *("manage_streams", "read_streams", "manage_topics", "read_topics"),
            *("poll_messages", "send_messages"),
        ),
        False,
    ),
    "streams": {},
}
MESSAGES = "/streams/0/topics/0/messages?kind=offset&value=0&count=20&auto_commit=false"


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/users/login", {"username": "iggy", "password": "iggy"}),
        ("GET", "/stats", None),
        ("GET", "/streams", None),
        ("GET", "/streams/0", None),
        ("POST", "/streams", {"name": "made"}),
        ("PUT", "/streams/0", {"name": "renamed"}),
        ("DELETE", "/streams/0", None),
        ("GET", "/streams/0/topics", None),
        ("GET", "/streams/0/topics/0", None),
        ("POST", "/streams/0/topics", TOPIC),
        ("PUT", "/streams/0/topics/0", CHANGED),
        ("DELETE", "/streams/0/topics/0", None),
        ("GET", f"{MESSAGES}&partition_id=0", None),
        ("POST", "/streams/0/topics/0/partitions", {"partitions_count": 1}),
        ("DELETE", "/streams/0/topics/0/partitions?partitions_count=1", None),
        ("GET", "/users", None),
        ("GET", "/users/0", None),
        ("POST", "/users", USER),
        ("PUT", "/users/0/password", {"current_password": "iggy", "new_password": "another"}),
        ("POST", "/users/logout", None),
    ],
)
async def test_a_call_of_the_web_ui_succeeds(client, method, target, body):
    status, answer = await client.ask(method, target, body)
    assert status in (200, 204), answer


async def test_the_web_ui_changes_and_deletes_users(client):
    _, created = await client.ask("POST", "/users", USER)
    path = f"/users/{created['id']}"
    body = {"permissions": NO_PERMISSIONS}
    assert (await client.ask("PUT", f"{path}/permissions", body))[0] == 204
    _, shown = await client.ask("GET", path)
    assert shown["permissions"]["global"] == NO_PERMISSIONS["global"]
    change = {"username": "anna", "status": "inactive"}
    assert (await client.ask("PUT", path, change))[0] == 204
    assert (await client.ask("DELETE", path))[0] == 204


async def test_the_web_ui_refreshes_its_token(client):
    status, answer = await client.ask("POST", "/users/refresh-token", {"token": client.token})
    assert (status, answer["user_id"]) == (200, 0)


async def test_the_message_page_shows_the_current_offset(client):
    status, answer = await client.ask("GET", f"{MESSAGES}&partition_id=0")
    assert status == 200
    assert {"partition_id", "current_offset", "count", "messages"} <= {*answer}
