"""Samples of the last hour."""

import trio

from braidlog.protocols.http.management.history import SAMPLES_MAX, HistoryApi
from tests.protocols.http.asgi import bare_broker, call


async def test_a_sample_has_the_rates_since_the_sample_before(autojump_clock):
    broker = bare_broker()
    history = HistoryApi(broker)
    broker.metrics.records_in("kafka", "public/default/a", 5, 50)
    await history.take()
    broker.metrics.records_in("kafka", "public/default/a", 100, 1000)
    broker.metrics.records_in("kafka", "public/default/b", 20, 200)
    broker.metrics.records_out("iggy", "public/default/b", 10, 30)
    await trio.sleep(10)
    await history.take()
    (sample,) = history.samples
    assert sample.protocols["kafka"].records_in_per_s == 12
    assert sample.protocols["kafka"].bytes_in_per_s == 120
    assert sample.protocols["iggy"].records_out_per_s == 1
    assert sample.memory_bytes > 1_000_000 and sample.disk_bytes > sample.disk_free_bytes


async def test_without_its_folder_the_broker_takes_no_sample(tmp_path):
    broker = bare_broker()
    broker.data_dir = tmp_path / "gone"
    history = HistoryApi(broker)
    for _ in range(2):
        await history.take()
    assert not history.samples


async def test_the_rate_of_a_deleted_topic_is_0(autojump_clock):
    broker = bare_broker()
    history = HistoryApi(broker)
    broker.metrics.records_in("kafka", "public/default/a", 5, 50)
    await history.take()
    broker.metrics.forget_topic("public/default/a")
    broker.metrics.records_in("kafka", "public/default/b", 1, 1)
    await trio.sleep(10)
    await history.take()
    assert history.samples[0].protocols["kafka"].records_in_per_s == 0


async def test_times_are_those_since_the_sample_before():
    broker = bare_broker()
    history = HistoryApi(broker)
    commits = broker.metrics.histogram("braidlog_append_seconds")
    commits.observe(5)
    await history.take()
    for _ in range(98):
        commits.observe(0.002)
    commits.observe(0.3)
    commits.observe(0.3)
    broker.metrics.requests("GET /a", "http").observe(100)
    broker.metrics.requests("GET /b", "http").observe(0.0001)
    await history.take()
    await history.take()
    first, second = history.samples
    assert (first.commits.count, first.commits.half_s, first.commits.most_s) == (100, 0.0025, 0.5)
    # A time above the last limit is shown as the limit.
    assert (first.requests.count, first.requests.half_s, first.requests.most_s) == (2, 0.001, 10)
    assert (second.commits.count, second.commits.half_s) == (0, None)


async def test_only_an_hour_is_kept():
    history = HistoryApi(bare_broker())
    for _ in range(SAMPLES_MAX + 5):
        await history.take()
    assert len(history.samples) == SAMPLES_MAX


async def test_the_listener_answers_with_the_samples(app):
    await app.history.take()
    await app.history.take()
    answer = (await call(app, "GET", "/api/v1/history")).json
    assert answer["interval_s"] == 30 and len(answer["samples"]) == 1
