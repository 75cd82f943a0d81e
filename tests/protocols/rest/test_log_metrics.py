import platform

from storage.metadata.names import TopicName
from tests.protocols.rest.asgi import call
from tests.protocols.rest.records import append_records


async def test_offsets_sizes_and_backlogs_are_read_when_asked_for(app, broker):
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


async def test_what_runs_here_is_told(app, broker):
    text = (await call(app, "GET", "/metrics")).body.decode()
    python = platform.python_version()
    assert f'braidlog_build_info{{python="{python}",version="{broker.version}"}} 1.0' in text
