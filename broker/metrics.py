"""What the broker counts, in a Prometheus registry of its own: two brokers in one process do not
mix.

Counters here are plain objects that cost a tenth of a microsecond; families are made of them
when somebody scrapes, and only then is the Prometheus client imported. What the log itself knows
(offsets, sizes, backlogs) is read from it by whoever answers the scrape.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

SECONDS_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 10.0)
# Turns shorter than the first are not told apart (`broker/server/loop_turns.py`).
TURN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0)

COUNTERS = {
    "braidlog_connections": ("Connections that came in.", ("protocol",)),
    "braidlog_requests": ("Requests served.", ("protocol", "api")),
    "braidlog_errors": ("Requests refused, by the error told.", ("protocol", "code")),
    "braidlog_protocol_errors": ("Connections ended for breaking their protocol.", ("protocol",)),
    "braidlog_records_in": ("Records stored.", ("protocol", "topic")),
    "braidlog_bytes_in": ("Bytes of stored bodies.", ("protocol", "topic")),
    "braidlog_records_out": ("Records handed to readers.", ("protocol", "topic")),
    "braidlog_bytes_out": ("Bytes of bodies handed to readers.", ("protocol", "topic")),
    "braidlog_logins_refused": ("Logins refused, by password, token or certificate.", ("way",)),
    "braidlog_records_left_out": (
        "Records that the reading protocol cannot carry.",
        ("protocol", "topic"),
    ),
}
GAUGES = {"braidlog_open_connections": ("Connections open now.", ("protocol",))}
# Histograms of requests, waits for records not included; made when the first one is counted.
REQUEST_SECONDS = "braidlog_request_seconds"
REQUEST_TEXT = "Requests: time until they were answered, without waits for records."
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
HISTOGRAMS = {
    "braidlog_fsync_seconds": ("Commit rounds: time in the sync.", SECONDS_BUCKETS),
    "braidlog_loop_turn_seconds": ("Turns of the event loop: processor time.", TURN_BUCKETS),
}


class Number:
    """A counter or gauge; hold it where it is used often."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        """Count."""
        self.value += amount

    def dec(self) -> None:
        """Take one off a gauge."""
        self.value -= 1


class Histogram:
    """Counts of values by size, in seconds."""

    __slots__ = ("buckets", "counts", "total")

    def __init__(self, buckets: Sequence[float] = SECONDS_BUCKETS) -> None:
        """`buckets` are the upper limits, in order."""
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.buckets, seconds)] += 1
        self.total += seconds


class Metrics:
    """Every counter of one broker."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, tuple[str, ...]], Number] = {}
        self._requests: dict[tuple[str, str], Histogram] = {}
        self._histograms: dict[str, Histogram] = {
            name: Histogram(buckets) for name, (_, buckets) in HISTOGRAMS.items()
        }

    def number(self, name: str, *labels: str) -> Number:
        """The counter or gauge of that family (`COUNTERS`, `GAUGES`) with these label values, in
        order.
        """
        key = (name, labels)
        number = self._numbers.get(key)
        if number is None:
            _, names = COUNTERS.get(name) or GAUGES[name]
            assert len(names) == len(labels), f"{name} has the labels {names}"
            number = self._numbers[key] = Number()
        return number

    def histogram(self, name: str) -> Histogram:
        """The histogram of that name (`HISTOGRAMS`)."""
        return self._histograms[name]

    def requests(self, api: str, protocol: str) -> Histogram:
        """Times of one kind of request."""
        key = (protocol, api)
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = Histogram(REQUEST_BUCKETS)
        return found

    def totals_by_topic(self, name: str) -> dict[str, int]:
        """A counter that has the labels protocol and topic: its sums over the protocols."""
        totals: dict[str, int] = {}
        for (family, labels), number in self._numbers.items():
            if family == name:
                totals[labels[1]] = totals.get(labels[1], 0) + number.value
        return totals

    def records_in(self, protocol: str, topic: str, records: int, size: int) -> None:
        """A body was stored; `topic` is the full name."""
        self.number("braidlog_records_in", protocol, topic).value += records
        self.number("braidlog_bytes_in", protocol, topic).value += size

    def records_out(self, protocol: str, topic: str, records: int, size: int) -> None:
        """Records were handed to a reader; `topic` is the full name."""
        self.number("braidlog_records_out", protocol, topic).value += records
        self.number("braidlog_bytes_out", protocol, topic).value += size

    def left_out(self, protocol: str, topic: str, records: int) -> None:
        """Records were left out for a reader whose protocol cannot carry them."""
        self.number("braidlog_records_left_out", protocol, topic).value += records

    @functools.cached_property
    def registry(self) -> CollectorRegistry:
        """All of it, for whoever renders `/metrics`."""
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def collect(self) -> Iterator[Metric]:
        """The families of the counters above (the interface of a Prometheus collector)."""
        from prometheus_client import metrics_core

        families: dict[str, metrics_core.CounterMetricFamily | metrics_core.GaugeMetricFamily] = {}
        for name, (text, labels) in COUNTERS.items():
            families[name] = metrics_core.CounterMetricFamily(name, text, labels=labels)
        for name, (text, labels) in GAUGES.items():
            families[name] = metrics_core.GaugeMetricFamily(name, text, labels=labels)
        for (name, values), number in self._numbers.items():
            families[name].add_metric(values, number.value)
        yield from families.values()
        for name, (text, _) in HISTOGRAMS.items():
            yield _histogram_family(name, text, self._histograms[name])
        yield _request_family(self._requests)


def _histogram_family(name: str, text: str, histogram: Histogram) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    return HistogramMetricFamily(
        name, text, buckets=_cumulated(histogram), sum_value=histogram.total
    )


def _request_family(histograms: Mapping[tuple[str, str], Histogram]) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    family = HistogramMetricFamily(REQUEST_SECONDS, REQUEST_TEXT, labels=("protocol", "api"))
    for labels, histogram in histograms.items():
        family.add_metric(labels, buckets=_cumulated(histogram), sum_value=histogram.total)
    return family


def _cumulated(histogram: Histogram) -> list[tuple[str, int]]:
    buckets, below = [], 0
    for limit, count in zip((*histogram.buckets, "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((str(limit), below))
    return buckets
