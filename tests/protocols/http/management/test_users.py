"""`/api/v1/users` and `/api/v1/permissions`."""

import pytest
import trio

from tests.protocols.http.asgi import call

USERS = "/api/v1/users"
PERMISSIONS = "/api/v1/permissions"


async def test_a_user_is_created_shown_changed_and_removed(app):
    created = await call(
        app, "PUT", f"{USERS}/anna", {"password": "secret one", "roles": ["readers"]}
    )
    assert created.status == 201
    assert (created.json["name"], created.json["has_password"]) == ("anna", True)
    assert "secret" not in created.body.decode() and "argon2" not in created.body.decode()
    changed = await call(app, "PATCH", f"{USERS}/anna", {"active": False, "roles": []})
    assert (changed.json["active"], changed.json["roles"]) == (False, [])
    listed = await call(app, "GET", USERS)
    assert [user["name"] for user in listed.json["users"]] == ["anna"]
    assert (await call(app, "DELETE", f"{USERS}/anna")).status == 204
    assert (await call(app, "GET", f"{USERS}/anna")).status == 404


async def test_a_changed_password_replaces_the_old_password(app, broker):
    await call(app, "PUT", f"{USERS}/anna", {"password": "one"})
    await call(app, "PATCH", f"{USERS}/anna", {"password": "two"})
    assert (await broker.users.verify("anna", "two", "here")).name == "anna"


async def test_a_name_may_have_characters_that_a_url_must_encode(app):
    assert (await call(app, "PUT", f"{USERS}/a%2Fb%20%C3%A4", {})).json["name"] == "a/b ä"
    assert (await call(app, "GET", f"{USERS}/a%2Fb%20%C3%A4")).status == 200
    assert (await call(app, "GET", f"{USERS}/%FF")).status == 422


async def test_a_token_is_shown_once(app, broker):
    await call(app, "PUT", f"{USERS}/anna", {})
    created = await call(app, "PUT", f"{USERS}/anna/tokens/ci", {"expires_us": 2**60})
    assert created.status == 201
    assert broker.users.verify_token(created.json["token"], "here")[0].name == "anna"
    shown = await call(app, "GET", f"{USERS}/anna")
    assert [token["name"] for token in shown.json["tokens"]] == ["ci"]
    assert created.json["token"] not in shown.body.decode()
    assert (await call(app, "PUT", f"{USERS}/anna/tokens/ci", {})).status == 409
    assert (await call(app, "DELETE", f"{USERS}/anna/tokens/ci")).status == 204
    assert (await call(app, "DELETE", f"{USERS}/anna/tokens/ci")).status == 404


async def test_a_token_may_be_revoked_before_it_is_on_disk(app, broker):
    await call(app, "PUT", f"{USERS}/anna", {})
    statuses = []

    async def make():
        statuses.append((await call(app, "PUT", f"{USERS}/anna/tokens/ci", {})).status)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make)
        while not broker.users.get("anna").tokens:
            await trio.lowlevel.checkpoint()
        await broker.users.delete_token(broker.users.get("anna"), "ci")
    assert statuses == [201]


async def test_permissions_are_granted_tested_listed_and_revoked(app):
    await call(app, "PUT", f"{USERS}/anna", {})
    grant = {"subject": "anna", "action": "consume", "resource": "public/default/orders@billing"}
    assert (await call(app, "POST", PERMISSIONS, grant)).status == 201
    assert (await call(app, "GET", f"{PERMISSIONS}?subject=anna")).json["permissions"] == [grant]
    assert (await call(app, "GET", f"{PERMISSIONS}?subject=bert")).json["permissions"] == []
    ask = f"{PERMISSIONS}/test?user=anna&action=consume&resource=public/default/orders@"
    assert (await call(app, "GET", f"{ask}billing")).json["allowed"]
    assert not (await call(app, "GET", f"{ask}audit")).json["allowed"]
    named = "subject=anna&action=consume&resource=public/default/orders@billing"
    assert (await call(app, "DELETE", f"{PERMISSIONS}?{named}")).status == 204
    assert (await call(app, "DELETE", f"{PERMISSIONS}?{named}")).status == 404
    assert not (await call(app, "GET", f"{ask}billing")).json["allowed"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", f"{USERS}/{'a' * 256}", {}, 422),
        ("PUT", f"{USERS}/anna", {"password": ""}, 422),
        ("PUT", f"{USERS}/anna", {"password": 7}, 400),
        ("PUT", f"{USERS}/anna", {"admin": True}, 400),
        ("PATCH", f"{USERS}/nobody", {"active": True}, 404),
        ("PUT", f"{USERS}/nobody/tokens/ci", {}, 404),
        ("POST", PERMISSIONS, {"subject": "a", "action": "dance", "resource": "*"}, 422),
        ("POST", PERMISSIONS, {"subject": "a", "action": "produce", "resource": "a//b"}, 422),
        ("POST", PERMISSIONS, {"subject": "a"}, 400),
        ("GET", f"{PERMISSIONS}/test?user=nobody&action=produce&resource=*", None, 404),
        ("GET", f"{PERMISSIONS}/test?user=nobody&action=dance&resource=a", None, 422),
    ],
)
async def test_invalid_requests_are_refused(app, broker, method, path, body, status):
    await broker.durability.all_durable()  # So an earlier lazy write is not counted below.
    ticket = broker.durability.ticket
    assert (await call(app, method, path, body)).status == status
    assert broker.durability.ticket == ticket
