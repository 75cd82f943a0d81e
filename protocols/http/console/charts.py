"""Small charts of the broker's statistics, as the points of SVG lines. Knows no page and no
template.

A page holds the SVG itself, so a chart needs no script, and its colours are those of the style.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from braidlog.protocols.http.console.rendering import duration, rate, size
from braidlog.protocols.http.management.history import History, Sample

WIDTH, HEIGHT = 300.0, 60.0
GAP_SAMPLES = 3  # A longer time without a sample, after a suspended machine, interrupts the line.

Value = float | None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: its name, the latest value as text, and the points of each piece."""

    name: str
    latest: str
    pieces: list[str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `most` is the value of the upper edge as text; the lower edge is 0."""

    title: str
    most: str
    lines: list[Line] = field(default_factory=list)


def make_charts(history: History) -> list[Chart]:
    """Return the charts of the last hour; none without samples."""
    samples = history.samples
    if not samples:
        return []
    protocols = sorted({name for sample in samples for name in sample.protocols})

    def rates(field_name: str) -> dict[str, list[Value]]:
        return {name: [_rate(sample, name, field_name) for sample in samples] for name in protocols}

    def chart(
        title: str, show: Callable[[float], str], columns: dict[str, list[Value]], least: float
    ) -> Chart:
        return _chart(history, title, show, columns, least)

    used = [float(sample.disk_bytes - sample.disk_free_bytes) for sample in samples]
    return [
        chart("Records in, per second", rate, rates("records_in_per_s"), 1),
        chart("Records out, per second", rate, rates("records_out_per_s"), 1),
        chart("Bytes in, per second", size, rates("bytes_in_per_s"), 1024),
        chart("Bytes out, per second", size, rates("bytes_out_per_s"), 1024),
        chart(
            "Commit to the disk, at most",
            _seconds_text,
            {
                "half": [sample.commits.half_s for sample in samples],
                "99 %": [sample.commits.most_s for sample in samples],
            },
            0.001,
        ),
        chart(
            "HTTP request, at most",
            _seconds_text,
            {
                "half": [sample.requests.half_s for sample in samples],
                "99 %": [sample.requests.most_s for sample in samples],
            },
            0.001,
        ),
        chart("Memory", size, {"": [float(sample.memory_bytes) for sample in samples]}, 1024),
        chart("Disk in use", size, {"": [*used]}, float(samples[-1].disk_bytes)),
    ]


def _rate(sample: Sample, protocol: str, field_name: str) -> float:
    rates = sample.protocols.get(protocol)
    return 0.0 if rates is None else float(getattr(rates, field_name))


def _chart(
    history: History,
    title: str,
    show: Callable[[float], str],
    columns: dict[str, list[Value]],
    least: float,
) -> Chart:
    """Return a chart whose upper edge is the highest value, but not below `least`."""
    highest = max((value for column in columns.values() for value in column if value), default=0)
    most = max(highest, least)
    times = [sample.time_us / 1_000_000 for sample in history.samples]
    gap_s = GAP_SAMPLES * history.interval_s
    lines = []
    for name, column in columns.items():
        latest = column[-1]
        text = "none" if latest is None else show(latest)
        lines.append(Line(name, text, _pieces(times, column, most, gap_s)))
    return Chart(title, show(most), lines)


def _pieces(
    times: Sequence[float], column: Sequence[Value], most: float, gap_s: float
) -> list[str]:
    """Return the points of each unbroken piece of a line: an hour is the whole width."""
    pieces: list[list[str]] = []
    before: float | None = None
    for at, value in zip(times, column, strict=True):
        if value is None:
            before = None
            continue
        if before is None or not 0 <= at - before <= gap_s:
            pieces.append([])
        before = at
        x = WIDTH * (1 - (times[-1] - at) / 3600)
        y = HEIGHT * (1 - value / most)
        if x >= 0:
            pieces[-1].append(f"{x:.1f},{y:.1f}")
    # A single point comes twice, so that a round line end shows the point.
    return [" ".join(piece if len(piece) > 1 else piece * 2) for piece in pieces if piece]


def _seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else duration(seconds)
