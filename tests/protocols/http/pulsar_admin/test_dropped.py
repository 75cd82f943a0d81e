"""Content of requests that would be dropped is refused with 501."""

import pytest

from tests.protocols.http.pulsar_admin.test_admin import ADMIN, TOPIC

SPACE = f"{ADMIN}/namespaces/public/default"
VOLATILE = f"{ADMIN}/non-persistent/public/default/news"


@pytest.mark.parametrize("place", [SPACE, TOPIC])
async def test_a_class_of_storage_is_refused(ask, place):
    await ask("PUT", TOPIC, status=204)
    own = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
    name = {"managedLedgerStorageClassName": "fast"}
    answer = await ask("POST", f"{place}/persistence", own | name, 501)
    assert answer.json["reason"].startswith("managedLedgerStorageClassName:")
    assert (await ask("GET", f"{place}/persistence", status=200)).body == b""
    await ask("POST", f"{place}/persistence", own | dict.fromkeys(name), 204)


async def test_a_replicated_subscription_is_refused(ask):
    await ask("PUT", TOPIC, status=204)
    await ask("PUT", f"{TOPIC}/subscription/s?replicated=true", "earliest", 501)
    assert (await ask("GET", f"{TOPIC}/subscriptions")).json == []
    await ask("PUT", f"{TOPIC}/subscription/s?replicated=false", "earliest", 204)


async def test_properties_of_a_non_persistent_topic_are_refused(ask):
    await ask("PUT", VOLATILE, {"a": "b"}, 501)
    await ask("GET", f"{VOLATILE}/stats", status=404)
    await ask("PUT", VOLATILE, {}, 204)


@pytest.mark.parametrize("place", [SPACE, TOPIC])
@pytest.mark.parametrize(
    ("kind", "quota", "refused"),
    [
        ("destination_storage", {"limitSize": 5}, {"limitTime": 5}),
        ("destination_storage", {"limit": 5}, {"limitTime": 5}),
        ("message_age", {"limitTime": 5}, {"limitSize": 5}),
        ("message_age", {"limitTime": 5}, {"limit": 5}),
    ],
)
async def test_a_limit_of_the_other_kind_of_quota_is_refused(ask, place, kind, quota, refused):
    await ask("PUT", TOPIC, status=204)
    path = f"{place}/backlogQuota?backlogQuotaType={kind}"
    policy = {"policy": "producer_exception"}
    answer = await ask("POST", path, quota | refused | policy, 501)
    assert answer.json["reason"].startswith(next(iter(refused)))
    for nothing in (None, 0, -1):
        await ask("POST", path, dict.fromkeys(refused, nothing) | quota | policy, 204)


async def test_fields_inside_the_policies_of_a_new_namespace_are_refused(ask):
    policy = {"policy": "producer_exception", "limitSize": 5}
    retention = {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}
    space = f"{ADMIN}/namespaces/public/new"
    for policies in (
        {"backlog_quota_map": {"destination_storage": {**policy, "limitTime": 5}}},
        {"backlog_quota_map": {"destination_storage": {**policy, "unheard": 5}}},
        {"retention_policies": {**retention, "unheard": 5}},
        {"publishMaxMessageRate": {"standalone": {"unheard": 5}}},
    ):
        await ask("PUT", space, policies, 501)
    await ask("GET", space, status=404)
    await ask("PUT", space, {"retention_policies": {**retention, "unheard": 0}}, 204)


async def test_words_that_a_policy_does_not_have_are_refused(ask):
    inactive = {"maxInactiveDurationSeconds": 5, "deleteWhileInactive": True}
    words = {"inactiveTopicDeleteMode": "unheard"}
    await ask("POST", f"{SPACE}/inactiveTopicPolicies", inactive | words, 400)
    await ask("POST", f"{SPACE}/inactiveTopicPolicies", inactive | dict.fromkeys(words), 204)
    forbidden = {"allowAutoTopicCreation": False, "topicType": "unheard"}
    await ask("POST", f"{SPACE}/autoTopicCreation", forbidden, 400)


@pytest.mark.parametrize("force", ["true", "false"])
async def test_a_deleted_schema_has_no_versions(ask, force):
    await ask("PUT", TOPIC, status=204)
    schemas = f"{ADMIN}/schemas/public/default/orders"
    body = {"type": "STRING", "schema": "", "properties": {}}
    await ask("POST", f"{schemas}/schema", body, 200)
    await ask("DELETE", f"{schemas}/schema?force={force}", status=200)
    await ask("GET", f"{schemas}/schema", status=404)
    assert (await ask("GET", f"{schemas}/schemas")).json == {"getSchemaResponses": []}


@pytest.mark.parametrize("place", [SPACE, TOPIC])
async def test_gos_name_of_the_longest_delay_counts(ask, place):
    await ask("PUT", TOPIC, status=204)
    body = {"active": True, "tickTime": 1000, "maxDelayInMillis": 60000}
    await ask("POST", f"{place}/delayedDelivery", body, 204)
    shown = (await ask("GET", f"{place}/delayedDelivery", status=200)).json
    assert shown == {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 60000}


async def test_a_tenant_is_not_deleted_by_force(ask):
    tenant = f"{ADMIN}/tenants/buyers"
    await ask("PUT", tenant, {"adminRoles": [], "allowedClusters": ["standalone"]}, 204)
    answer = await ask("DELETE", f"{tenant}?force=true", status=405)
    assert answer.json == {"reason": "Broker doesn't allow forced deletion of tenants"}
    await ask("DELETE", f"{tenant}?force=false", status=204)


async def test_a_bundle_moves_to_no_other_broker(ask):
    path = f"{SPACE}/0x00000000_0xffffffff/unload?destinationBroker"
    own = {"Host": "h:8080"}
    await ask("PUT", f"{path}=h:8080", status=204, headers=own)
    answer = await ask("PUT", f"{path}=other:8080", status=409, headers=own)
    text = "Not allowed unload namespace bundle to inactive destination broker"
    assert answer.json == {"reason": text}


async def test_a_call_without_a_body_may_have_any_media_type(ask):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    await ask("PUT", TOPIC, status=204, headers={**form, "Content-Length": "0"})
    await ask("PUT", f"{TOPIC}/unload", {"a": 1}, 415, headers=form)
