"""Settings that nothing has: reads and removals are answered as by Apache, setting is refused."""

import pytest

from tests.protocols.http.asgi import call

SPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{SPACE}/offloadPolicies", b""),
        (f"{SPACE}/offloadThreshold", b"-1"),
        (f"{SPACE}/persistence/bookieAffinity", b""),
        (f"{SPACE}/allowedClusters", b"[]"),
        (f"{TOPIC}/shadowTopics", b""),
        (f"{TOPIC}/dispatcherPauseOnAckStatePersistent", b"false"),
    ],
)
async def test_nothing_is_shown_where_nothing_is_set(app, path, body):
    assert (await call(app, "PUT", TOPIC)).status == 204
    answer = await call(app, "GET", path)
    assert (answer.status, answer.body) == (200, body)
    missing = path.replace("/default", "/missing")
    assert (await call(app, "GET", missing)).status == 404


@pytest.mark.parametrize(
    "path", [f"{SPACE}/removeOffloadPolicies", f"{SPACE}/resourcegroup", f"{TOPIC}/shadowTopics"]
)
async def test_a_removal_has_nothing_to_do(app, path):
    assert (await call(app, "PUT", TOPIC)).status == 204
    assert (await call(app, "DELETE", path)).status == 204
    assert (await call(app, "DELETE", path.replace("/default", "/missing"))).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{SPACE}/offloadPolicies"),
        ("POST", f"{SPACE}/resourcegroup/gold"),
        ("PUT", f"{SPACE}/offloadThreshold"),
        ("PUT", f"{TOPIC}/shadowTopics"),
        ("POST", f"{TOPIC}/entryFilters"),
    ],
)
async def test_setting_is_refused(app, method, path):
    assert (await call(app, "PUT", TOPIC)).status == 204
    assert (await call(app, method, path, {})).status == 501


async def test_a_subscription_is_not_replicated(app):
    assert (await call(app, "PUT", f"{TOPIC}/partitions", 2)).status == 204
    status = f"{TOPIC}/subscription/s/replicatedSubscriptionStatus"
    assert (await call(app, "GET", status)).status == 404
    assert (await call(app, "PUT", f"{TOPIC}/subscription/s", "earliest")).status == 204
    full = "persistent://public/default/orders-partition-{}"
    shown = {full.format(0): False, full.format(1): False}
    assert (await call(app, "GET", status)).json == shown
