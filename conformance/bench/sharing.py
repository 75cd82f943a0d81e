"""`python -m conformance.bench.sharing [--messages N] [--kinds KIND...]`: the cost of delivery.

Measures the broker's processor time per message, by kind of subscription, with two consumers
(Exclusive: a single consumer). The messages are unbatched, have keys and are acknowledged
individually, in groups of acknowledgements.
"""

import argparse
import os
import struct
from collections.abc import Sequence

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
CONSUMERS = {"Exclusive": 1, "Shared": 2, "Key_Shared": 2}
KEYS = 100
IN_FLIGHT = 1000
ACKED_TOGETHER = 500
PERMITS = 1_000_000_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(process_id: int) -> float:
    """Return the processor time of a process so far."""
    with open(f"/proc/{process_id}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def fill(wire: PulsarWire, topic: str, count: int) -> None:
    """Store messages with keys, an entry each."""
    wire.open_producer(topic)
    for first in range(0, count, IN_FLIGHT):
        numbers = range(first, min(first + IN_FLIGHT, count))
        frames = []
        for number in numbers:
            key = b"key-%d" % (number * 7919 % KEYS)
            metadata = [(1, b"b"), (2, number), (3, 1_700_000_000_000), (6, key)]
            body = entry(metadata, b"x" * 100)
            frames.append(frame(SEND, [(1, 0), (2, number)], body))
        wire.send(b"".join(frames))
        for _ in numbers:
            wire.take_command()


def consume(wires: list[PulsarWire], topic: str, kind: str, count: int) -> None:
    """Take and acknowledge all messages, with a connection per consumer."""
    name = f"persistent://public/default/{topic}".encode()
    for number, wire in enumerate(wires):
        consumer = [(1, name), (2, kind.encode()), (3, KINDS[kind]), (4, 0), (5, 9)]
        wire.command(SUBSCRIBE, [*consumer, (6, b"c%d" % number), (13, 1)])
        wire.expect(SUCCESS)
    for wire in wires:
        wire.command(FLOW, [(1, 0), (2, PERMITS)])
        wire.socket.setblocking(False)
    buffers = {wire: bytearray() for wire in wires}
    unacked: dict[PulsarWire, list[bytes]] = {wire: [] for wire in wires}
    taken = 0
    while taken < count:
        for wire in wires:
            ids = unacked[wire]
            taken += _take(wire, buffers[wire], ids)
            if len(ids) >= ACKED_TOGETHER or (ids and taken >= count):
                wire.socket.setblocking(True)
                wire.command(ACK, [(1, 0), (2, 0), *((3, one) for one in ids)])
                wire.socket.setblocking(False)
                ids.clear()


def _take(wire: PulsarWire, buffer: bytearray, ids: list[bytes]) -> int:
    try:
        buffer += wire.socket.recv(1 << 20)
    except BlockingIOError:
        return 0
    pos = found = 0
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
            found += 1
        pos += 4 + size
    del buffer[:pos]
    return found


def measure(
    address: tuple[str, int], process_id: int, kinds: Sequence[str], count: int
) -> dict[str, float]:
    """Return microseconds of the broker's processor time per message, for each kind."""
    with PulsarWire(address) as wire:
        fill(wire, "sharing", count)
    found = {}
    for kind in kinds:
        wires = [PulsarWire(address) for _ in range(CONSUMERS[kind])]
        begun = cpu_s(process_id)
        consume(wires, "sharing", kind, count)
        found[kind] = (cpu_s(process_id) - begun) / count * 1e6
        for wire in wires:
            wire.close()
    return found


def main() -> None:
    """Print microseconds per message for each kind."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.bench.sharing", description=__doc__
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    asked = parser.parse_args()
    with RunningBroker() as broker:
        found = measure(broker.address("pulsar"), broker.pid, asked.kinds, asked.messages)
    for kind, cost in found.items():
        print(f"{kind}: {cost:.2f} us of processor time a message")
    if {"Shared", "Key_Shared"} <= found.keys():
        print(f"Key_Shared is {found['Shared'] / found['Key_Shared']:.2f} of Shared")


if __name__ == "__main__":
    main()
