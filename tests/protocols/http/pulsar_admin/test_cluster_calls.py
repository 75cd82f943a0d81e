"""Calls about the only cluster, its brokers and bundles, and values that hold already."""

import pytest

from tests.protocols.http.pulsar_admin.test_admin import ADMIN, ORDERS, PARTS, TOPIC

CLUSTER = f"{ADMIN}/clusters/standalone"
SPACE = f"{ADMIN}/namespaces/public/default"
SERVICE = "http://h:8080"
HOST = {"Host": "h:8080"}


async def test_a_cluster_is_updated_with_its_own_addresses_alone(ask):
    shown = {"serviceUrl": SERVICE, "brokerServiceUrl": "", "brokerClientTlsEnabled": False}
    await ask("POST", CLUSTER, shown, 200, headers=HOST)
    answer = await ask("POST", CLUSTER, {"serviceUrl": "http://other:8080"}, 501, headers=HOST)
    assert answer.json["reason"].startswith(f"serviceUrl is {SERVICE}:")
    await ask("POST", CLUSTER, [], 400)
    answer = await ask("POST", f"{ADMIN}/clusters/other", shown, 404)
    assert answer.json == {"reason": "Cluster does not exist"}


async def test_the_only_cluster_is_not_deleted(ask):
    await ask("DELETE", CLUSTER, status=501)
    await ask("DELETE", f"{ADMIN}/clusters/other", status=404)
    assert (await ask("GET", f"{ADMIN}/clusters")).json == ["standalone"]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("GET", "Domain rack for cluster standalone does not exist"),
        ("DELETE", "Domain-name rack or cluster standalone does not exist"),
    ],
)
async def test_there_is_no_failure_domain(ask, method, text):
    answer = await ask(method, f"{CLUSTER}/failureDomains/rack", status=404)
    assert answer.json == {"reason": text}


async def test_brokers_are_shown_for_any_name_of_a_cluster(ask):
    shown = (await ask("GET", f"{ADMIN}/brokers/standalone", status=200)).json
    assert (await ask("GET", f"{ADMIN}/brokers/other", status=200)).json == shown


async def test_a_broker_serves_the_bundle_of_each_namespace(ask):
    await ask("PUT", f"{ADMIN}/namespaces/public/shop", status=204)
    path = f"{ADMIN}/brokers/standalone/h:8080/ownedNamespaces"
    bundles = (await ask("GET", path, status=200, headers=HOST)).json
    assert {*bundles} >= {f"public/{name}/0x00000000_0xffffffff" for name in ("default", "shop")}
    unknown = await ask("GET", path.replace("h:", "x:"), status=404, headers=HOST)
    assert unknown.json == {"reason": "Broker id 'x:8080' not found in available brokers."}


async def test_hashes_of_names_are_apaches(ask):
    await ask("PUT", f"{ADMIN}/namespaces/public/shop", status=204)
    await ask("PUT", f"{ADMIN}/persistent/public/shop/parts/partitions", 2, 204)
    path = f"{ADMIN}/namespaces/public/shop/0x00000000_0xffffffff/topicHashPositions"
    first, second = (f"persistent://public/shop/parts-partition-{index}" for index in (0, 1))
    answer = await ask("GET", path, status=200)
    assert answer.json["topicHashPositions"] == {first: 38433445, second: 1967997491}
    answer = await ask("GET", f"{path}?topics={second}", status=200)
    assert [*answer.json["topicHashPositions"]] == [second]


async def test_tenants_of_unknown_clusters_are_refused(ask):
    for method, tenant in (("PUT", "bank"), ("POST", "public")):
        body = {"allowedClusters": ["standalone", "other"]}
        answer = await ask(method, f"{ADMIN}/tenants/{tenant}", body, 412)
        assert answer.json == {"reason": "Clusters do not exist"}
    await ask("GET", f"{ADMIN}/tenants/bank", status=404)


async def test_properties_are_shown_with_the_number_of_partitions(ask):
    await ask("PUT", f"{PARTS}/partitions", {"partitions": 2, "properties": {"x": "y"}}, 204)
    expected = {"partitions": 2, "deleted": False, "properties": {"x": "y"}}
    assert (await ask("GET", f"{PARTS}/partitions")).json == expected
    assert (await ask("GET", f"{PARTS}/partitioned-stats")).json["metadata"] == expected
    info = (await ask("GET", f"{PARTS}-partition-0/internal-info")).json
    assert info["properties"] == {"x": "y"}


async def test_all_policies_of_a_topic_are_removed_at_once(ask, broker):
    await ask("PUT", TOPIC, {"x": "y"}, 204)
    await ask("POST", f"{TOPIC}/messageTTL?messageTTL=60", status=204)
    await ask("POST", f"{TOPIC}/maxProducers", 3, 204)
    await ask("DELETE", f"{TOPIC}/policies", status=204)
    for policy in ("messageTTL", "maxProducers"):
        assert (await ask("GET", f"{TOPIC}/{policy}", status=200)).body == b""
    assert (await ask("GET", f"{TOPIC}/properties")).json == {"x": "y"}
    await ask("DELETE", f"{TOPIC}-gone/policies", status=404)


async def test_values_in_force_without_a_policy(ask):
    await ask("PUT", TOPIC, status=204)
    for policy in ("messageTTL", "compactionThreshold"):
        assert (await ask("GET", f"{TOPIC}/{policy}?applied=true", status=200)).json == 0
    quotas = (await ask("GET", f"{TOPIC}/backlogQuotaMap?applied=true", status=200)).json
    assert quotas["message_age"]["limit"] == quotas["destination_storage"]["limit"] == -1
    strategy = f"{TOPIC}/schemaCompatibilityStrategy"
    assert (await ask("GET", strategy, status=200)).body == b""
    assert (await ask("GET", f"{strategy}?applied=true")).json == "FULL"
    assert (await ask("GET", f"{SPACE}/schemaCompatibilityStrategy")).json == "UNDEFINED"
    assert (await ask("GET", f"{TOPIC}/deduplicationEnabled?applied=true")).json is False
    assert (await ask("GET", f"{TOPIC}/entryFilters?applied=true")).json == {"entryFilterNames": ""}
    rate = (await ask("GET", f"{TOPIC}/replicatorDispatchRate?applied=true", status=200)).json
    assert (rate["dispatchThrottlingRateInMsg"], rate["ratePeriodInSecond"]) == (0, 1)
    assert (await ask("GET", f"{TOPIC}/subscriptionExpirationTime?applied=true")).json == 0
    path = f"{TOPIC}/subscriptionExpirationTime"
    await ask("POST", f"{path}?subscriptionExpirationTime=7", status=204)
    assert (await ask("GET", path)).json == 7
    await ask("POST", f"{path}?subscriptionExpirationTime=-5", status=412)
    await ask("DELETE", path, status=204)
    assert (await ask("GET", path, status=200)).body == b""
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    assert (await ask("GET", f"{PARTS}/properties", status=200)).body == b""
    of_subscription = f"{TOPIC}/audit/dispatchRate"
    assert (await ask("GET", f"{of_subscription}?applied=true", status=200)).json == rate
    assert (await ask("GET", of_subscription, status=200)).body == b""
    persistence = (await ask("GET", f"{TOPIC}/persistence?applied=true", status=200)).json
    assert persistence["managedLedgerMaxMarkDeleteRate"] == 0.1
    quota = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
    shown = (await ask("GET", SPACE, status=200)).json["backlog_quota_map"]
    assert shown == {"destination_storage": quota, "message_age": quota}


async def test_the_applied_retention_is_that_of_the_log(ask, broker):
    await ask("PUT", TOPIC, status=204)
    applied = f"{TOPIC}/retention?applied=true"
    unlimited = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert (await ask("GET", applied, status=200)).json == unlimited
    limits = {"retention_ms": 600_000, "retention_bytes": 3 << 20}
    await broker.topics.alter_settings(ORDERS, limits)  # As another protocol sets them.
    limited = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 3}
    assert (await ask("GET", applied, status=200)).json == limited
    await broker.topics.alter_settings(ORDERS, {"delete_acknowledged": True})
    acknowledged = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    assert (await ask("GET", applied, status=200)).json == acknowledged
    assert (await ask("GET", f"{TOPIC}/retention", status=200)).body == b""


@pytest.mark.parametrize(
    ("path", "value", "refused"),
    [
        (f"{SPACE}/migration", False, True),
        (f"{SPACE}/migration", False, 0),
        (f"{TOPIC}/subscription/s/replicatedSubscriptionStatus", False, True),
    ],
)
async def test_a_value_that_holds_already_is_accepted_alone(ask, path, value, refused):
    await ask("PUT", TOPIC, status=204)
    await ask("POST", path, value, 204)
    await ask("POST", path, refused, 501)
    await ask("POST", path.replace("/default", "/missing"), value, 404)
