"""Restrictions of a namespace on its subscriptions: names by the user, and lists of users."""

import base64

import pytest

from braidlog.broker.access.rights import Action, Principal, Resource
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call
from tests.protocols.http.pulsar_admin.test_tenants import running

SPACE = "/admin/v2/namespaces/public/default"
LISTS, MODE = f"{SPACE}/permissions/subscription", f"{SPACE}/subscriptionAuthMode"
TOPIC = TopicName("public", "default", "orders")
ANNA, BOB = Principal("anna"), Principal("bob", frozenset({"clerks"}))
ROOT = {"Authorization": "Basic " + base64.b64encode(b"root:secret").decode()}
secured = pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)


@pytest.fixture
async def ask(app, broker):
    for name in ("root", "anna", "chief"):
        await broker.users.create(name, "secret")

    async def ask(method, path, body=None, status=200, headers=ROOT):
        answer = await call(app, method, path, body, headers=headers)
        assert answer.status == status, (path, answer.body)
        return answer.json if answer.body else None

    return ask


@pytest.fixture
def may(broker):
    """Return a function that says whether a principal may do an action in a group."""

    def may(principal, group, action=Action.CONSUME, topic=TOPIC):
        return broker.access.allows(principal, action, Resource.of_group(group, topic))

    return may


async def grant(ask, *names):
    for name in names:
        await ask("POST", f"{SPACE}/permissions/{name}", ["consume"], 204)


@secured
async def test_with_prefix_a_client_uses_groups_of_its_own_name_alone(ask, may):
    await grant(ask, "anna", "bob")
    assert await ask("GET", MODE) == "None"
    assert may(ANNA, b"audit")
    await ask("POST", MODE, "Prefix", 204)
    assert await ask("GET", MODE) == "Prefix"
    assert (await ask("GET", SPACE))["subscription_auth_mode"] == "Prefix"
    assert may(ANNA, b"anna-audit") and not may(BOB, b"anna-audit")
    assert not may(ANNA, b"audit") and not may(ANNA, b"Anna-audit")
    assert not may(Principal("stranger"), b"stranger-audit")  # Prefix gives no right.
    elsewhere = TopicName("public", "shop", "orders")
    await ask("PUT", "/admin/v2/namespaces/public/shop", status=204)
    await ask("POST", "/admin/v2/namespaces/public/shop/permissions/anna", ["consume"], 204)
    assert may(ANNA, b"audit", topic=elsewhere)
    await ask("POST", MODE, "None", 204)
    assert may(ANNA, b"audit")
    for wrong in ("prefix", 1, [], {}, True):
        await ask("POST", MODE, wrong, 400)
    await ask("POST", MODE, "Prefix", 204)
    await ask("POST", MODE, None, 204)  # As in Apache, nothing is the default.
    assert await ask("GET", MODE) == "None"


@secured
async def test_a_list_lets_only_its_users_use_a_subscription(ask, may):
    await grant(ask, "anna", "bob")
    assert await ask("GET", LISTS) == {}
    await ask("POST", f"{LISTS}/audit", ["anna", "role:clerks", "anna"], 204)
    assert await ask("GET", LISTS) == {"audit": ["anna", "role:clerks"]}
    shown = (await ask("GET", SPACE))["auth_policies"]["subscription_auth_roles"]
    assert shown == {"audit": ["anna", "role:clerks"]}
    assert may(ANNA, b"audit") and may(BOB, b"audit") and may(BOB, b"other")
    await ask("DELETE", f"{SPACE}/permissions/audit/role%3Aclerks", status=204)
    assert may(ANNA, b"audit") and not may(BOB, b"audit")
    assert not may(Principal("role:clerks"), b"audit")  # No user has that name.
    await ask("DELETE", f"{SPACE}/permissions/audit/nobody", status=204)
    await ask("DELETE", f"{SPACE}/permissions/audit/anna", status=204)
    assert await ask("GET", LISTS) == {} and may(BOB, b"audit")  # As in Apache.
    refused = await ask("DELETE", f"{SPACE}/permissions/audit/anna", status=412)
    assert refused == {"reason": "couldn't find subscription"}
    await ask("POST", f"{LISTS}/audit", [], 204)
    assert await ask("GET", LISTS) == {"audit": []} and may(BOB, b"audit")


@secured
async def test_restrictions_leave_out_descriptions_and_administrators(ask, may, broker):
    await grant(ask, "anna")
    await ask("POST", f"{LISTS}/audit", ["bob"], 204)
    assert may(ANNA, b"audit", Action.DESCRIBE) and not may(ANNA, b"audit")
    assert may(Principal("root"), b"audit")
    body = {"subject": "chief", "action": "admin", "resource": "public/default"}
    await ask("POST", "/api/v1/permissions", body, 201)
    assert may(Principal("chief"), b"audit") and may(Principal("chief"), b"audit", Action.DELETE)


@secured
async def test_a_restriction_needs_the_right_to_administer(ask, broker):
    """The right to alter a namespace is not enough to lift a restriction."""
    body = {"subject": "anna", "action": "alter", "resource": "public/default"}
    await ask("POST", "/api/v1/permissions", body, 201)
    anna = {"Authorization": "Basic " + base64.b64encode(b"anna:secret").decode()}
    await ask("POST", f"{SPACE}/messageTTL", 5, 204, anna)
    await ask("POST", MODE, "None", 403, anna)
    await ask("POST", f"{LISTS}/audit", ["anna"], 403, anna)
    await ask("DELETE", f"{SPACE}/permissions/audit/bob", None, 403, anna)
    await ask("GET", LISTS, None, 403, anna)


async def test_lists_without_a_meaning_are_refused(app, broker):
    path = f"{LISTS}/audit"
    for wrong in (None, "anna", {}, 5, [5], [None], [["anna"]], [""], ["a\0b"], ["a\ud800"]):
        assert (await call(app, "POST", path, wrong)).status in (400, 501), wrong
    assert (await call(app, "POST", f"{LISTS}/%FF", ["a"])).status == 412
    assert (await call(app, "POST", path, ["x" * 20_000])).status == 412
    for number in range(16):
        assert (await call(app, "POST", f"{LISTS}/s{number}", ["x" * 900])).status == 204
    assert (await call(app, "POST", f"{LISTS}/more", ["x" * 3000])).status == 412
    missing = path.replace("/default", "/missing")
    assert (await call(app, "POST", missing, ["a"])).status == 404
    assert (await call(app, "GET", LISTS.replace("/default", "/missing"))).status == 404
    assert len((await call(app, "GET", LISTS)).json) == 16


@pytest.mark.parametrize("dies", [False, True])
async def test_restrictions_survive_a_restart(tmp_path, dies):
    async with running(tmp_path, dies=dies) as ask:
        await ask("POST", MODE, "Prefix", 204)
        await ask("POST", f"{LISTS}/audit", ["anna"], 204)
        await ask("POST", f"{LISTS}/gone", ["anna"], 204)
        await ask("DELETE", f"{SPACE}/permissions/gone/anna", status=204)
    async with running(tmp_path, dies=dies) as ask:
        assert (await ask("GET", MODE)).json == "Prefix"
        assert (await ask("GET", LISTS)).json == {"audit": ["anna"]}


@secured
async def test_a_change_of_a_restriction_is_seen_by_open_connections(ask, broker):
    """Connections are asked about their rights when the version differs."""
    seen = {broker._users_version()}
    await ask("POST", MODE, "Prefix", 204)
    seen.add(broker._users_version())
    await ask("POST", f"{LISTS}/audit", ["anna"], 204)
    seen.add(broker._users_version())
    await ask("POST", f"{LISTS}/audit", ["bob"], 204)
    seen.add(broker._users_version())
    assert len(seen) == 4
    await ask("POST", f"{SPACE}/messageTTL", 5, 204)
    assert broker._users_version() in seen
