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


@pytest.mark.parametrize("body", [None, {}, FROM_JAVA, FROM_GO])
async def test_defaults_of_a_namespace_are_accepted(app, body):
    assert (await call(app, "PUT", SPACE, body)).status == 204


@pytest.mark.parametrize(
    "policies",
    [
        {"message_ttl_in_seconds": 60},
        {"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}},
        {"deduplicationEnabled": False},
        {"auth_policies": {"namespaceAuth": {"anna": ["produce"]}}},
        {"replication_clusters": ["standalone", "other"]},
        {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE"},
    ],
)
async def test_policies_of_a_new_namespace_are_refused(app, broker, policies):
    answer = await call(app, "PUT", SPACE, {**FROM_JAVA, **policies})
    assert answer.status == 501
    assert next(iter(policies)) in answer.json["reason"]
    assert (await call(app, "GET", SPACE)).status == 404


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
