"""`python -m conformance.bench.cold [--megabytes N] [--seconds S] [--rounds N]`: the tail of a
partition beside a reader of the same partition's cold log.

Stores a large log and asks the kernel to forget its pages. Measures the time from the scheduled
send of small messages to their receipt: alone, and while another client fetches the log from its
beginning. Then measures such a reader alone: its rate, and the broker's processor time.
"""

import argparse
import os
import select
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from conformance.bench.kafka_load import fetch_frame, pipelined_produce, produce_frame, set_of_128k
from conformance.bench.process import cpu_seconds, in_background
from conformance.clients.raw.kafka import FETCH, KafkaWire, fetch_body, frame, message
from conformance.ending import end_on_signals
from conformance.server import RunningBroker

TOPIC = "cold"
FETCH_BYTES = 1024 * 1024
VALUE_BYTES = 1000
RATE = 200
IN_FLIGHT = 4
ANSWER_HEAD_BYTES = 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4 + 2 + 8 + 4
WATERMARK_AT = ANSWER_HEAD_BYTES - 16  # in an answer without its length


def forget_pages(data_dir: Path) -> None:
    """Write the logs of a data directory to the disk and drop their pages from memory."""
    for path in data_dir.rglob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def end_offset(wire: KafkaWire) -> int:
    """Return the high watermark, from the answer to a fetch from the beginning."""
    answer = wire.ask(FETCH, 0, fetch_body(TOPIC, 0, bytes_max=1))
    offset: int = struct.unpack_from(">q", answer, WATERMARK_AT - 4)[0]
    return offset


def tail_times(address: tuple[str, int], seconds: float) -> list[float]:
    """Return the milliseconds from the scheduled send of each message to its receipt."""
    count = int(RATE * seconds)
    request = produce_frame(TOPIC, 0, message(None, bytes(100)))
    times: list[float] = []
    with KafkaWire(address) as producer, KafkaWire(address) as consumer:
        offset = end_offset(consumer)
        consumer.send(_waiting_fetch(offset))
        sent, started = 0, time.perf_counter() + 0.05
        while len(times) < count:
            now = time.perf_counter()
            while sent < count and started + sent / RATE <= now:
                producer.send(request)
                sent += 1
            pause = started + sent / RATE - time.perf_counter() if sent < count else 1.0
            ready, _, _ = select.select([producer.socket, consumer.socket], (), (), max(pause, 0))
            if producer.socket in ready:
                producer.socket.recv(1 << 16)
            if consumer.socket in ready:
                watermark = struct.unpack_from(">q", consumer.take_frame(), WATERMARK_AT)[0]
                received_at = time.perf_counter()
                for _ in range(watermark - offset):
                    times.append((received_at - (started + len(times) / RATE)) * 1000)
                offset = watermark
                consumer.send(_waiting_fetch(offset))
    return times


def _waiting_fetch(offset: int) -> bytes:
    return frame(FETCH, 0, fetch_body(TOPIC, offset, bytes_max=64 * 1024, wait_ms=5000))


def read_log(address: tuple[str, int], end: int, bytes_max: int) -> int:
    """Fetch the log from its beginning to offset `end`; return the bytes of message sets."""
    buffer = bytearray(bytes_max + 65536)
    view = memoryview(buffer)
    total = offset = 0
    with KafkaWire(address) as wire:
        while offset < end:
            wire.send(fetch_frame(TOPIC, offset, bytes_max))
            size = wire.socket.recv_into(view)
            while size < 4 or size < 4 + struct.unpack_from(">i", buffer)[0]:
                size += wire.socket.recv_into(view[size:])
            messages = (size - ANSWER_HEAD_BYTES) // (VALUE_BYTES + 26)
            (first,) = struct.unpack_from(">q", buffer, ANSWER_HEAD_BYTES)
            offset = first + messages
            total += size - ANSWER_HEAD_BYTES
    return total


def reads_again_and_again(broker: RunningBroker, end: int, bytes_max: int) -> None:
    """Read the cold log until the process is killed."""
    while True:
        forget_pages(broker.data_dir)
        read_log(broker.address("kafka"), end, bytes_max)


def store(address: tuple[str, int], megabytes: int) -> int:
    """Store about so many megabytes; return the end offset."""
    body, _ = set_of_128k(VALUE_BYTES)
    with KafkaWire(address) as wire:
        wire.create(TOPIC)
    while True:
        pipelined_produce(address, TOPIC, [body], 0.5, IN_FLIGHT)
        with KafkaWire(address) as wire:
            end = end_offset(wire)
        if end * (VALUE_BYTES + 26) >= megabytes * 1e6:
            return end


def measure(mode: str, options: argparse.Namespace) -> None:
    """Print a line per round."""
    with RunningBroker(settings=[f"log.durability={mode}"]) as broker:
        address, bytes_max = broker.address("kafka"), options.fetch_kib * 1024
        end = store(address, options.megabytes)
        tail_times(address, 1.0)  # Warms the paths up.
        for _ in range(options.rounds):
            alone = tail_times(address, options.seconds)
            with in_background([lambda: reads_again_and_again(broker, end, bytes_max)]):
                time.sleep(0.3)  # Until the first fetches are under way.
                beside = tail_times(address, options.seconds)
            forget_pages(broker.data_dir)
            cpu, started = cpu_seconds(broker.pid), time.perf_counter()
            megabytes = read_log(address, end, bytes_max) / 1e6
            cpu, spent = cpu_seconds(broker.pid) - cpu, time.perf_counter() - started
            print(
                f"{mode}: tail alone {_quantiles(alone)},"
                f" beside a cold reader {_quantiles(beside)};"
                f" cold read {megabytes / spent:.0f} MB/s, {cpu / megabytes * 1e6:.0f} us a MB",
                flush=True,
            )


def _quantiles(times: Sequence[float]) -> str:
    ordered = sorted(times)
    return f"p50 {ordered[len(ordered) // 2]:.2f} p99 {ordered[len(ordered) * 99 // 100]:.2f} ms"


def main() -> None:
    """Measure each mode."""
    parser = argparse.ArgumentParser(prog="python -m conformance.bench.cold", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the log")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each look at the tail")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fetch-kib", type=int, default=1024, help="size of the reader's fetches")
    parser.add_argument("--mode", nargs="+", default=["written", "synced"])
    options = parser.parse_args()
    for mode in options.mode:
        measure(mode, options)


if __name__ == "__main__":
    end_on_signals()
    main()
