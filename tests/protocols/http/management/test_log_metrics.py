import os
import platform
import resource
from types import SimpleNamespace

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from braidlog.broker.families import exposition
from braidlog.broker.runtime.turns import PER_TURN
from braidlog.protocols.http.management.backlog_ages import Ages
from braidlog.protocols.http.management.health import HealthApi
from braidlog.protocols.http.management.log_metrics import scrape
from braidlog.protocols.http.management.rates import RateSamples
from braidlog.protocols.http.options import RestOptions
from braidlog.storage.metadata.names import TopicName
from tests.broker.server.certificates import tls_settings
from tests.protocols.http.asgi import call, scope_of
from tests.protocols.http.records import append_records


async def test_offsets_sizes_and_backlogs_are_read_on_request(app, broker):
    topic = await broker.topics.create(TopicName("public", "default", "orders"), 1)
    append_records(broker, topic.partition(0), 5)
    broker.subscriptions.open(topic, b"bill\xff").commit(0, 2)
    lines = (await call(app, "GET", "/metrics")).body.decode().splitlines()
    place = '{partition="0",topic="public/default/orders"}'
    group = r'{subscription="bill\\xff",topic="public/default/orders"}'
    assert f"braidlog_log_start_offset{place} 0.0" in lines
    assert f"braidlog_log_end_offset{place} 5.0" in lines
    assert f"braidlog_log_bytes{place} {float(topic.partition(0).log.size_bytes)}" in lines
    assert f"braidlog_subscription_backlog{group} 3.0" in lines
    assert "braidlog_topics 1.0" in lines


async def test_the_backlog_age_is_that_of_the_batch_at_the_position(app, broker):
    topic = await broker.topics.create(TopicName("public", "default", "orders"), 2)
    began_us = broker.now_us()
    for seconds in (90, 30):
        broker.now_us = lambda: began_us - seconds * 1_000_000  # noqa: B023
        append_records(broker, topic.partition(0), 5)
    broker.now_us = lambda: began_us
    await broker.durability.all_durable()
    family = "braidlog_subscription_backlog_seconds"
    group = '{subscription="billing",topic="public/default/orders"}'
    for position, age in ((0, 90), (4, 90), (5, 30), (9, 30), (10, 0)):
        broker.subscriptions.open(topic, b"billing").commit(0, position)
        lines = (await call(app, "GET", "/metrics")).body.decode().splitlines()
        assert f"{family}{group} {float(age)}" in lines, position


async def test_rates_and_sums_have_the_names_of_pulsars_dashboards(app, broker):
    topic = await broker.topics.create(TopicName("public", "default", "orders"), 1)
    append_records(broker, topic.partition(0), 5)
    broker.metrics.records_in("kafka", "public/default/orders", 600, 6000)
    broker.metrics.number("braidlog_producers", "pulsar", "public/default/orders").inc()
    broker.metrics.number("braidlog_open_connections", "pulsar").inc()
    broker.subscriptions.open(topic, b"s").commit(0, 2)
    lines = (await call(app, "GET", "/metrics")).body.decode().splitlines()
    shown = dict(line.rsplit(" ", 1) for line in lines if line.startswith("pulsar_"))
    topic_label = 'topic="persistent://public/default/orders"'
    labels = f'{{cluster="standalone",namespace="public/default",{topic_label}}}'
    rate = float(shown[f"pulsar_rate_in{labels}"])
    assert 0 < rate <= 600  # In the second since the listener started, or longer on a busy machine.
    assert float(shown[f"pulsar_throughput_in{labels}"]) == pytest.approx(10 * rate)
    assert float(shown[f"pulsar_producers_count{labels}"]) == 1.0
    assert float(shown[f"pulsar_storage_backlog_size{labels}"]) > 0
    whole = '{cluster="standalone"}'
    assert float(shown[f"pulsar_broker_rate_in{whole}"]) == rate
    assert float(shown[f"pulsar_broker_topics_count{whole}"]) == 1.0
    assert float(shown[f"pulsar_broker_msg_backlog{whole}"]) == 3.0
    assert float(shown[f"pulsar_active_connections{whole}"]) == 1.0


async def test_acknowledgements_have_a_rate(app, broker):
    await broker.topics.create(TopicName("public", "default", "orders"), 1)
    base = "/topics/public/default/orders"
    subscription = f"{base}/subscription/s"
    created = await call(app, "POST", subscription, {"initial_position": "Earliest"})
    await call(app, "POST", base, {"messages": [{"value": "x"}] * 4})
    path = f"{subscription}/consumers/{created.json['id']}/messages"
    ids = [message["messageId"] for message in (await call(app, "GET", path)).json["messages"]]
    acknowledged = {"type": "Individual", "messageIds": ids[:3]}
    assert (await call(app, "POST", f"{subscription}/cursor", acknowledged)).status == 200
    lines = (await call(app, "GET", "/metrics")).body.decode().splitlines()
    name = "pulsar_consumer_msg_ack_rate"
    (line,) = [line for line in lines if line.startswith(name)]
    assert line.startswith(f'{name}{{cluster="standalone",namespace="public/default",')
    assert 0 < float(line.rsplit(" ", 1)[1]) <= 3.0  # A second has passed, or more.


async def test_metrics_have_the_version_info(app, broker):
    text = (await call(app, "GET", "/metrics")).body.decode()
    python = platform.python_version()
    assert f'braidlog_build_info{{python="{python}",version="{broker.version}"}} 1.0' in text


def read(scraped, sets, series_max=1_000_000):
    """Return the families as Prometheus' own client reads their text."""
    text = exposition(scraped.families(sets, series_max), openmetrics=False).decode()
    return list(text_string_to_metric_families(text))


def of_topics(families):
    """Return the samples with a topic or a group."""
    labels = (
        {"topic", "subscription", "consumergroup"} & set(sample.labels) and sample
        for family in families
        for sample in family.samples
    )
    return [label for label in labels if label and not label.name.endswith("_created")]


async def test_series_beyond_the_limit_are_left_out_and_counted(app, broker):
    for name in ("a", "b", "no kafka name"):
        await broker.topics.create(TopicName("public", "default", name.replace(" ", "~")), 2)
        base = f"/topics/public/default/{name.replace(' ', '~')}"
        await call(app, "POST", f"{base}/subscription/s", {"initial_position": "Earliest"})
        await call(app, "POST", base, {"messages": [{"value": "x"}] * 2})
    scraped = await scrape(broker, Ages(), RateSamples(0.0))
    sets = ("braidlog", "pulsar", "kafka")
    every = of_topics(read(scraped, sets))
    for limit in (0, len(every) // 2, len(every) - 1):
        families = read(scraped, sets, limit)
        (left_out,) = (family for family in families if family.name == "braidlog_series_left_out")
        shown = of_topics(families)
        assert len(shown) <= limit
        assert len(shown) + left_out.samples[0].value == len(every)
        values = {family.name: family.samples[0].value for family in families if family.samples}
        assert values["braidlog_topics"] == values["pulsar_broker_topics_count"] == 3
        assert values["pulsar_broker_msg_backlog"] == 6


async def test_a_subscription_has_the_names_of_pulsars_dashboards(app, broker):
    orders = await broker.topics.create(TopicName("public", "default", "orders"), 1)
    base = "/topics/public/default/orders"
    await call(app, "POST", f"{base}/subscription/s", {"initial_position": "Earliest"})
    await call(app, "POST", base, {"messages": [{"value": "x"}] * 4})
    dispatcher = broker.dispatchers.find(orders.partition(0), b"s")
    dispatcher.is_blocked = True
    scraped = await scrape(broker, Ages(), RateSamples(0.0))
    names = (
        "blocked_on_unacked_messages",
        "msg_ack_rate",
        "back_log_no_delayed",
        "consumers_count",
    )
    families = {family.name: family for family in read(scraped, ("pulsar",))}
    values = [families[f"pulsar_subscription_{name}"].samples[0].value for name in names]
    assert values == [1, 0, 4, 1]


class ChangingAges(Ages):
    """Ages whose first lookup is the moment of a change, as a wait for the disk may be."""

    def __init__(self, change):
        super().__init__()
        self.changes = [change]

    async def since_us(self, partition, position):
        while self.changes:
            self.changes.pop()()
        return await super().since_us(partition, position)


@pytest.mark.parametrize("change", ["shrink", "move_away", "forget"])
async def test_a_topic_that_changes_during_a_scrape_fails_no_scrape(broker, change):
    """Other topics are in the answer; the next scrape has the topic as it is then."""
    topics = [
        await broker.topics.create(TopicName("public", "default", name), 2)
        for name in ("changing", "other")
    ]
    for topic in topics:
        append_records(broker, topic.partition(0), 5)
        await broker.durability.all_durable()
        broker.subscriptions.open(topic, b"billing").commit(0, 2)
    changing = topics[0]
    changes = {
        "shrink": lambda: broker.topics.shrink(changing, 1),
        "move_away": lambda: broker.topics.move_away(changing),
        "forget": lambda: broker.topics.forget(changing, 0),
    }
    ages = ChangingAges(changes[change])
    scraped = await scrape(broker, ages, RateSamples(0.0))
    assert not ages.changes
    assert "other" in [facts.name.topic for facts in scraped.topics]
    if change == "shrink":
        (facts, _) = (await scrape(broker, Ages(), RateSamples(0.0))).topics
        assert [partition.index for partition in facts.partitions] == [0]
        assert [(group.name, group.backlog) for group in facts.groups] == [("billing", 3)]


async def test_a_scrape_without_a_free_descriptor_leaves_out_the_open_files(broker):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        scraped = await scrape(broker, Ages(), RateSamples(0.0))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    names = {family.name for family in scraped.own}
    assert "braidlog_trio_tasks" in names
    assert "braidlog_open_files" not in names


async def test_a_topic_of_many_groups_lets_other_tasks_run(broker):
    topic = await broker.topics.create(TopicName("public", "default", "orders"), 1)
    for number in range(6 * PER_TURN):
        broker.subscriptions.open(topic, b"group-%d" % number).commit(0, 0)
    turns = 0

    async def other_task():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other_task)
        await scrape(broker, Ages(), RateSamples(0.0))
        nursery.cancel_scope.cancel()
    assert turns >= 2


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0"])
async def test_the_limit_of_series_is_a_setting(broker, accept):
    await broker.topics.create(TopicName("public", "default", "orders"), 1)
    health = HealthApi(broker, RestOptions(metrics_series_max=3))
    request = Request(scope_of("GET", "/metrics", {"accept": accept}))
    response = await health.metrics(request)
    lines = response.body.decode().splitlines()
    assert not [line for line in lines if "orders" in line]
    (left_out,) = [line for line in lines if line.startswith("braidlog_series_left_out")]
    assert float(left_out.split()[1]) > 3
    assert response.media_type.startswith(accept.split(";")[0])
    assert (lines[-1] == "# EOF") == accept.startswith("application")


async def test_the_end_of_a_certificate_is_a_metric(app, broker, tmp_path):
    family = "braidlog_certificate_end_seconds"
    assert family not in (await call(app, "GET", "/metrics")).body.decode()
    tls = tls_settings(tmp_path)
    tls.certificate_end_us = 1_900_000_000_000_000
    broker.listeners["kafka"] = SimpleNamespace(name="kafka", tls=tls)
    broker.listeners["http"] = SimpleNamespace(name="http", tls=None)
    lines = (await call(app, "GET", "/metrics")).body.decode().splitlines()
    broker.listeners.clear()
    shown = [line for line in lines if line.startswith(family)]
    assert shown == [f'{family}{{listener="kafka"}} 1.9e+09']
