"""Bytes of another protocol end their own connection at once; all other clients are undisturbed."""

import random

from conformance.clients.raw.iggy import PING as IGGY_PING
from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire
from conformance.clients.raw.wire import Wire
from conformance.runner import RAW, Context

CLIENTS = [RAW]
TLS_HELLO = bytes.fromhex("16030100c5010000c10303") + bytes(186)
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
OVERSIZED = {
    "kafka": b"\x7f\xff\xff\xff",
    "pulsar": b"\x7f\xff\xff\xff",
    "iggy": b"\xff\xff\xff\x7f",
}


def run(context: Context) -> None:
    rng = random.Random(20)
    with (
        KafkaWire(context.address("kafka")) as kafka,
        PulsarWire(context.address("pulsar")),
        IggyWire(context.address("iggy")) as iggy,
    ):
        for listener, oversized in OVERSIZED.items():
            noise = b"\xff" + rng.randbytes(300)
            for attack in (oversized, TLS_HELLO, HTTP, noise):
                with Wire(context.address(listener)) as wire:
                    wire.send(attack)
                    _expect_end(wire)
        kafka.create(context.topic())
        iggy.ok(IGGY_PING, b"")


def _expect_end(wire: Wire) -> None:
    """Wait for the end without sending more bytes; the protocol's error may come first."""
    try:
        while wire.socket.recv(4096):
            pass
    except ConnectionResetError:
        return
