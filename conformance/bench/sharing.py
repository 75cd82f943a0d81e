"""`python -m conformance.bench.sharing [--messages N] [--kinds KIND...] [--consumers N...]`: the
cost of delivery.

Measures the broker's processor time per message, by kind of subscription and number of consumers
(Exclusive: a single consumer). The messages are unbatched, have keys and are acknowledged
individually, in groups of acknowledgements.
"""

import argparse
import os
import struct

from conformance.clients.raw.pulsar import (
    ACK,
    FLOW,
    MESSAGE,
    SEND,
    SUBSCRIBE,
    SUCCESS,
    PulsarWire,
    encode,
    entry,
    field_of,
    frame,
    parse,
)
from conformance.server import RunningBroker

KINDS = {"Exclusive": 0, "Shared": 1, "Key_Shared": 3}
KEYS = 100
KEYS_PER_CONSUMER = 10
IN_FLIGHT = 1000
PERMITS = 1_000_000_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(process_id: int) -> float:
    """Return the processor time of a process so far."""
    with open(f"/proc/{process_id}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def fill(wire: PulsarWire, topic: str, count: int, keys: int) -> None:
    """Store messages with so many keys, an entry each."""
    wire.open_producer(topic)
    for first in range(0, count, IN_FLIGHT):
        numbers = range(first, min(first + IN_FLIGHT, count))
        frames = []
        for number in numbers:
            key = b"key-%d" % (number * 7919 % keys)
            metadata = [(1, b"b"), (2, number), (3, 1_700_000_000_000), (6, key)]
            body = entry(metadata, b"x" * 100)
            frames.append(frame(SEND, [(1, 0), (2, number)], body))
        wire.send(b"".join(frames))
        for _ in numbers:
            wire.take_command()


def subscribe(wires: list[PulsarWire], topic: str, kind: str) -> None:
    """Subscribe a consumer per connection."""
    name = f"persistent://public/default/{topic}".encode()
    subscription = f"{kind}-{len(wires)}".encode()
    for number, wire in enumerate(wires):
        consumer = [(1, name), (2, subscription), (3, KINDS[kind]), (4, 0), (5, 9)]
        wire.command(SUBSCRIBE, [*consumer, (6, b"c%d" % number), (13, 1)])
        wire.expect(SUCCESS)


def consume(wires: list[PulsarWire], count: int, acked_together: int) -> None:
    """Take and acknowledge all messages."""
    for wire in wires:
        wire.command(FLOW, [(1, 0), (2, PERMITS)])
        wire.socket.setblocking(False)
    buffers = {wire: bytearray() for wire in wires}
    unacked: dict[PulsarWire, list[bytes]] = {wire: [] for wire in wires}
    received = 0
    while received < count:
        for wire in wires:
            ids = unacked[wire]
            received += _take(wire, buffers[wire], ids)
            if len(ids) >= acked_together or (ids and received >= count):
                wire.socket.setblocking(True)
                wire.command(ACK, [(1, 0), (2, 0), *((3, message_id) for message_id in ids)])
                wire.socket.setblocking(False)
                ids.clear()


def _take(wire: PulsarWire, buffer: bytearray, ids: list[bytes]) -> int:
    try:
        buffer += wire.socket.recv(1 << 20)
    except BlockingIOError:
        return 0
    pos = message_count = 0
    while pos + 8 <= len(buffer):
        size, command_size = struct.unpack_from(">II", buffer, pos)
        if pos + 4 + size > len(buffer):
            break
        (_, kind), (_, inner) = parse(bytes(buffer[pos + 8 : pos + 8 + command_size]))
        if kind == MESSAGE:
            assert isinstance(inner, bytes)
            message_id = field_of(parse(inner), 2)
            assert isinstance(message_id, bytes)
            ledger, entry = parse(message_id)[:2]
            ids.append(encode([ledger, entry]))
            message_count += 1
        pos += 4 + size
    del buffer[:pos]
    return message_count


def measure(address: tuple[str, int], process_id: int, options: argparse.Namespace) -> None:
    """Print microseconds of the broker's processor time per message, for each kind and number of
    consumers.
    """
    keys = max(KEYS, KEYS_PER_CONSUMER * max(options.consumers))
    with PulsarWire(address) as wire:
        fill(wire, "sharing", options.messages, keys)
    for kind in options.kinds:
        for number in options.consumers if kind != "Exclusive" else [1]:
            wires = [PulsarWire(address) for _ in range(number)]
            subscribe(wires, "sharing", kind)
            begun = cpu_s(process_id)
            consume(wires, options.messages, options.acked_together)
            cost_us = (cpu_s(process_id) - begun) / options.messages * 1e6
            print(f"{kind}, {number} consumers: {cost_us:.2f} us of processor time a message")
            for wire in wires:
                wire.close()


def main() -> None:
    """Print microseconds per message."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.bench.sharing", description=__doc__
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--consumers", nargs="+", type=int, default=[2])
    parser.add_argument("--acked-together", type=int, default=500)
    options = parser.parse_args()
    with RunningBroker(settings=["log.durability=written"]) as broker:
        measure(broker.address("pulsar"), broker.pid, options)


if __name__ == "__main__":
    main()
