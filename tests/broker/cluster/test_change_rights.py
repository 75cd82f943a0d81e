"""Changes of topics for another broker: the owner checks the client's permissions."""

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.access.access import Access
from braidlog.broker.access.acting import asks, work_for
from braidlog.broker.access.rights import ANONYMOUS, Principal
from braidlog.broker.cluster.change_rights import ON_NAMESPACE, ON_TOPIC
from braidlog.broker.cluster.changes import LocalChanges
from braidlog.broker.cluster.cluster_peers import Call
from braidlog.broker.cluster.peers import Asker
from braidlog.broker.delivery.non_persistent.topics import PARTITIONS_OF
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.nodes import SteppedBroker, balanced
from tests.broker.cluster.test_membership import ONE, OTHER, stepping_on
from tests.broker.metadata_fakes import MetadataParts
from tests.storage.shared.shared_dirs import SharedStore

ORDERS = ["acme", "shop", "orders"]
NON_PERSISTENT = PARTITIONS_OF + "news"
EVE = Principal("eve", frozenset({"clerks"}))
# In an order in which all changes can be made.
CHANGES = (
    (("create_namespace", "acme", "shop", None), "create namespace acme/shop"),
    (("create", ORDERS, 2, None, {}, None), "create topic acme/shop/orders"),
    (("add_partitions", ORDERS, 3), "alter topic acme/shop/orders"),
    (("keep_partitions", ORDERS, 1), "delete topic acme/shop/orders"),
    (("alter_settings", ORDERS, {"deduplication": True}), "alter topic acme/shop/orders"),
    (("alter_namespace", "acme", "shop", {"deduplication": True}), "alter namespace acme/shop"),
    (("alter_namespace", "acme", "shop", {}), "alter namespace acme/shop"),
    (
        ("alter_namespace", "acme", "shop", {"subscription_auth_mode": "Prefix"}),
        "administer namespace acme/shop",
    ),
    (
        ("alter_namespace", "acme", "shop", {"subscription_roles:audit": None}),
        "administer namespace acme/shop",
    ),
    (("alter_namespace", "acme", "shop", {NON_PERSISTENT: 2}), "create topic acme/shop/news"),
    (("alter_namespace", "acme", "shop", {NON_PERSISTENT: 3}), "alter topic acme/shop/news"),
    (("alter_namespace", "acme", "shop", {NON_PERSISTENT: None}), "delete topic acme/shop/news"),
    (("terminate", ORDERS), "alter topic acme/shop/orders"),
    (("delete", ORDERS, False), "delete topic acme/shop/orders"),
    (("renumber_namespace", "acme", "shop", 77), "create namespace acme/shop"),
    (("renumber_namespace", "acme", "shop", None), "delete namespace acme/shop"),
    (("delete_namespace", "acme", "shop"), "delete namespace acme/shop"),
    (("create_tenant", "bank", ["boss"]), "create tenant bank"),
    (("alter_tenant", "bank", ["chef"]), "alter tenant bank"),
    (("delete_tenant", "bank"), "delete tenant bank"),
    (("create_cluster", "eu", {"serviceUrl": "http://eu"}), "administer cluster"),
    (("alter_cluster", "eu", {}), "administer cluster"),
    (("delete_cluster", "eu"), "administer cluster"),
)


class RightsClient:
    """The asking client."""

    def __init__(self, principal):
        self.principal = principal
        self.at = "test"


class Only:
    """Allows a single action at a time, to a single client."""

    def __init__(self):
        self.allowed = ""

    def allows(self, principal, action, resource):
        return principal == EVE and f"{action.value} {resource}" == self.allowed


async def is_followed(name):
    return True


def test_every_change_has_its_permission():
    house = MetadataParts()
    changes = LocalChanges(house.topics, house.namespaces, is_followed)
    assert ON_TOPIC.keys() == changes.of_topics.keys()
    assert ON_NAMESPACE.keys() == changes.others.keys()
    tried = {change[0] for change, _ in CHANGES}
    assert tried == {*ON_TOPIC, *ON_NAMESPACE}


LATEST = 1 << 40  # A place in the catalogue after every change.


async def refused(home, rules, principal, change, allowed):
    rules.allowed, (name, *arguments) = allowed, change
    with pytest.raises(errors.NotAuthorized):
        await home.change(Asker(principal, "test"), name, LATEST, *arguments)


async def test_the_owner_refuses_a_forbidden_change_and_changes_nothing(tmp_path):
    store = SharedStore(tmp_path)
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await balanced(store, first, second)
        owner, asker = (first, second) if first.broker.catalogue.is_owned else (second, first)
        rules = Only()
        owner.broker.access = Access(rules)
        home, state = asker.parts.peers, owner.parts.shared_catalogue
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                for change, right in CHANGES:
                    before = state.place
                    await refused(home, rules, EVE, change, "")
                    await refused(home, rules, ANONYMOUS, change, right)
                    assert state.place == before, change
                    name, *arguments = change
                    await home.change(Asker(EVE, "test"), name, LATEST, *arguments)
                    assert state.place > before or not change[-1], change
                # For no client.
                node = owner.broker.placement.node_id
                request = Call("create_namespace", [LATEST, "acme", "old", None])
                rules.allowed = "create namespace acme/old"
                reply = await home._reply(home._owner(node), request)
                assert reply.error[0] == errors.NotAuthorized.__name__
                assert owner.broker.namespaces.find("acme", "old") is None
                nursery.cancel_scope.cancel()


async def test_a_change_is_made_for_the_tasks_client(tmp_path):
    store = SharedStore(tmp_path)
    async with (
        SteppedBroker(store, ONE).running() as first,
        SteppedBroker(store, OTHER).running() as second,
    ):
        await balanced(store, first, second)
        owner, asker = (first, second) if first.broker.catalogue.is_owned else (second, first)
        rules = Only()
        rules.allowed = "create topic public/default/orders"
        owner.broker.access = Access(rules)
        topics, name = asker.broker.topics, TopicName("public", "default", "orders")
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                with pytest.raises(errors.NotAuthorized):
                    await topics.create(name, 1)
                assert owner.broker.topics.find(name) is None
                client = RightsClient(ANONYMOUS)
                work_for(client)
                with pytest.raises(errors.NotAuthorized):
                    await topics.create(name, 1)
                client.principal = EVE  # The client logs in.
                assert (await topics.create(name, 1)).name == name
                nursery.cancel_scope.cancel()


async def test_a_task_inherits_the_client_of_its_starter():
    askers = []

    async def look():
        askers.append(asks())

    client = RightsClient(EVE)
    assert asks() == (ANONYMOUS, "")
    work_for(client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
    del client
    await look()
    assert askers == [(EVE, "test"), (ANONYMOUS, "")]
