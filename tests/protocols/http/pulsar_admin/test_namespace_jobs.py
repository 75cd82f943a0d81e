"""Properties, bundles, backlogs and subscriptions of a namespace, with the answers of Apache."""

import pytest

from tests.broker.records import append
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, ORDERS

SPACE = f"{ADMIN}/namespaces/public/default"
WHOLE = "0x00000000_0xffffffff"


async def test_a_namespace_is_a_single_bundle(ask):
    bundles = (await ask("GET", f"{SPACE}/bundles")).json
    assert bundles == {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
    await ask("PUT", f"{SPACE}/{WHOLE}/unload", status=204)
    await ask("PUT", f"{SPACE}/0x0_0x1/unload", status=412)
    lookup = "/lookup/v2/topic/persistent/public/default/t/bundle"
    assert (await ask("GET", lookup)).body.decode() == WHOLE


async def test_properties_of_a_namespace(ask, broker):
    await ask("PUT", f"{SPACE}/property/k/v", status=204)
    await ask("PUT", f"{SPACE}/properties", {"a": "b"}, 204)
    assert (await ask("GET", f"{SPACE}/properties")).json == {"a": "b", "k": "v"}
    assert (await ask("GET", f"{SPACE}/property/k")).body == b"v"
    assert (await ask("DELETE", f"{SPACE}/property/k", status=200)).body == b"v"
    assert (await ask("DELETE", f"{SPACE}/property/k", status=200)).body == b""
    await ask("DELETE", f"{SPACE}/properties", status=204)
    assert (await ask("GET", f"{SPACE}/properties")).json == {}
    await ask("PUT", f"{SPACE}/properties", {"a": 5}, 400)
    await ask("PUT", f"{SPACE}/properties", {"a": "x" * 5000}, 412)


async def test_the_messages_of_a_namespace_are_in_one_cluster(ask):
    assert (await ask("GET", f"{SPACE}/replication")).json == ["standalone"]
    await ask("POST", f"{SPACE}/replication", ["standalone"], 200)
    refused = await ask("POST", f"{SPACE}/replication", ["b"], 403)
    assert refused.json == {"reason": "Invalid cluster id: b"}
    await ask("POST", f"{SPACE}/replication", [], 412)


@pytest.mark.parametrize("place", [SPACE, f"{SPACE}/{WHOLE}"])
async def test_the_backlogs_of_a_namespace_are_cleared(ask, broker, place):
    topic = await broker.topics.create(ORDERS, 2)
    await append(broker, topic.partitions[1], "plain", [b"a", b"b"])
    a, b = (broker.subscriptions.open(topic, name) for name in (b"a", b"b"))
    for subscription in (a, b):
        subscription.start(1, 0)
    await ask("POST", f"{place}/clearBacklog/a", status=204)
    assert (a.backlog(1), b.backlog(1)) == (0, 2)
    await ask("POST", f"{place}/clearBacklog", status=204)
    assert b.backlog(1) == 0


async def test_a_subscription_is_deleted_from_all_topics(ask, broker):
    topic = await broker.topics.create(ORDERS, 1)
    for name in (b"a", b"b"):
        broker.subscriptions.open(topic, name).start(0, 0)
    await ask("POST", f"{SPACE}/unsubscribe/a", status=204)
    await ask("POST", f"{SPACE}/unsubscribe/nosub", status=204)
    assert broker.subscriptions.names(topic) == [b"b"]
