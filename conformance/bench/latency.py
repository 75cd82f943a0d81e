"""Publish to receive at a modest fixed rate, counted from the scheduled time of each send."""

import select
import struct
import time

from conformance.bench.pulsar_load import send_frame
from conformance.clients.raw.pulsar import PulsarWire

PAYLOAD_BYTES = 100


def publish_to_receive(
    address: tuple[str, int], topic: str, rate: float, seconds: float
) -> list[float]:
    """Return the seconds from the scheduled send to the receive, for every message."""
    count = int(rate * seconds)
    frames = [send_frame(i, b"v" * PAYLOAD_BYTES) for i in range(count)]
    with PulsarWire(address) as producer, PulsarWire(address) as consumer:
        producer.open_producer(topic)
        consumer.subscribe(topic, "latency", permits=count + 1)
        both = (producer.socket, consumer.socket)
        started = time.perf_counter() + 0.05
        latencies: list[float] = []
        sent = 0
        pending = b""
        while len(latencies) < count:
            now = time.perf_counter()
            while sent < count and started + sent / rate <= now:
                producer.send(frames[sent])
                sent += 1
            next_send = started + sent / rate if sent < count else now + 1
            # poll and epoll wait in whole milliseconds, which would make every send late.
            ready, _, _ = select.select(both, (), (), max(0.0, next_send - time.perf_counter()))
            for sock in ready:
                if sock is producer.socket:
                    producer.socket.recv(1 << 16)
                    continue
                pending += consumer.socket.recv(1 << 16)
                at = time.perf_counter()
                for _ in range(_whole_frames(pending)):
                    size = struct.unpack_from(">I", pending)[0]
                    pending = pending[4 + size :]
                    latencies.append(at - (started + len(latencies) / rate))
    return latencies


def _whole_frames(data: bytes) -> int:
    pos = frame_count = 0
    while pos + 4 <= len(data):
        pos += 4 + struct.unpack_from(">I", data, pos)[0]
        frame_count += pos <= len(data)
    return frame_count
