"""Pulsar's permission calls, over the one table of permissions."""

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
ORDERS = Resource.of_topic(TopicName("public", "default", "orders"))
LETTERS = Resource.of_topic(TopicName("public", "default", "letters"))
ANNA = Principal("anna")
ROOT = {"Authorization": "Basic " + base64.b64encode(b"root:secret").decode()}
secured = pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)


@pytest.fixture
async def ask(app, broker):
    await broker.users.create("root", "secret")

    async def ask(method, path, body=None, status=200):
        answer = await call(app, method, path, body, headers=ROOT)
        assert answer.status == status, (path, answer.body)
        return answer.json if answer.body else None

    return ask


@secured
async def test_what_is_granted_in_a_namespace_is_in_force_and_listed(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 204)
    assert broker.access.allows(ANNA, Action.PRODUCE, ORDERS)
    assert broker.access.allows(ANNA, Action.CREATE, ORDERS)  # A Pulsar producer makes its topic.
    assert not broker.access.allows(ANNA, Action.CONSUME, ORDERS)
    assert await ask("GET", IN_NAMESPACE) == {"anna": ["produce"]}
    await ask("POST", f"{IN_NAMESPACE}/anna", ["consume"], 204)  # In place of what was.
    assert await ask("GET", IN_NAMESPACE) == {"anna": ["consume"]}
    assert not broker.access.allows(ANNA, Action.CREATE, ORDERS)
    await ask("DELETE", f"{IN_NAMESPACE}/anna", status=204)
    assert await ask("GET", IN_NAMESPACE) == {}
    assert not broker.access.allows(ANNA, Action.CONSUME, ORDERS)


@secured
async def test_what_is_granted_on_a_topic_is_about_that_topic(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["consume"], 204)
    await ask("POST", f"{ON_TOPIC}/anna", ["produce"], 204)
    assert broker.access.allows(ANNA, Action.PRODUCE, ORDERS)
    assert not broker.access.allows(ANNA, Action.PRODUCE, LETTERS)
    assert await ask("GET", ON_TOPIC) == {"anna": ["consume", "produce"]}
    await ask("DELETE", f"{ON_TOPIC}/anna", status=204)
    assert await ask("GET", ON_TOPIC) == {"anna": ["consume"]}
    refused = await ask("DELETE", f"{ON_TOPIC}/anna", status=412)
    assert refused["message"] == "Permissions are not set at the topic level"


@secured
async def test_nothing_that_is_granted_takes_everything_back_and_is_answered(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 204)
    await broker.durability.settled()
    for _ in range(2):  # The second time nothing is written, and so no sync is to come.
        with trio.fail_after(HANG_S):
            await ask("POST", f"{IN_NAMESPACE}/anna", [], 204)
    assert not broker.permissions.list()


@secured
async def test_who_leaves_while_grants_are_replaced_has_replaced_them(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 204)
    broker._storage.files.adopt("/proc")  # Each file is synced by itself.
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
    [(["functions"], 501), (["dance"], 400), ("produce", 400), ([1], 400), (None, 400)],
)
async def test_what_means_nothing_here_is_refused_and_nothing_is_granted(ask, broker, body, status):
    await ask("POST", f"{IN_NAMESPACE}/anna", body, status)
    assert not broker.permissions.list()


@secured
async def test_a_name_that_would_be_a_pattern_is_refused(ask, broker):
    star = "/admin/v2/persistent/public/default/orders%2A/permissions"
    await ask("POST", f"{star}/anna", ["produce"], 412)
    await ask("POST", "/admin/v2/namespaces/public/nowhere/permissions/anna", ["produce"], 404)
    assert not broker.permissions.list()


async def test_where_nobody_is_asked_nothing_is_granted(ask, broker):
    await ask("POST", f"{IN_NAMESPACE}/anna", ["produce"], 501)
    assert not broker.permissions.list()
