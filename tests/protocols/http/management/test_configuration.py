"""The settings in force over HTTP."""

from braidlog.broker.access.access import Access
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import OnlyTopic
from tests.protocols.http.asgi import call


async def test_every_setting_has_value_and_source(app, broker):
    answer = await call(app, "GET", "/api/v1/config")
    rows = {row["setting"]: row for row in answer.json["settings"]}
    assert rows["loop_turn_log_ms"]["value"] == broker.config.loop_turn_log_ms
    assert rows["loop_turn_log_ms"]["source"] == "default"


async def test_described_clusters_are_shown_without_secrets(app):
    fields = {"serviceUrl": "http://far:8080", "authenticationParameters": "token:pass4far"}
    await call(app, "PUT", "/admin/v2/clusters/far", fields)
    answer = await call(app, "GET", "/api/v1/config")
    (row,) = [row for row in answer.json["settings"] if row["setting"] == "pulsar_clusters.far"]
    assert row["value"]["serviceUrl"] == "http://far:8080"
    assert row["source"] == "Pulsar's admin API"
    assert b"pass4far" not in answer.body


async def test_settings_need_the_right_to_administer(app, broker):
    broker.access = Access(OnlyTopic(TopicName("public", "default", "orders")))
    assert (await call(app, "GET", "/api/v1/config")).status == 403
