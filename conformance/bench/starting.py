"""Start time over a large log of small batches, after a kill and after a clean stop."""

import statistics
import time
from pathlib import Path

from conformance.bench.process import in_background
from conformance.bench.pulsar_load import sends_in_flight
from conformance.server import RunningBroker

TOPIC = "bench-start"
# A batch per message has a header of 128 bytes: the smallest batches that a client makes.
PAYLOAD = b"v" * 100
IN_FLIGHT = 1000
FILL_S = 2.0
LOAD_S = 0.5
STARTS = 3
MB = 1e6


def start_times(folder: Path, log_bytes: int) -> dict[str, float]:
    """Return median seconds from process start until every listener accepts, and the log's MB.

    The broker is killed in the middle of a load, or stopped cleanly, in turn.
    """
    broker = RunningBroker(folder)
    after_kill, after_stop = [], []
    with broker:
        while _log_bytes(broker) < log_bytes:
            _load(broker, FILL_S)
        for _ in range(STARTS):
            with in_background([lambda: _load(broker, FILL_S)]):
                time.sleep(LOAD_S)
                broker.kill()
            after_kill.append(_timed_start(broker))
            broker.stop()
            after_stop.append(_timed_start(broker))
        size = _log_bytes(broker)
    return {
        "after_kill": statistics.median(after_kill),
        "after_stop": statistics.median(after_stop),
        "log_mb": size / MB,
    }


def _load(broker: RunningBroker, seconds: float) -> None:
    sends_in_flight(broker.address("pulsar"), TOPIC, PAYLOAD, seconds, IN_FLIGHT, 0)


def _timed_start(broker: RunningBroker) -> float:
    started = time.perf_counter()
    broker.start()
    return time.perf_counter() - started


def _log_bytes(broker: RunningBroker) -> int:
    return sum(path.stat().st_size for path in broker.data_dir.rglob("*.log"))
