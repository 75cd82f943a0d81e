"""Counters of a broker as Prometheus sees them."""

import pytest

from braidlog.broker.families import exposition
from braidlog.broker.metrics import OTHER_USERS, SECONDS_BUCKETS, USER_FIGURES_MAX, Metrics


def rendered(metrics):
    families = metrics.snapshot().families()
    lines = exposition(families, openmetrics=False).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_counters_and_gauges_are_shown_with_their_labels():
    metrics = Metrics()
    metrics.records_in("kafka", "public/default/t", 3, 100)
    metrics.records_in("kafka", "public/default/t", 2, 50)
    metrics.records_out("iggy", "public/default/t", 1, 10)
    metrics.left_out("iggy", "public/default/t", 4)
    gauge = metrics.number("braidlog_open_connections", "kafka")
    gauge.inc()
    gauge.inc()
    gauge.dec()
    values = rendered(metrics)
    labels = '{protocol="%s",topic="public/default/t"}'
    assert values["braidlog_records_in_total" + labels % "kafka"] == "5.0"
    assert values["braidlog_bytes_in_total" + labels % "kafka"] == "150.0"
    assert values["braidlog_records_out_total" + labels % "iggy"] == "1.0"
    assert values["braidlog_records_left_out_total" + labels % "iggy"] == "4.0"
    assert values['braidlog_open_connections{protocol="kafka"}'] == "1.0"
    assert not any("_created" in name for name in values)


def test_a_deleted_topics_metrics_are_removed_and_gauges_end_later():
    metrics = Metrics()
    for topic in ("gone", "stays"):
        metrics.records_in("kafka", topic, 3, 100)
        metrics.expired(topic, "group", 1)
    gauge = metrics.number("braidlog_producers", "pulsar", "gone")
    gauge.inc()
    metrics.forget_topic("gone")
    assert [key for key in rendered(metrics) if '"gone"' in key] == [
        'braidlog_producers{protocol="pulsar",topic="gone"}'
    ]
    metrics.number("braidlog_producers", "pulsar", "gone").dec()
    metrics.forget_topic("another")
    assert not [key for key in rendered(metrics) if '"gone"' in key]
    assert len([key for key in rendered(metrics) if '"stays"' in key]) == 3
    metrics.records_in("kafka", "gone", 1, 1)  # Created again.
    assert len([key for key in rendered(metrics) if '"gone"' in key]) == 2


def test_a_recreated_topic_keeps_its_metrics():
    metrics = Metrics()
    metrics.number("braidlog_producers", "pulsar", "again").inc()
    metrics.forget_topic("again")  # The topic's producer has not left yet.
    metrics.records_in("kafka", "again", 3, 100)
    metrics.number("braidlog_producers", "pulsar", "again").inc()
    metrics.number("braidlog_producers", "pulsar", "again").dec()
    metrics.forget_topic("another")
    assert metrics.topic_total("braidlog_records_in", "again") == 3
    assert metrics.topic_total("braidlog_producers", "again") == 1
    metrics.number("braidlog_producers", "pulsar", "again").dec()
    metrics.forget_topic("again")
    assert not [key for key in rendered(metrics) if '"again"' in key]


def test_a_histogram_counts_each_value_in_every_higher_bucket():
    metrics = Metrics()
    histogram = metrics.histogram("braidlog_fsync_seconds")
    for seconds in (0.00005, 0.0001, 0.002, 99.0):
        histogram.observe(seconds)
    values = rendered(metrics)
    assert values['braidlog_fsync_seconds_bucket{le="0.0001"}'] == "2.0"
    assert values['braidlog_fsync_seconds_bucket{le="0.0025"}'] == "3.0"
    assert values[f'braidlog_fsync_seconds_bucket{{le="{SECONDS_BUCKETS[-1]}"}}'] == "3.0"
    assert values['braidlog_fsync_seconds_bucket{le="+Inf"}'] == "4.0"
    assert float(values["braidlog_fsync_seconds_sum"]) == pytest.approx(99.00215)


def test_two_brokers_do_not_mix():
    first, second = Metrics(), Metrics()
    first.number("braidlog_connections", "kafka").inc()
    assert 'braidlog_connections_total{protocol="kafka"}' not in rendered(second)


def test_unknown_families_and_wrong_labels_are_bugs():
    with pytest.raises(KeyError):
        Metrics().number("braidlog_nope", "x")
    with pytest.raises(AssertionError, match="labels"):
        Metrics().number("braidlog_connections", "kafka", "more")


def test_users_with_metrics_have_a_limit():
    metrics = Metrics()
    for number in range(USER_FIGURES_MAX + 5):
        metrics.of_user("braidlog_user_logins", f"user-{number}").inc()
    metrics.of_user("braidlog_user_logins", "user-3").inc()
    assert metrics.number("braidlog_user_logins", "user-3").value == 2
    assert metrics.number("braidlog_user_logins", OTHER_USERS).value == 5
