"""Metric families, and their text in the two formats that Prometheus reads.

A family holds its samples as finished lines: a broker with 50,000 topics has 200,000 samples in an
answer, and the Prometheus client needs ten times as long for objects that it then turns into lines.
Knows no metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

COUNTER_SUFFIX = "_total"  # Of a counter's samples, in both formats.
PLAIN_DIGITS = 6  # Go writes longer numbers with an exponent, as Prometheus' own servers.


class Kind(StrEnum):
    """The type of a family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family:
    """A metric: name, explanation and samples.

    `labels` are the label names, in the order of the values of a sample.
    """

    __slots__ = ("_labels", "_sample_name", "kind", "lines", "name", "text")

    def __init__(self, kind: Kind, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.text = text
        self.lines: list[str] = []
        self._labels = labels
        self._sample_name = name + COUNTER_SUFFIX if kind is Kind.COUNTER else name

    def add(self, values: Sequence[str], value: float) -> None:
        """Add a sample with these label values."""
        self.add_labelled(label_text(self._labels, values), value)

    def add_labelled(self, labels: str, value: float) -> None:
        """Add a sample; `labels` is the result of `label_text`, which many families share."""
        self.lines.append(f"{self._sample_name}{labels} {number_text(value)}\n")

    def add_sizes(
        self, values: Sequence[str], buckets: Sequence[tuple[str, int]], total: float
    ) -> None:
        """Add a histogram: (limit, count of values up to the limit), and the sum of all values."""
        name, lines = self.name, self.lines
        for limit, count in buckets:
            labels = label_text((*self._labels, "le"), (*values, limit))
            lines.append(f"{name}_bucket{labels} {number_text(count)}\n")
        labels = label_text(self._labels, values)
        lines.append(f"{name}_count{labels} {number_text(buckets[-1][1])}\n")
        lines.append(f"{name}_sum{labels} {number_text(total)}\n")


def gauge(name: str, text: str, value: float) -> Family:
    """Return a gauge with a single sample and no label."""
    family = Family(Kind.GAUGE, name, text)
    family.add_labelled("", value)
    return family


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Return the labels of a sample as text, sorted by name."""
    if not names:
        return ""
    pairs = sorted(zip(names, values, strict=True))
    return "{" + ",".join([f'{name}="{_quoted(value)}"' for name, value in pairs]) + "}"


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number_text(value: float) -> str:
    """Return a finite number as Go writes the number."""
    text = repr(float(value))
    point = text.find(".")
    if value > 0 and point > PLAIN_DIGITS:
        digits = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{digits}e+{point - 1:02d}"
    return text


def exposition(families: Iterable[Family], *, openmetrics: bool) -> bytes:
    """Return the text of the families, in Prometheus' text format 0.0.4 or in OpenMetrics 1.0.

    Each family becomes bytes as soon as its text exists, so that the memory of a large answer is
    twice its size.
    """
    pieces = [_family_text(family, openmetrics=openmetrics) for family in families]
    if openmetrics:
        pieces.append(b"# EOF\n")
    return b"".join(pieces)


def _family_text(family: Family, *, openmetrics: bool) -> bytes:
    name, text = family.name, family.text.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        text = text.replace('"', r"\"")
    elif family.kind is Kind.COUNTER:
        name += COUNTER_SUFFIX
    head = f"# HELP {name} {text}\n# TYPE {name} {family.kind.value}\n"
    # A name may hold a lone surrogate, as JSON of a token can: an escape, not a failed scrape.
    return (head + "".join(family.lines)).encode(errors="backslashreplace")
