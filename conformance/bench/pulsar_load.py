"""Pulsar load from prepared frames: variable parts are counted, not parsed, where possible."""

import itertools
import struct
import time
from collections.abc import Sequence

from conformance.clients.raw.pulsar import (
    ACK,
    FLOW,
    SEND,
    Fields,
    PulsarWire,
    entry,
    frame,
    varint,
)
from conformance.clients.raw.pulsar import batch as batch_of

BLOCK = 100
PERMITS = 1000


def send_frame(sequence_id: int, payload: bytes, count: int = 0) -> bytes:
    """Return a whole SEND with checksum; with `count` above 0 an entry of `count`
    equal messages.
    """
    command_fields: Fields = [(1, 0), (2, sequence_id)]
    metadata: Fields = [(1, b"bench"), (2, sequence_id), (3, int(time.time() * 1000))]
    if count:
        command_fields.append((3, count))
        metadata.append((11, count))
        payload = batch_of([payload] * count)
    return frame(SEND, command_fields, entry(metadata, payload))


class FrameCounter:
    """A counter of whole frames in a stream of bytes; keeps no frame."""

    def __init__(self, wire: PulsarWire) -> None:
        self._wire = wire
        self._buffer = b""

    def receive_frames(self) -> int:
        """Wait for bytes; return the number of frames that became whole."""
        piece = self._wire.socket.recv(1 << 20)
        if not piece:
            raise ConnectionError("closed by the broker")
        data = self._buffer + piece if self._buffer else piece
        pos = frame_count = 0
        while pos + 4 <= len(data):
            end = pos + 4 + struct.unpack_from(">I", data, pos)[0]
            if end > len(data):
                break
            pos = end
            frame_count += 1
        self._buffer = data[pos:]
        return frame_count


def sends_in_flight(
    address: tuple[str, int], topic: str, payload: bytes, seconds: float, in_flight: int, batch: int
) -> int:
    """Keep `in_flight` equal SENDs unanswered on a connection; return the SENDs with a receipt."""
    block = b"".join(send_frame(i, payload, batch) for i in range(BLOCK))
    return blocks_in_flight(address, topic, [block], seconds, in_flight)


def blocks_in_flight(
    address: tuple[str, int], topic: str, blocks: Sequence[bytes], seconds: float, in_flight: int
) -> int:
    """Like `sends_in_flight`, with blocks of BLOCK SENDs each, in turn, repeatedly."""
    next_block = itertools.cycle(blocks)
    receipts = outstanding = 0
    with PulsarWire(address) as wire:
        wire.open_producer(topic)
        counter = FrameCounter(wire)
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline or outstanding:
            while outstanding <= in_flight - BLOCK and time.perf_counter() < deadline:
                wire.send(next(next_block))
                outstanding += BLOCK
            got = counter.receive_frames()
            receipts += got
            outstanding -= got
    return receipts


def deliver(
    address: tuple[str, int], topic: str, entries: int, batch: int, subscription: str
) -> int:
    """Take `entries` messages (or batches) with permits and grouped acks; return the received
    number.
    """
    received = acked = 0
    per_entry = batch or 1
    with PulsarWire(address) as wire:
        wire.subscribe(topic, subscription, PERMITS)
        first = wire.next_message()
        received = 1
        ledger = first.ledger
        counter = FrameCounter(wire)
        permits = PERMITS - per_entry
        while received < entries:
            got = counter.receive_frames()
            received += got
            permits -= got * per_entry
            out = b""
            if received - acked >= BLOCK:
                out += _ack(ledger, range(acked * per_entry, received * per_entry, per_entry))
                acked = received
            if permits <= PERMITS // 2:
                out += frame(FLOW, [(1, 0), (2, PERMITS - permits)])
                permits = PERMITS
            if out:
                wire.send(out)
    return received


def _ack(ledger: int, entry_ids: range) -> bytes:
    head = varint(1 << 3) + varint(ledger)
    ids: Fields = [(3, head + varint(2 << 3) + varint(entry)) for entry in entry_ids]
    return frame(ACK, [(1, 0), (2, 0), *ids])
