"""Nothing of a body that creates a namespace or topic is dropped without an error."""

import pytest

from tests.protocols.http.asgi import call

SPACE = "/admin/v2/namespaces/public/new"
TOPIC = "/admin/v2/persistent/public/default/new"
# As Java's and Go's clients send them without any option.
FROM_JAVA = {
    "auth_policies": {"namespaceAuth": {}, "topicAuth": {}, "subscriptionAuth": {}},
    "replication_clusters": ["standalone"],
    "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
    "backlog_quota_map": {},
    "deduplicationEnabled": None,
    "message_ttl_in_seconds": None,
    "deleted": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "schema_compatibility_strategy": "UNDEFINED",
}
FROM_GO = {
    "message_ttl_in_seconds": 0,
    "replication_clusters": [],
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "Full",
}


FROM_TOOL = {**FROM_JAVA, "allowed_clusters": [], "clusterThatCanDeleteNamespace": "standalone"}


@pytest.mark.parametrize("body", [None, {}, FROM_JAVA, FROM_GO, FROM_TOOL])
async def test_defaults_of_a_namespace_are_accepted(app, body):
    assert (await call(app, "PUT", SPACE, body)).status == 204


@pytest.mark.parametrize(
    "policies",
    [
        {"auth_policies": {"namespaceAuth": {"anna": ["produce"]}}},
        {"offload_threshold": 5},
        {"publishMaxMessageRate": {"other": {"publishThrottlingRateInMsg": 5}}},
    ],
)
async def test_policies_of_a_new_namespace_are_refused(app, broker, policies):
    answer = await call(app, "PUT", SPACE, {**FROM_JAVA, **policies})
    assert answer.status == 501
    assert next(iter(policies)) in answer.json["reason"]
    assert (await call(app, "GET", SPACE)).status == 404


POLICIES = {
    "message_ttl_in_seconds": 60,
    "retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
    "deduplicationEnabled": False,
    "schema_compatibility_strategy": "ALWAYS_COMPATIBLE",
    "max_producers_per_topic": 3,
    "backlog_quota_map": {
        "destination_storage": {
            "limit": 1000,
            "limitSize": 1000,
            "limitTime": -1,
            "policy": "producer_exception",
        },
        "message_age": {
            "limit": -1,
            "limitSize": -1,
            "limitTime": 3600,
            "policy": "producer_request_hold",
        },
    },
    "publishMaxMessageRate": {
        "standalone": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
    },
    "topicDispatchRate": {
        "standalone": {
            "dispatchThrottlingRateInMsg": 5,
            "dispatchThrottlingRateInByte": 7,
            "ratePeriodInSecond": 1,
            "relativeToPublishRate": False,
        }
    },
    "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
    "subscription_types_enabled": ["Shared"],
    "properties": {"team": "billing"},
}


@pytest.mark.parametrize("name", POLICIES)
async def test_a_namespace_is_created_with_a_policy(app, name):
    before = await call(app, "GET", "/admin/v2/namespaces/public/default")
    assert (await call(app, "PUT", SPACE, {**FROM_JAVA, name: POLICIES[name]})).status == 204
    shown = (await call(app, "GET", SPACE)).json
    # The rate is shown by its older name too, which Apache does after a change alone.
    older = {"clusterDispatchRate": POLICIES[name]} if name == "topicDispatchRate" else {}
    assert shown == {**before.json, name: POLICIES[name], **older}


async def test_policies_of_a_new_namespace_are_the_policies_of_their_own_calls(app, broker):
    assert (await call(app, "PUT", SPACE, POLICIES)).status == 204
    for path, name in (("messageTTL", "message_ttl_in_seconds"), ("properties", "properties")):
        assert (await call(app, "GET", f"{SPACE}/{path}")).json == POLICIES[name]
    rate = POLICIES["topicDispatchRate"]["standalone"]
    assert (await call(app, "GET", f"{SPACE}/dispatchRate")).json == rate
    assert broker.namespaces.get("public", "new").settings["message_ttl_s"] == 60


@pytest.mark.parametrize(
    ("policies", "status"),
    [
        ({"message_ttl_in_seconds": -5}, 412),
        ({"max_producers_per_topic": "x"}, 400),
        ({"backlog_quota_map": {"other": {"limitSize": 5}}}, 400),
        ({"topicDispatchRate": [1]}, 400),
        ({"properties": {"a": 1}}, 400),
    ],
)
async def test_a_namespace_with_a_bad_policy_is_not_created(app, policies, status):
    assert (await call(app, "PUT", SPACE, policies)).status == status
    assert (await call(app, "GET", SPACE)).status == 404


async def test_a_subscription_is_created_with_properties(app):
    assert (await call(app, "PUT", TOPIC)).status == 204
    start = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    body = {**start, "properties": {"team": "billing"}}
    assert (await call(app, "PUT", f"{TOPIC}/subscription/s", body)).status == 204
    shown = await call(app, "GET", f"{TOPIC}/subscription/s/properties")
    assert shown.json == {"team": "billing"}
    bad = {**start, "properties": {"a": 1}}
    assert (await call(app, "PUT", f"{TOPIC}/subscription/t", bad)).status == 400


async def test_policies_have_to_be_an_object(app):
    assert (await call(app, "PUT", SPACE, [1])).status == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TOPIC, {"owner": "anna"}),
        (f"{TOPIC}/partitions", {"partitions": 2, "properties": {"owner": "anna"}}),
    ],
)
async def test_properties_of_a_new_topic_are_stored(app, path, body):
    assert (await call(app, "PUT", path, body)).status == 204
    assert (await call(app, "GET", f"{TOPIC}/properties")).json == {"owner": "anna"}


async def test_a_topic_without_properties_is_created(app):
    assert (await call(app, "PUT", TOPIC, {})).status == 204
    body = {"partitions": 2, "properties": {}}
    assert (await call(app, "PUT", f"{TOPIC}-2/partitions", body)).status == 204


@pytest.mark.parametrize("way", ["created", "partitioned", "changed"])
async def test_a_shadow_topic_is_not_made_as_a_plain_topic(app, way):
    """Java's client creates a shadow topic by a property."""
    topic = "/admin/v2/persistent/public/default/copy"
    shadow = {"PULSAR.SHADOW_SOURCE": "persistent://public/default/orders"}
    if way == "created":
        answer = await call(app, "PUT", topic, shadow)
    elif way == "partitioned":
        answer = await call(
            app, "PUT", f"{topic}/partitions", {"partitions": 2, "properties": shadow}
        )
    else:
        assert (await call(app, "PUT", topic)).status == 204
        answer = await call(app, "PUT", f"{topic}/properties", shadow)
    assert (answer.status, answer.json["reason"][:21]) == (501, "PULSAR.SHADOW_SOURCE:")
    assert (await call(app, "GET", topic + "/properties")).status == (
        200 if way == "changed" else 404
    )
