"""The rate of delivery to a single subscription of a topic, by the admin API."""

import pytest

from braidlog.broker.topics.client_limits import Rate
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, ORDERS, TOPIC
from tests.protocols.http.pulsar_admin.test_tenants import running

NAMESPACE = f"{ADMIN}/namespaces/public/default"


async def test_the_rate_of_a_single_subscription(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic, path = broker.topics.get(ORDERS), f"{TOPIC}/audit%3A%C3%A9/dispatchRate"
    name = "audit:\u00e9".encode()
    assert (await ask("GET", path, status=200)).body == b""
    shown = {
        "dispatchThrottlingRateInMsg": 0,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }
    assert (await ask("GET", f"{path}?applied=true")).json == shown
    of_all = {"dispatchThrottlingRateInByte": 7, "ratePeriodInSecond": 2}
    await ask("POST", f"{TOPIC}/subscriptionDispatchRate", of_all, 204)
    assert (await ask("GET", f"{path}?applied=true")).json == shown | of_all
    rate = {"dispatchThrottlingRateInMsg": "10", "relativeToPublishRate": True}
    await ask("POST", path, rate, 204)
    own = shown | {
        "dispatchThrottlingRateInMsg": 10,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 0,
    }
    assert (await ask("GET", path)).json == own
    assert (await ask("GET", f"{path}?applied=true")).json == own
    limits = topic.client_limits
    assert limits.dispatch_to(name) == Rate(10, None, is_relative=True)
    assert limits.dispatch_to(b"other") == limits.subscription_dispatch == Rate(None, 7, 2)
    await ask("POST", path, {"dispatchThrottlingRateInMsg": 0}, 204)
    assert topic.client_limits.dispatch_to(name) is None  # No limit, whatever the topic says.
    await ask("DELETE", path, status=204)
    assert (await ask("GET", path)).body == b""
    assert topic.client_limits.dispatch_to(name) == Rate(None, 7, 2)
    await ask("POST", path, rate, 204)
    await ask("DELETE", f"{TOPIC}/policies", status=204)
    assert topic.settings == {}


@pytest.mark.parametrize("dies", [False, True])
async def test_rates_of_subscriptions_survive_a_restart(tmp_path, dies):
    path = f"{TOPIC}/audit/dispatchRate"
    rate = {
        "dispatchThrottlingRateInMsg": 10,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 2,
    }
    async with running(tmp_path, dies=dies) as ask:
        await ask("PUT", TOPIC, status=204)
        await ask("POST", path, rate, 204)
        await ask("POST", f"{TOPIC}/gone/dispatchRate", rate, 204)
        await ask("DELETE", f"{TOPIC}/gone/dispatchRate", status=204)
        await ask("POST", f"{NAMESPACE}/dispatchRate", rate, 204)
    async with running(tmp_path, dies=dies) as ask:
        assert (await ask("GET", path)).json == rate
        assert (await ask("GET", f"{TOPIC}/gone/dispatchRate")).body == b""
        assert (await ask("GET", f"{NAMESPACE}/dispatchRate")).json == rate


async def test_a_rate_of_a_subscription_without_a_meaning_is_refused(ask, broker):
    await ask("PUT", TOPIC, status=204)
    path, rate = f"{TOPIC}/audit/dispatchRate", {"dispatchThrottlingRateInMsg": 10}
    for wrong in ([], "10", 10, {"dispatchThrottlingRateInMsg": 1 << 70}, rate | {"burst": 1}):
        assert (await ask("POST", path, wrong)).status in (400, 412, 501), wrong
    for wrong in (-2, 1.5, True, "NaN"):
        answer = await ask("POST", path, {"dispatchThrottlingRateInMsg": wrong})
        assert answer.status in (400, 412), wrong
    assert (await ask("POST", f"{TOPIC}/%FF/dispatchRate", rate)).status == 412
    missing = f"{ADMIN}/persistent/public/default/missing/audit/dispatchRate"
    for method in ("GET", "POST", "DELETE"):
        await ask(method, missing, rate if method == "POST" else None, 404)
    assert broker.topics.get(ORDERS).settings == {}


async def test_the_names_of_subscriptions_with_rates_are_limited(ask, broker):
    await ask("PUT", TOPIC, status=204)
    rate = {"dispatchThrottlingRateInMsg": 10}
    for number in range(4):
        await ask("POST", f"{TOPIC}/{number}{'x' * 1000}/dispatchRate", rate, 204)
    refused = await ask("POST", f"{TOPIC}/{'y' * 1000}/dispatchRate", rate)
    assert refused.status == 422 and "names of subscriptions" in refused.json["reason"]
    assert len(broker.topics.get(ORDERS).client_limits.single_dispatch) == 4
