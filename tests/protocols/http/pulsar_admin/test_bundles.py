"""Bundles of a namespace; boundaries, hashes and texts are those of Apache Pulsar 4.2.4."""

from itertools import pairwise

import pytest

from braidlog.protocols.http.pulsar_admin.bundles import BUNDLES_MAX
from braidlog.storage.metadata.names import TopicName
from tests.broker.records import append
from tests.protocols.http.pulsar_admin.test_admin import ADMIN
from tests.protocols.http.pulsar_admin.test_tenants import running

SPACE = f"{ADMIN}/namespaces/t8/n0"
TOPICS = f"{ADMIN}/persistent/t8/n0"
BOUNDARIES = ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"]
FIRST, _, LAST = map("_".join, pairwise(BOUNDARIES))
PARTS = "persistent://t8/n0/p-partition-"


@pytest.fixture
async def space(ask):
    """Create a namespace of three bundles: partition 2 is in the first, others in the last."""
    await ask("PUT", f"{ADMIN}/tenants/t8", {"allowedClusters": ["standalone"]}, 204)
    await ask("PUT", SPACE, {"bundles": {"numBundles": 3}}, 204)
    await ask("PUT", f"{TOPICS}/p/partitions", 3, 204)
    await ask("PUT", f"{TOPICS}/x", status=204)


async def bundles_of(ask, body):
    """Return the bundles of a new namespace."""
    await ask("PUT", f"{ADMIN}/namespaces/public/shop", {"bundles": body}, 204)
    shown = (await ask("GET", f"{ADMIN}/namespaces/public/shop/bundles", status=200)).json
    policies = (await ask("GET", f"{ADMIN}/namespaces/public/shop")).json
    assert policies["bundles"] == shown
    await ask("DELETE", f"{ADMIN}/namespaces/public/shop", status=204)
    assert shown["numBundles"] == len(shown["boundaries"]) - 1
    return shown["boundaries"]


async def test_a_namespace_has_the_bundles_that_it_was_created_with(ask):
    half = ["0x00000000", "0x7fffffff", "0xffffffff"]
    assert await bundles_of(ask, {"numBundles": 3}) == BOUNDARIES
    assert await bundles_of(ask, {"numBundles": "2"}) == [half[0], "0x80000000", half[2]]
    for count in (2, 5):
        assert await bundles_of(ask, {"numBundles": count, "boundaries": half}) == half
    texts = ["0", "4294967295", "0X7fffffff"]
    assert await bundles_of(ask, {"numBundles": 2, "boundaries": texts}) == half
    for default in (None, {}, {"numBundles": 0}, {"numBundles": 1}, {"numBundles": -1}):
        assert await bundles_of(ask, default) == [half[0], half[2]]


async def test_bundles_that_are_not_stored_are_refused(ask):
    short = {"numBundles": 1, "boundaries": ["0x7fffffff", "0xffffffff"]}
    for body, status, text in (
        (short, 400, "Input bundles do not cover the whole hash range. first:0x7fffffff"),
        ({"numBundles": 1, "boundaries": ["0x00000000", "zz", "0xffffffff"]}, 400, "a boundary is"),
        ({"numBundles": 1, "boundaries": [0, 4294967295]}, 400, "a boundary is"),
        ({"numBundles": 1, "boundaries": ["0x00000000", "0x1ffffffff"]}, 400, "a boundary is"),
        ({"boundaries": BOUNDARIES}, 501, "need numBundles"),
        ({"numBundles": BUNDLES_MAX + 1}, 501, f"at most {BUNDLES_MAX}"),
        ({"numBundles": 2**32}, 501, f"at most {BUNDLES_MAX}"),
        ({"numBundles": 2, "more": 1}, 501, "more"),
        ([4], 400, "expected boundaries and numBundles"),
        ({"numBundles": 1.5}, 400, "expected boundaries and numBundles"),
    ):
        answer = await ask("PUT", f"{ADMIN}/namespaces/public/shop", {"bundles": body}, status)
        assert text in answer.json["reason"]
    await ask("GET", f"{ADMIN}/namespaces/public/shop", status=404)


async def test_topics_are_shown_in_their_bundles(space, ask):
    lookup = "/lookup/v2/topic/persistent/t8/n0"
    for name, bundle in (("p-partition-2", FIRST), ("p-partition-0", LAST), ("x", LAST)):
        assert (await ask("GET", f"{lookup}/{name}/bundle", status=200)).body.decode() == bundle
    assert (await ask("GET", f"{TOPICS}?bundle={FIRST}")).json == [f"{PARTS}2"]
    positions = (await ask("GET", f"{SPACE}/{FIRST}/topicHashPositions", status=200)).json
    assert positions["bundle"] == FIRST
    assert positions["topicHashPositions"] == {f"{PARTS}2": 0x374BF29}
    shown = (await ask("GET", f"{ADMIN}/broker-stats/topics")).json["t8/n0"]
    assert [*shown[FIRST]["persistent"]] == [f"{PARTS}2"]
    assert f"{PARTS}0" in shown[LAST]["persistent"]
    owned = f"{ADMIN}/brokers/standalone/h:8080/ownedNamespaces"
    bundles = (await ask("GET", owned, status=200, headers={"Host": "h:8080"})).json
    assert {f"t8/n0/{FIRST}", f"t8/n0/{LAST}"} < {*bundles}


async def test_calls_about_a_bundle_act_on_its_partitions(space, ask, broker):
    topic = broker.topics.get(TopicName("t8", "n0", "p"))
    for partition in topic.partitions:
        await append(broker, partition, "plain", [b"a"])
    for name in (b"s", b"t"):
        subscription = broker.subscriptions.open(topic, name)
        for index in range(3):
            subscription.start(index, 0)
    await ask("POST", f"{SPACE}/{FIRST}/clearBacklog/s", status=204)
    subscription = broker.subscriptions.get(topic, b"s")
    assert [subscription.position(index) for index in range(3)] == [0, 0, 1]
    await ask("POST", f"{SPACE}/{FIRST}/unsubscribe/t", status=204)
    subscription = broker.subscriptions.get(topic, b"t")
    assert [subscription.position(index) for index in range(3)] == [0, 0, None]
    await ask("POST", f"{SPACE}/{LAST}/unsubscribe/s", status=204)
    assert broker.subscriptions.get(topic, b"s").position(0) is None
    await ask("PUT", f"{SPACE}/{FIRST.upper().replace('X', 'x')}/unload", status=204)


async def test_unknown_bundles_are_refused_in_apaches_words(space, ask):
    whole = f"0x00000000_{BOUNDARIES[-1]}"
    for bundle, text in (
        ("foo", "Invalid bundle range: foo"),
        ("0x00000000", "Invalid bundle range: 0x00000000"),
        (
            whole,
            f"Invalid upper boundary for bundle t8/n0/{whole}."
            f" Expected upper boundary of t8/n0/{FIRST}",
        ),
    ):
        for method, end in (("PUT", "unload"), ("POST", "clearBacklog"), ("POST", "unsubscribe/s")):
            answer = await ask(method, f"{SPACE}/{bundle}/{end}", status=412)
            assert answer.json["reason"] == text
    await ask("PUT", f"{SPACE}/0x00000001_0xffffffff/unload", status=412)


async def test_bundles_survive_a_crash(tmp_path):
    async with running(tmp_path, dies=True) as ask:
        body = {"bundles": {"numBundles": 3}}
        await ask("PUT", f"{ADMIN}/namespaces/public/shop", body, 204)
    async with running(tmp_path) as ask:
        bundles = (await ask("GET", f"{ADMIN}/namespaces/public/shop/bundles")).json
        assert bundles == {"boundaries": BOUNDARIES, "numBundles": 3}
