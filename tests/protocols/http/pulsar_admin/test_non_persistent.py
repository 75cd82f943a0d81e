"""Non-persistent topics by Pulsar's admin API; statuses are those of Apache Pulsar 4.2.4."""

import pytest

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import FakeConsumer
from tests.waiting import until

SPACE = "/admin/v2/non-persistent/public/default"
NON_PERSISTENT = f"{SPACE}/news"
PARTS = f"{SPACE}/parts"
NAME = TopicName("public", "default", "news")
FULL = "non-persistent://public/default/news"


@pytest.fixture
def topic(broker):
    """Return a topic with a subscription that has a consumer without permits."""
    channel = broker.non_persistent.get(NAME, None, make=True)
    channel.subscribe(b"s", SubscriptionKind.SHARED).attach(FakeConsumer("c"))
    return channel


async def test_topics_are_created_listed_and_deleted(ask):
    assert (await ask("GET", SPACE)).json == []
    await ask("PUT", NON_PERSISTENT, status=204)
    await ask("PUT", NON_PERSISTENT, status=409)
    assert (await ask("GET", SPACE)).json == [FULL]
    everything = "/admin/v2/namespaces/public/default/topics?mode="
    assert (await ask("GET", everything.partition("?")[0])).json == []  # The default is PERSISTENT.
    for mode, listed in (("ALL", [FULL]), ("NON_PERSISTENT", [FULL]), ("PERSISTENT", [])):
        assert (await ask("GET", everything + mode)).json == listed
    assert (await ask("GET", f"{NON_PERSISTENT}/partitions")).json["partitions"] == 0
    assert (await ask("GET", "/lookup/v2/topic/non-persistent/public/default/news")).status != 501
    await ask("DELETE", NON_PERSISTENT, status=204)
    await ask("DELETE", NON_PERSISTENT, status=404)
    await ask("GET", f"{NON_PERSISTENT}/stats", status=404)


async def test_partitions(ask):
    await ask("GET", f"{PARTS}/partitions", status=404)
    assert (await ask("GET", f"{PARTS}/partitions?checkAllowAutoCreation=true")).status == 200
    await ask("POST", f"{PARTS}/partitions", 2, 404)
    await ask("PUT", f"{PARTS}/partitions", 3, 204)
    await ask("PUT", f"{PARTS}/partitions", 3, 409)
    await ask("POST", f"{PARTS}/partitions", 4, 204)
    assert (await ask("GET", f"{PARTS}/partitions")).json["partitions"] == 4
    assert (await ask("GET", f"{SPACE}/partitioned")).json == [f"{FULL[:-4]}parts"]
    stats = (await ask("GET", f"{PARTS}/partitioned-stats?perPartition=true")).json
    assert (stats["metadata"]["partitions"], stats["partitions"]) == (4, {})
    await ask("DELETE", PARTS, status=409)
    await ask("DELETE", f"{PARTS}/partitions", status=204)
    await ask("DELETE", f"{PARTS}/partitions", status=404)


async def test_partitions_that_nobody_uses_are_shown(ask):
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    assert (await ask("GET", f"{PARTS}/subscriptions", status=200)).json == []
    await ask("PUT", f"{PARTS}/unload", status=204)
    await ask("GET", f"{PARTS}/stats", status=404)
    for end in ("stats", "internalStats", "subscriptions"):
        await ask("GET", f"{PARTS}-partition-1/{end}", status=200)
        await ask("GET", f"{PARTS}-partition-2/{end}", status=404)
    await ask("PUT", f"{PARTS}-partition-1/unload", status=204)


async def test_subscriptions_of_all_partitions(ask, broker):
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    name = TopicName("public", "default", "parts")
    for index in range(2):
        channel = broker.non_persistent.get(name, index, make=False)
        channel.subscribe(b"s", SubscriptionKind.SHARED).attach(FakeConsumer("c"))
    assert (await ask("GET", f"{PARTS}/subscriptions")).json == ["s"]
    await ask("DELETE", f"{PARTS}/subscription/s", status=412)
    await ask("DELETE", f"{PARTS}/subscription/s?force=true", status=204)
    assert (await ask("GET", f"{PARTS}/subscriptions")).json == []
    await ask("DELETE", f"{PARTS}/subscription/s", status=404)


async def test_a_topic_without_partitions_is_not_partitioned(ask):
    await ask("PUT", NON_PERSISTENT, status=204)
    for method, body in (("POST", 2), ("DELETE", None)):
        answer = await ask(method, f"{NON_PERSISTENT}/partitions", body, 409)
        assert "partitioned topic" in answer.json["reason"]
    await ask("DELETE", NON_PERSISTENT, status=204)


async def test_statistics(ask, topic):
    topic.subscriptions[b"s"].messages_dropped += 2
    topic.traffic.records_in += 2
    stats = (await ask("GET", f"{NON_PERSISTENT}/stats")).json
    assert (stats["msgInCounter"], stats["storageSize"]) == (2, 0)
    shown = stats["subscriptions"]["s"]
    assert (shown["type"], shown["msgDropCounter"], len(shown["consumers"])) == ("Shared", 2, 1)
    assert (await ask("GET", f"{NON_PERSISTENT}/internalStats")).json["numberOfEntries"] == 0
    assert (await ask("GET", f"{NON_PERSISTENT}/subscriptions")).json == ["s"]


async def test_a_topic_in_use_is_deleted_only_by_force(ask, topic):
    await ask("DELETE", NON_PERSISTENT, status=412)
    await ask("DELETE", f"{NON_PERSISTENT}/subscription/s", status=412)
    await ask("DELETE", f"{NON_PERSISTENT}/subscription/nobody", status=404)
    (consumer,) = topic.subscriptions[b"s"].consumers
    await ask("DELETE", f"{NON_PERSISTENT}/subscription/s?force=true", status=204)
    await until(lambda: consumer.was_disconnected)
    await ask("DELETE", f"{NON_PERSISTENT}?force=true", status=204)


async def test_a_namespace_with_non_persistent_topics_is_not_empty(ask):
    space = "/admin/v2/namespaces/public/other"
    await ask("PUT", space, status=204)
    await ask("PUT", "/admin/v2/non-persistent/public/other/news/partitions", 2, 204)
    await ask("DELETE", space, status=409)
    await ask("DELETE", f"{space}?force=true", status=204)


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("GET", "lastMessageId"),
        ("POST", "terminate"),
        ("PUT", "subscription/s"),
        ("POST", "subscription/s/skip_all"),
        ("GET", "subscription/s/position/1"),
        ("POST", "subscription/s/resetcursor/0"),
    ],
)
async def test_non_persistent_topics_have_no_positions(ask, topic, method, rest):
    answer = await ask(method, f"{NON_PERSISTENT}/{rest}", status=405)
    assert "keeps nothing" in answer.json["reason"]


async def test_non_persistent_topics_show_the_policies_of_their_namespace(ask, topic):
    """As Terraform reads them, with Apache's values; such a topic has none of its own."""
    path = f"{NON_PERSISTENT}/maxConsumers"
    assert (await ask("GET", path, status=200)).body == b""
    assert (await ask("GET", f"{path}?applied=true", status=200)).json == 0
    await ask("POST", "/admin/v2/namespaces/public/default/maxConsumersPerTopic", 7, 204)
    assert (await ask("GET", f"{path}?applied=true", status=200)).json == 7
    refused = await ask("POST", path, 5, 405)
    assert "has no policies of its own" in refused.json["reason"]
    await ask("DELETE", path, status=204)
    applied = (await ask("GET", f"{NON_PERSISTENT}/retention?applied=true", status=200)).json
    assert applied == {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    switch = f"{NON_PERSISTENT}/deduplicationEnabled?applied=true"
    assert (await ask("GET", switch, status=200)).json is False
    missing = NON_PERSISTENT.replace("news", "missing")
    await ask("GET", f"{missing}/maxConsumers", status=404)
    await ask("POST", f"{missing}/maxConsumers", 5, 404)


async def test_unload_does_nothing(ask, topic):
    await ask("PUT", f"{NON_PERSISTENT}/unload", status=204)
