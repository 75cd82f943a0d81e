"""The broker's counters.

Two brokers in a process do not mix. Counters here are plain objects that cost a tenth of a
microsecond; a scrape makes families of them. The handler of the scrape reads offsets, sizes and
backlogs from the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from braidlog.broker.families import Family, Kind
from braidlog.broker.traffic import PartitionTraffic

RequestT = TypeVar("RequestT")

SECONDS_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 10.0)
# Shorter turns than the first limit share a bucket (`broker/runtime/loop_turns.py`).
TURN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0)

COUNTERS = {
    "braidlog_connections": ("Connections accepted.", ("protocol",)),
    "braidlog_requests": ("Requests served.", ("protocol", "api")),
    "braidlog_errors": ("Requests refused, by error.", ("protocol", "code")),
    "braidlog_protocol_errors": ("Connections ended for breaking their protocol.", ("protocol",)),
    "braidlog_records_in": ("Records stored.", ("protocol", "topic")),
    "braidlog_bytes_in": ("Bytes of stored bodies.", ("protocol", "topic")),
    "braidlog_records_out": ("Records handed to readers.", ("protocol", "topic")),
    "braidlog_bytes_out": ("Bytes of bodies handed to readers.", ("protocol", "topic")),
    "braidlog_password_hashes": ("Passwords hashed, which costs 20 to 40 ms each.", ()),
    "braidlog_user_logins": (
        "Logins by user; over HTTP each request counts as a login.",
        ("user",),
    ),
    "braidlog_user_refusals": ("Actions that a user was not allowed to do.", ("user",)),
    "braidlog_logins_refused": ("Logins refused, by password, token or certificate.", ("method",)),
    "braidlog_objects": ("Objects of the shared store put or deleted.", ("op", "kind")),
    "braidlog_uploaded_bytes": ("Bytes put into the shared store.", ("kind",)),
    "braidlog_cache_reads": ("Reads of segments that are stored as objects.", ("result",)),
    "braidlog_fenced": ("Sessions of other brokers that this one ended.", ()),
    "braidlog_expired_records": (
        "Records that a message TTL or a backlog quota acknowledged for a subscription.",
        ("topic", "subscription"),
    ),
    "braidlog_compactions": (
        "Compactions that ended, of logs or into views.",
        ("kind", "result"),
    ),
    "braidlog_compaction_saved_bytes": (
        "Bytes of the files that compactions read, less those that they wrote.",
        ("kind",),
    ),
    "braidlog_hold_lost_records": (
        "Records that a retention hold's cap dropped before its subscription had read them.",
        ("topic", "subscription"),
    ),
    "braidlog_stale_commits": (
        "Commits of consumers whose partition another consumer owns by now; they moved nothing.",
        ("protocol",),
    ),
    "braidlog_records_left_out": (
        "Records that the reading protocol cannot carry.",
        ("protocol", "topic"),
    ),
}
GAUGES = {
    "braidlog_compaction_last_seconds": (
        "Time of the last successful compaction, in seconds since 1970.",
        ("kind",),
    ),
    "braidlog_open_connections": ("Connections open now.", ("protocol",)),
    "braidlog_user_connections": ("Connections open now, by user.", ("user",)),
    "braidlog_waiting_requests": ("Requests that wait for records.", ("protocol",)),
    "braidlog_producers": ("Producers that are connected.", ("protocol", "topic")),
    "braidlog_unpublished_bytes": ("Bytes appended that no round has published yet.", ()),
    "braidlog_beat_age_seconds": ("Time since PostgreSQL answered a heartbeat.", ()),
    "braidlog_shards": ("Shards of the cluster at this broker.", ("state",)),
    "braidlog_cache_bytes": ("Bytes cached of segments that are stored as objects.", ()),
}
# Histograms of requests, without waits for records; created at the first count.
REQUEST_SECONDS = "braidlog_request_seconds"
REQUEST_TEXT = "Requests: time until they were answered, without waits for records."
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
HISTOGRAMS = {
    "braidlog_append_seconds": (
        "Commit rounds: time from their first append until it was on disk.",
        SECONDS_BUCKETS,
    ),
    "braidlog_fsync_seconds": ("Commit rounds: time in the sync.", SECONDS_BUCKETS),
    "braidlog_round_put_seconds": ("Rounds of the shared store: time in puts.", SECONDS_BUCKETS),
    "braidlog_round_publish_seconds": (
        "Rounds of the shared store: time in the statement.",
        SECONDS_BUCKETS,
    ),
    "braidlog_loop_turn_seconds": ("Turns of the event loop: processor time.", TURN_BUCKETS),
}


@dataclass(slots=True, eq=False)
class Number:
    """A counter or gauge; frequent callers keep a reference and count in place."""

    value: int = 0

    def inc(self, amount: int = 1) -> None:
        """Add to the number."""
        self.value += amount

    def dec(self) -> None:
        """Take one off a gauge."""
        self.value -= 1


Pairs = dict[tuple[str, str], tuple[Number, Number]]


class Histogram:
    """Counts of values by size, in seconds."""

    __slots__ = ("buckets", "counts", "total")

    def __init__(self, buckets: Sequence[float] = SECONDS_BUCKETS) -> None:
        """`buckets` are the upper limits, in order."""
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.buckets, seconds)] += 1
        self.total += seconds


# Users with separate metrics, some 1 KB each in a scrape; all other users share a set.
USER_FIGURES_MAX = 1000
OTHER_USERS = "(others)"


class Metrics:
    """Every counter of a broker."""

    def __init__(self) -> None:
        self._has_topic: Callable[[str], bool] = _always
        """True if a topic of that name has metrics. Nothing is kept for others: clients that make
        and delete topics would fill the memory."""
        self._users: set[str] = set()  # Users with separate metrics.
        self._numbers: dict[tuple[str, tuple[str, ...]], Number] = {}
        self._protocols: set[str] = set()  # Protocols that count by topic.
        # The numbers that `records_in` and `records_out` add to, by protocol and topic: each small
        # request calls both.
        self._records_in: Pairs = {}
        self._records_out: Pairs = {}
        # Keys of a topic's numbers, as an ordered set.
        self._of_topic: dict[str, dict[tuple[str, tuple[str, ...]], None]] = {}
        # Gauges of deleted topics that clients still count down.
        self._orphaned_gauges: set[tuple[str, tuple[str, ...]]] = set()
        self._requests: dict[tuple[str, str], Histogram] = {}
        self._by_kind: dict[tuple[str, str], dict[Any, Number]] = {}
        self._histograms: dict[str, Histogram] = {
            name: Histogram(buckets) for name, (_, buckets) in HISTOGRAMS.items()
        }

    def leave_out_unless(self, has_topic: Callable[[str], bool]) -> None:
        """Leave out the metrics of topics for which `has_topic` returns False, from now on."""
        self._has_topic = has_topic

    def of_user(self, name: str, user: str) -> Number:
        """Return the counter or gauge of that family for a user; USER_FIGURES_MAX users have their
        own.
        """
        if user not in self._users:
            if len(self._users) >= USER_FIGURES_MAX:
                return self.number(name, OTHER_USERS)
            self._users.add(user)
        return self.number(name, user)

    def number(self, name: str, *labels: str) -> Number:
        """Return the counter or gauge of that family (`COUNTERS`, `GAUGES`) with these label
        values, in order.
        """
        key = (name, labels)
        number = self._numbers.get(key)
        if number is None:
            _, names = COUNTERS.get(name) or GAUGES[name]
            assert len(names) == len(labels), f"{name} has the labels {names}"
            if "topic" in names and not self._has_topic(labels[names.index("topic")]):
                return Number()
            if names == ("protocol", "topic"):
                self._protocols.add(labels[0])
            number = self._numbers[key] = Number()
            if "topic" in names:
                self._of_topic.setdefault(labels[names.index("topic")], {})[key] = None
        return number

    def by_kind(
        self, name: str, protocol: str, kinds: Mapping[RequestT, str]
    ) -> Mapping[RequestT, Number]:
        """Return a counter for each of a protocol's kinds of requests, which `kinds` maps to
        labels. All connections share the mapping.
        """
        key = (name, protocol)
        if key not in self._by_kind:
            self._by_kind[key] = {
                kind: self.number(name, protocol, label) for kind, label in kinds.items()
            }
        return self._by_kind[key]

    def value(self, name: str, *labels: str) -> int:
        """Return the count of `number`; 0 if nothing was counted."""
        number = self._numbers.get((name, labels))
        return 0 if number is None else number.value

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic: clients that create and delete topics would fill the memory."""
        for protocol in self._protocols:
            self._records_in.pop((protocol, topic), None)
            self._records_out.pop((protocol, topic), None)
        for key in [key for key in self._orphaned_gauges if not self._numbers[key].value]:
            self._forget(key)
        for key in tuple(self._of_topic.get(topic, ())):
            if key[0] in GAUGES and self._numbers[key].value:
                self._orphaned_gauges.add(key)  # Forgotten with another topic, once counted down.
            else:
                self._forget(key)

    def _forget(self, key: tuple[str, tuple[str, ...]]) -> None:
        name, labels = key
        _, names = COUNTERS.get(name) or GAUGES[name]
        topic = labels[names.index("topic")]
        keys = self._of_topic[topic]
        del keys[key]
        if not keys:
            del self._of_topic[topic]
        del self._numbers[key]
        self._orphaned_gauges.discard(key)

    def histogram(self, name: str) -> Histogram:
        return self._histograms[name]

    def requests(self, api: str, protocol: str) -> Histogram:
        """Return the histogram of times of a kind of request."""
        key = (protocol, api)
        histogram = self._requests.get(key)
        if histogram is None:
            histogram = self._requests[key] = Histogram(REQUEST_BUCKETS)
        return histogram

    def request_histograms(self) -> list[Histogram]:
        """Return the histograms of all kinds of requests."""
        return list(self._requests.values())

    def copied_numbers(self) -> dict[tuple[str, tuple[str, ...]], Number]:
        """Return the counters and gauges by family and labels, for any thread. Makes no object for
        each number: 4 ms of the loop for 200,000.
        """
        return self._numbers.copy()

    def hold_lost(self, topic: str, subscription: str, records: int) -> None:
        """Count records that a subscription lost because a retention hold reached its limit."""
        self.number("braidlog_hold_lost_records", topic, subscription).value += records

    def expired(self, topic: str, subscription: str, records: int) -> None:
        """Count records that a message TTL or a backlog quota acknowledged for a subscription."""
        self.number("braidlog_expired_records", topic, subscription).value += records

    def topic_total(self, name: str, topic: str) -> int:
        """Return the sum over protocols of a counter with the labels protocol and topic."""
        numbers = (self._numbers.get((name, (protocol, topic))) for protocol in self._protocols)
        return sum(number.value for number in numbers if number is not None)

    def records_in(
        self,
        protocol: str,
        topic: str,
        records: int,
        size: int,
        traffic: PartitionTraffic | None = None,
    ) -> None:
        """Count a stored body; `topic` is the full name, `traffic` the partition's counts."""
        if traffic is not None:
            traffic.records_in += records
            traffic.bytes_in += size
        pair = self._records_in.get((protocol, topic))
        if pair is None:
            pair = self._pair(self._records_in, "in", protocol, topic)
        pair[0].value += records
        pair[1].value += size

    def _pair(
        self, pairs: Pairs, direction: str, protocol: str, topic: str
    ) -> tuple[Number, Number]:
        pair = (
            self.number(f"braidlog_records_{direction}", protocol, topic),
            self.number(f"braidlog_bytes_{direction}", protocol, topic),
        )
        if self._has_topic(topic):
            pairs[protocol, topic] = pair
        return pair

    def records_out(
        self,
        protocol: str,
        topic: str,
        records: int,
        size: int,
        traffic: PartitionTraffic | None = None,
    ) -> None:
        """Count records returned to a reader, as `records_in`."""
        if traffic is not None:
            traffic.records_out += records
            traffic.bytes_out += size
        pair = self._records_out.get((protocol, topic))
        if pair is None:
            pair = self._pair(self._records_out, "out", protocol, topic)
        pair[0].value += records
        pair[1].value += size

    def left_out(self, protocol: str, topic: str, records: int) -> None:
        """Count records left out for a reader whose protocol cannot carry them."""
        self.number("braidlog_records_left_out", protocol, topic).value += records

    def snapshot(self) -> Snapshot:
        """Return all numbers, for the code that renders `/metrics`, in any thread."""
        return Snapshot(
            self.copied_numbers(),
            {name: _Sizes.of(histogram) for name, histogram in self._histograms.items()},
            {labels: _Sizes.of(histogram) for labels, histogram in self._requests.items()},
        )


def _always(topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class _Sizes:
    """A copy of a histogram: (limit, count of values up to the limit), and the sum of
    all values.
    """

    buckets: list[tuple[str, int]]
    total: float

    @classmethod
    def of(cls, histogram: Histogram) -> _Sizes:
        buckets, below = [], 0
        for limit, count in zip((*histogram.buckets, "+Inf"), histogram.counts, strict=True):
            below += count
            buckets.append((str(limit), below))
        return cls(buckets, histogram.total)


# Place of the topic among the labels of a family.
TOPIC_PLACES = {
    name: labels.index("topic")
    for name, (_, labels) in (COUNTERS | GAUGES).items()
    if "topic" in labels
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All counts. The values of counters and gauges are read when their families are made."""

    numbers: Mapping[tuple[str, tuple[str, ...]], Number]
    histograms: Mapping[str, _Sizes]
    requests: Mapping[tuple[str, str], _Sizes]

    def series_of_topics(self) -> dict[str, int]:
        """Return the number of series of each topic."""
        counts: dict[str, int] = {}
        for name, labels in self.numbers:
            place = TOPIC_PLACES.get(name)
            if place is not None:
                counts[labels[place]] = counts.get(labels[place], 0) + 1
        return counts

    def without(self, topics: Collection[str]) -> Snapshot:
        """Return a copy without the numbers of these topics."""
        left = {
            (name, labels): number
            for (name, labels), number in self.numbers.items()
            if (place := TOPIC_PLACES.get(name)) is None or labels[place] not in topics
        }
        return replace(self, numbers=left)

    def by_topic(self, names: Collection[str]) -> dict[str, dict[str, int]]:
        """Return counters and gauges with the labels protocol and topic, as sums over the
        protocols.
        """
        totals: dict[str, dict[str, int]] = {name: {} for name in names}
        for (name, labels), number in self.numbers.items():
            if name in totals:
                of_name, topic = totals[name], labels[1]
                of_name[topic] = of_name.get(topic, 0) + number.value
        return totals

    def families(self) -> Iterator[Family]:
        """Iterate over the metric families."""
        families = {
            name: Family(kind, name, text, labels)
            for kind, table in ((Kind.COUNTER, COUNTERS), (Kind.GAUGE, GAUGES))
            for name, (text, labels) in table.items()
        }
        for (name, labels), number in self.numbers.items():
            families[name].add(labels, number.value)
        yield from families.values()
        for name, (text, _) in HISTOGRAMS.items():
            family = Family(Kind.HISTOGRAM, name, text)
            family.add_sizes((), self.histograms[name].buckets, self.histograms[name].total)
            yield family
        family = Family(Kind.HISTOGRAM, REQUEST_SECONDS, REQUEST_TEXT, ("protocol", "api"))
        for values, sizes in self.requests.items():
            family.add_sizes(values, sizes.buckets, sizes.total)
        yield family
