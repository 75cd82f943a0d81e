"""`/api/v1/history`: the broker's statistics of the last hour, a sample every half minute.

A timer copies counters that the broker counts anyway, so no request pays for the samples. The
samples are in memory only. Knows counters, no record and no page.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.runtime.heap import resident_bytes
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.http.requests import json_response

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.metrics import Histogram, Number

SAMPLE_S = 30.0
SAMPLES_MAX = 120  # An hour; a sample takes about 1 KB.
# The counters of a sample, and their fields.
RATES = {
    "braidlog_records_in": "records_in_per_s",
    "braidlog_bytes_in": "bytes_in_per_s",
    "braidlog_records_out": "records_out_per_s",
    "braidlog_bytes_out": "bytes_out_per_s",
}
COMMIT_SECONDS = "braidlog_append_seconds"

Totals = Mapping[tuple[str, str], int]  # By counter and protocol.
Numbers = Mapping[tuple[str, tuple[str, ...]], "Number"]


class ProtocolRates(msgspec.Struct):
    """Records and bytes that a protocol's clients stored and read, per second."""

    records_in_per_s: float = 0.0
    bytes_in_per_s: float = 0.0
    records_out_per_s: float = 0.0
    bytes_out_per_s: float = 0.0


class Latency(msgspec.Struct):
    """The number of events in a sample's time, and seconds below which half and 99 % of them were.
    The seconds are upper limits of the histogram's buckets; null without an event.
    """

    count: int
    half_s: float | None
    most_s: float | None


class Sample(msgspec.Struct):
    """Statistics at a moment, and rates and times since the sample before."""

    time_us: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    protocols: dict[str, ProtocolRates]
    commits: Latency
    requests: Latency


class History(msgspec.Struct):
    """The samples of the last hour, the oldest first, and the time between two samples."""

    interval_s: float
    samples: list[Sample]


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts of a histogram, or of several with the same buckets."""

    limits: Sequence[float]
    counts: Sequence[int] = field(default=())

    def since(self, before: _Counts) -> Latency:
        """Return the times of the events since an earlier copy."""
        earlier = before.counts or [0] * len(self.counts)
        counts = [max(now - then, 0) for now, then in zip(self.counts, earlier, strict=True)]
        return Latency(sum(counts), self._limit(counts, 0.5), self._limit(counts, 0.99))

    def _limit(self, counts: Sequence[int], share: float) -> float | None:
        """Return the upper limit of the bucket that holds the event at this share."""
        wanted, below = share * sum(counts), 0
        for limit, count in zip(self.limits, counts, strict=False):
            below += count
            if count and below >= wanted:
                return limit
        return self.limits[-1] if any(counts) else None


@dataclass(frozen=True, slots=True)
class _Copy:
    """The counters at a moment."""

    at_s: float
    totals: Totals
    commits: _Counts
    requests: _Counts


class HistoryApi:
    """Takes the samples and answers requests for them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._before: _Copy | None = None

    async def run(self) -> None:
        """Take a sample every `SAMPLE_S` until cancelled."""
        while True:
            await self.take()
            await trio.sleep(SAMPLE_S)

    async def take(self) -> None:
        """Take a sample; the first call only copies the counters."""
        copy, before = await self._copy(), self._before
        self._before = copy
        if before is None:
            return
        try:
            disk = await run_in_thread(os.statvfs, self._broker.data_dir)
        except OSError as error:  # A sample is no reason to end the broker.
            self._broker.seldom.warning("sample_left_out", cause="disk", reason=error.strerror)
            return
        sample = Sample(
            time_us=self._broker.now_us(),
            memory_bytes=resident_bytes(),
            disk_bytes=disk.f_blocks * disk.f_frsize,
            disk_free_bytes=disk.f_bavail * disk.f_frsize,
            protocols=_rates(copy, before),
            commits=copy.commits.since(before.commits),
            requests=copy.requests.since(before.requests),
        )
        self.samples.append(sample)

    async def _copy(self) -> _Copy:
        metrics = self._broker.metrics
        numbers = metrics.copied_numbers()
        return _Copy(
            trio.current_time(),
            await run_in_thread(_totals, numbers),  # 100,000 counters take 30 ms.
            _counts([metrics.histogram(COMMIT_SECONDS)]),
            _counts(metrics.request_histograms()),
        )

    async def show(self, _: Request) -> Response:
        """The samples of the last hour."""
        return json_response(History(SAMPLE_S, list(self.samples)))


def _totals(numbers: Numbers) -> Totals:
    totals: dict[tuple[str, str], int] = {}
    for (name, labels), number in numbers.items():
        if name in RATES:
            place = (name, labels[0])
            totals[place] = totals.get(place, 0) + number.value
    return totals


def _rates(copy: _Copy, before: _Copy) -> dict[str, ProtocolRates]:
    """Return the rates between two copies; 0 for a total that fell with a deleted topic."""
    seconds = max(copy.at_s - before.at_s, 1.0)
    by_protocol: dict[str, ProtocolRates] = {}
    for (name, protocol), total in copy.totals.items():
        rates = by_protocol.setdefault(protocol, ProtocolRates())
        rate = max(total - before.totals.get((name, protocol), 0), 0) / seconds
        setattr(rates, RATES[name], rate)
    return dict(sorted(by_protocol.items()))


def _counts(histograms: Sequence[Histogram]) -> _Counts:
    """Return the summed counts of histograms with the same buckets."""
    if not histograms:
        return _Counts(())
    columns = zip(*(histogram.counts for histogram in histograms), strict=True)
    return _Counts(histograms[0].buckets, [sum(column) for column in columns])
