"""Goals of `conformance.bench.peers`: Braidlog against another broker or against earlier figures.

Knows no load. A goal without its brokers or generator is reported as not measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Figures = Mapping[str, float]
Found = Mapping[tuple[str, str], Figures]  # by row and broker; medians

LIBRDKAFKA = "librdkafka, 100 B"
MIXED, MIXED_1K = "raw produce, 100 B, mixed", "raw produce, 1 KB, mixed"
EQUAL = "raw produce, 100 B, equal (a limit)"
FETCH, FETCH_1K = "fetch of 1 MiB, 100 B", "fetch of 1 MiB, 1 KB"
SYNC_1, SYNC_100 = "1 synchronous producer", "100 synchronous producers"
PULSAR_SENDS = "Pulsar unbatched, 100 B, 1,000 in flight"
PULSAR_SYNC_100 = "100 synchronous Pulsar producers"
RECEIVE = "publish to receive at 1,000/s, 100 B"
DISK = "fdatasync of 1 KB, one after the other"

SYNCED, WRITTEN, KAFKA, FLUSHED, PULSAR = "synced", "written", "kafka", "kafka flushed", "pulsar"
MACHINE = "this machine"

# Figures before small requests were served without their own task, on the machine of that time.
RECEIVE_MS_BEFORE, RECEIVE_US_BEFORE = 0.84, 736.0
MIXED_US_BEFORE, PULSAR_SENDS_US_BEFORE = 2.9, 13.4


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure of a run and its expected value."""

    text: str
    value: Callable[[Found], float]  # Raises KeyError if the run has no such figure.
    at_least: float | None = None
    at_most: float | None = None


def _of(row: str, figure: str, ours: str, theirs: str) -> Callable[[Found], float]:
    """Return our figure as a share of another broker's figure."""
    return lambda results: results[row, ours][figure] / results[row, theirs][figure]


def _of_before(row: str, figure: str, before: float) -> Callable[[Found], float]:
    return lambda results: results[row, SYNCED][figure] / before


def _over_sync_ms(results: Found) -> float:
    """Return the time of the median acknowledgement beyond a single sync of the disk."""
    return results[SYNC_1, SYNCED]["p50_ms"] - 1000 / results[DISK, MACHINE]["rate"]


def _tail(results: Found) -> float:
    figures = results[SYNC_100, SYNCED]
    return figures["p999_ms"] / figures["p50_ms"]


GOALS = (
    Goal(
        f"{SYNC_100}, written: CPU of Kafka's", _of(SYNC_100, "cpu_us", WRITTEN, KAFKA), None, 1.5
    ),
    Goal(f"{SYNC_100}: rate of Kafka flushed", _of(SYNC_100, "rate", SYNCED, FLUSHED), 3),
    Goal(f"{SYNC_100}: rate of Kafka as shipped", _of(SYNC_100, "rate", SYNCED, KAFKA), 0.35),
    Goal(f"{SYNC_100}: p99.9 by p50", _tail, None, 5),
    Goal(f"{SYNC_1}: p50 above one sync, ms", _over_sync_ms, None, 0.20),
    Goal(f"{RECEIVE}: p50 of before", _of_before(RECEIVE, "p50_ms", RECEIVE_MS_BEFORE), None, 0.7),
    Goal(f"{RECEIVE}: CPU of before", _of_before(RECEIVE, "cpu_us", RECEIVE_US_BEFORE), None, 0.4),
    Goal(f"{PULSAR_SYNC_100}: rate", _of(PULSAR_SYNC_100, "rate", SYNCED, PULSAR), 0.6),
    Goal(f"{MIXED}: CPU of before", _of_before(MIXED, "cpu_us", MIXED_US_BEFORE), None, 0.2),
    Goal(f"{MIXED}: rate of Kafka flushed", _of(MIXED, "rate", SYNCED, FLUSHED), 1),
    Goal(f"{MIXED_1K}: CPU of Kafka's", _of(MIXED_1K, "cpu_us", SYNCED, KAFKA), None, 1.3),
    Goal(f"{FETCH}: rate of Kafka's", _of(FETCH, "rate", SYNCED, KAFKA), 0.9),
    Goal(f"{FETCH_1K}: rate of Kafka's", _of(FETCH_1K, "rate", SYNCED, KAFKA), 0.9),
    Goal(
        f"{PULSAR_SENDS}: CPU of before",
        _of_before(PULSAR_SENDS, "cpu_us", PULSAR_SENDS_US_BEFORE),
        None,
        0.4,
    ),
)


def verdicts(results: Found) -> list[str]:
    """Return a line per goal."""
    return [_verdict(goal, results) for goal in GOALS]


def _verdict(goal: Goal, results: Found) -> str:
    if goal.at_least is not None:
        wanted = f"at least {goal.at_least:g}"
    else:
        wanted = f"at most {goal.at_most:g}"
    try:
        value = goal.value(results)
    except KeyError:
        return f"not measured  {goal.text} ({wanted})"
    is_met = goal.at_least is None or value >= goal.at_least
    is_met = is_met and (goal.at_most is None or value <= goal.at_most)
    return f"{'reached' if is_met else 'MISSED '}  {goal.text}: {value:.2f} ({wanted})"
