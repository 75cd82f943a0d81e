"""The text of metric families, checked against the Prometheus client's own encoders."""

import prometheus_client
import pytest
from prometheus_client import metrics_core
from prometheus_client.openmetrics import exposition as openmetrics

from braidlog.broker.families import Family, Kind, exposition, gauge, label_text

AWKWARD = 'a "quoted" \\ back\nslash \u00fc'
VALUES = (0, 5, 0.25, -3.5, 123456, 1234567, 1e16, 12345678.9, 1e-7)
BUCKETS = [("0.5", 1), ("1.0", 3), ("+Inf", 4)]


class Registry:
    """Families of the Prometheus client, as its encoders take them."""

    def __init__(self, families):
        self._families = families

    def collect(self):
        return self._families


def ours():
    sizes = Family(Kind.HISTOGRAM, "seconds", "Time.", ("protocol", "api"))
    sizes.add_sizes(("kafka", "fetch"), BUCKETS, 2.5)
    counts = Family(Kind.COUNTER, "records", "Records\nstored \\.", ("topic", "group"))
    shared = Family(Kind.GAUGE, "lag", 'The "lag".')
    for value in VALUES:
        counts.add((AWKWARD, "g"), value)
        shared.add_labelled(label_text(("topic", "group"), (AWKWARD, "g")), value)
    return [gauge("topics", "Topics.", 3), sizes, counts, shared]


def theirs():
    sizes = metrics_core.HistogramMetricFamily("seconds", "Time.", labels=("protocol", "api"))
    sizes.add_metric(("kafka", "fetch"), BUCKETS, 2.5)
    labels = ("topic", "group")
    counts = metrics_core.CounterMetricFamily("records", "Records\nstored \\.", labels=labels)
    shared = metrics_core.GaugeMetricFamily("lag", 'The "lag".', labels=labels)
    for value in VALUES:
        counts.add_metric((AWKWARD, "g"), value)
        shared.add_metric((AWKWARD, "g"), value)
    topics = metrics_core.GaugeMetricFamily("topics", "Topics.", value=3)
    return Registry([topics, sizes, counts, shared])


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_the_text_is_that_of_the_prometheus_client(is_openmetrics):
    encode = openmetrics.generate_latest if is_openmetrics else prometheus_client.generate_latest
    assert exposition(ours(), openmetrics=is_openmetrics) == encode(theirs())


def test_labels_are_sorted_and_need_a_value_each():
    assert label_text(("b", "a"), ("1", "2")) == '{a="2",b="1"}'
    assert label_text((), ()) == ""
    with pytest.raises(ValueError, match="zip"):
        label_text(("a",), ())


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_a_name_that_is_no_text_spoils_no_scrape(is_openmetrics):
    family = Family(Kind.GAUGE, "braidlog_user_connections", "Connections.", ("user",))
    family.add(("a\ud800",), 1)
    assert b'{user="a\\ud800"} 1.0\n' in exposition([family], openmetrics=is_openmetrics)
