"""Pulsar's permission calls, over the common table of permissions."""

import base64

import pytest
import trio

from braidlog.broker.access.rights import Action, Principal, Resource
from braidlog.storage.metadata.names import TopicName
from tests.broker.held_disk import HeldDisk
from tests.protocols.http.asgi import call
from tests.waiting import HANG_S, until

IN_NAMESPACE = "/admin/v2/namespaces/public/default/permissions"
ON_TOPIC = "/admin/v2/persistent/public/default/orders/permissions"
ORDERS_NAME = TopicName("public", "default", "orders")
ORDERS = Resource.of_topic(ORDERS_NAME)
LETTERS = Resource.of_topic(TopicName("public", "default", "letters"))
ANNA = Principal("anna")
ROOT = {"Authorization": "Basic " + base64.b64encode(b"root:secret").decode()}
secured = pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)


@pytest.fixture
async def ask(app, broker):
    await broker.users.create("root", "secret")
    await broker.topics.create(ORDERS_NAME, 1)

    async def ask(method, path, body=None, status=200):
        answer = await call(app, method, path, body, headers=ROOT)
        assert answer.status == status, (path, answer.body)
        return answer.json if answer.body else None

    return ask


@secured
async def test_grants_in_a_namespace_are_in_force_and_listed(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 204)
    assert broker.access.allows(ANNA, Action.PRODUCE, ORDERS)
    assert broker.access.allows(ANNA, Action.CREATE, ORDERS)  # A Pulsar producer creates its topic.
    assert not broker.access.allows(ANNA, Action.CONSUME, ORDERS)
    assert await ask("GET", IN_NAMESPACE) == {"anna": ["produce"]}
    await ask("POST", f"{IN_NAMESPACE}/anna", ["consume"], 204)  # This replaces the earlier grant.
    assert await ask("GET", IN_NAMESPACE) == {"anna": ["consume"]}
    assert not broker.access.allows(ANNA, Action.CREATE, ORDERS)
    await ask("DELETE", f"{IN_NAMESPACE}/anna", status=204)
    assert await ask("GET", IN_NAMESPACE) == {}
    assert not broker.access.allows(ANNA, Action.CONSUME, ORDERS)


@secured
async def test_grants_on_a_topic_apply_to_that_topic(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["consume"], 204)
    await ask("POST", f"{ON_TOPIC}/anna", ["produce"], 204)
    assert broker.access.allows(ANNA, Action.PRODUCE, ORDERS)
    assert not broker.access.allows(ANNA, Action.PRODUCE, LETTERS)
    assert await ask("GET", ON_TOPIC) == {"anna": ["consume", "produce"]}
    await ask("DELETE", f"{ON_TOPIC}/anna", status=204)
    assert await ask("GET", ON_TOPIC) == {"anna": ["consume"]}
    refused = await ask("DELETE", f"{ON_TOPIC}/anna", status=412)
    assert refused["reason"] == "Permissions are not set at the topic level"


@secured
async def test_grants_on_a_topic_need_the_topic(ask, broker):
    await ask("POST", f"{ON_TOPIC}/anna", ["produce"], 204)
    await ask("DELETE", f"{ON_TOPIC}/bob", status=204)  # As Apache, where others have permissions.
    letters = ON_TOPIC.replace("orders", "letters")
    for method, path in (("GET", ""), ("POST", "/anna"), ("DELETE", "/anna")):
        body = ["produce"] if method == "POST" else None
        refused = await ask(method, letters + path, body, 404)
        assert refused["reason"] == "Topic persistent://public/default/letters not found"
    assert not broker.access.allows(ANNA, Action.PRODUCE, LETTERS)
    await ask("DELETE", "/admin/v2/persistent/public/default/orders", status=204)
    await ask("DELETE", f"{ON_TOPIC}/anna", status=204)
    assert not broker.permissions.list()


@secured
async def test_an_empty_grant_revokes_all_grants(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 204)
    await broker.durability.all_durable()
    for _ in range(2):  # The second call writes nothing, and so must wait for no sync.
        with trio.fail_after(HANG_S):
            await ask("POST", f"{IN_NAMESPACE}/anna", [], 204)
    assert not broker.permissions.list()


@secured
async def test_a_call_is_a_single_record(ask, broker):
    """A crash between records would leave a part of the actions."""
    place = broker.catalogue.state.writer.place
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce", "consume", "functions"], 204)
    await ask("POST", f"{IN_NAMESPACE}/anna", ["packages", "consume"], 204)
    assert broker.catalogue.state.writer.place == place + 2
    assert await ask("GET", IN_NAMESPACE) == {"anna": ["consume", "packages"]}
    await ask("DELETE", f"{IN_NAMESPACE}/anna", status=204)
    assert broker.catalogue.state.writer.place == place + 3


@secured
async def test_a_client_that_disconnects_still_replaces_the_grants(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 204)
    broker._storage.files.adopt("/proc")  # Each file is synced separately.
    disk = HeldDisk([broker.data_dir])
    disk.may_sync.clear()
    broker.committer.mark(disk)
    await disk.is_syncing()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "POST", f"{IN_NAMESPACE}/anna", ["consume"], 204)
        await until(lambda: not broker.access.allows(ANNA, Action.PRODUCE, ORDERS))
        nursery.cancel_scope.cancel()
    disk.may_sync.set()
    assert broker.access.allows(ANNA, Action.CONSUME, ORDERS)


@secured
@pytest.mark.parametrize(
    ("body", "status"),
    [(["dance"], 400), ("produce", 400), ([1], 400), (None, 400)],
)
async def test_unknown_actions_are_refused_without_a_grant(ask, broker, body, status):
    await ask("POST", f"{IN_NAMESPACE}/anna", body, status)
    assert not broker.permissions.list()


@secured
async def test_a_name_that_would_be_a_pattern_is_refused(ask, broker):
    star = "/admin/v2/persistent/public/default/orders%2A/permissions"
    await ask("POST", f"{star}/anna", ["produce"], 412)
    await ask("POST", "/admin/v2/namespaces/public/nowhere/permissions/anna", ["produce"], 404)
    assert not broker.permissions.list()


async def test_without_access_control_grants_are_stored_as_in_apache(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 204)
    assert await ask("GET", IN_NAMESPACE) == {"anna": ["produce"]}
    await ask("POST", f"{ON_TOPIC}/anna", ["consume"], 204)
    await ask("DELETE", f"{ON_TOPIC}/anna", status=204)
    assert {grant.action for grant in broker.permissions.list()} == {"create", "produce"}


@secured
async def test_actions_without_effect_are_stored_and_permit_nothing(ask, broker):
    """Terraform's examples grant `functions` together with the others."""
    others = ["functions", "packages", "sinks", "sources"]
    for path in (IN_NAMESPACE, ON_TOPIC):
        await ask("POST", f"{path}/anna", others, 204)
        assert await ask("GET", path) == {"anna": others}
        assert not broker.access.allows(ANNA, Action.DESCRIBE, ORDERS)
        assert not broker.access.reaches(ANNA, "public", "default")
        await ask("POST", f"{path}/anna", ["functions", "produce"], 204)
        assert await ask("GET", path) == {"anna": ["functions", "produce"]}
        assert broker.access.allows(ANNA, Action.PRODUCE, ORDERS)
        await ask("DELETE", f"{path}/anna", status=204)
        assert await ask("GET", path) == {}


@secured
async def test_policies_of_a_namespace_show_its_permissions_to_administrators(ask, app, broker):
    """Terraform reads grants on topics there."""
    space = "/admin/v2/namespaces/public/default"
    await ask("POST", f"{IN_NAMESPACE}/anna", ["consume"], 204)
    await ask("POST", f"{ON_TOPIC}/anna", ["produce"], 204)
    full = "persistent://public/default/orders"
    expected = {
        "namespace_auth": {"anna": ["consume"]},
        "destination_auth": {full: {"anna": ["produce"]}},
        "subscription_auth_roles": {},
    }
    assert (await ask("GET", space))["auth_policies"] == expected
    await broker.users.create("anna", "secret")
    headers = {"Authorization": "Basic " + base64.b64encode(b"anna:secret").decode()}
    answer = await call(app, "GET", space, headers=headers)
    assert answer.status == 200
    assert answer.json["auth_policies"] == {kind: {} for kind in expected}
    assert (await ask("GET", "/admin/v2/namespaces/public/default"))["auth_policies"] == expected
