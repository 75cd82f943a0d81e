"""Sends mutated frames of one protocol, over many short connections. Looks at no answer.

A connection sends its opening, some frames and the end of its stream, and reads until the broker
has closed it: then all that it sent has been dealt with.
"""

import random
import re
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field

import trio

from conformance.hostile.commands import Command, Protocol
from conformance.hostile.mutation import mutate
from conformance.server import RunningBroker

FRAMES_PER_CONNECTION = 3  # The first one that is refused ends its connection.
WORKERS = 8
SILENCE_S = 120.0  # A connection that the broker does not close is a finding.
REQUESTS = re.compile(r'^braidlog_requests_total\{api="([^"]*)",protocol="([^"]*)"\} ([0-9.e+]+)$')


@dataclass(slots=True)
class Sent:
    """What came of an attack."""

    frames: Counter[str] = field(default_factory=Counter)  # by the name of their row
    handled: Counter[str] = field(default_factory=Counter)  # by the broker's name of the command
    connections: int = 0
    hung: int = 0  # connections that were not closed in time
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """Frames sent."""
        return self.frames.total()


def attack(broker: RunningBroker, protocol: Protocol, frames: int, seed: int) -> Sent:
    """Send so many frames; blocks until the broker has dealt with all of them."""
    sent = Sent()
    before = requests(broker, protocol.name)
    begun = time.monotonic()
    trio.run(_attack, broker, protocol, frames, seed, sent)
    sent.seconds = time.monotonic() - begun
    for api, count in requests(broker, protocol.name).items():
        handled = int(count - before.get(api, 0))
        if api in protocol.opening_apis:
            handled -= sent.connections
        if handled > 0:
            sent.handled[api] = handled
    return sent


def requests(broker: RunningBroker, protocol: str) -> dict[str, float]:
    """Requests that reached a handler so far, by command."""
    with urllib.request.urlopen(f"{broker.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    found = (REQUESTS.match(line) for line in lines)
    return {match[1]: float(match[3]) for match in found if match and match[2] == protocol}


async def _attack(
    broker: RunningBroker, protocol: Protocol, frames: int, seed: int, sent: Sent
) -> None:
    async with trio.open_nursery() as nursery:
        for worker in range(WORKERS):
            share = frames // WORKERS + (worker < frames % WORKERS)
            chance = random.Random(f"{seed} {worker}")
            nursery.start_soon(_work, broker, protocol, share, chance, sent)


async def _work(
    broker: RunningBroker, protocol: Protocol, frames: int, chance: random.Random, sent: Sent
) -> None:
    left = frames
    while left > 0:
        rows = chance.choices(protocol.commands, k=min(FRAMES_PER_CONNECTION, left))
        left -= len(rows)
        sent.frames.update(row.name for row in rows)
        sent.connections += 1
        with trio.move_on_after(SILENCE_S) as scope:
            await _talk(broker.address(protocol.name), protocol, rows, chance)
        sent.hung += scope.cancelled_caught


async def _talk(
    address: tuple[str, int], protocol: Protocol, rows: list[Command], chance: random.Random
) -> None:
    data = b"".join(protocol.opening)
    data += b"".join(mutate(chance, row.frame, protocol.layout) for row in rows)
    stream = await trio.open_tcp_stream(*address)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send, stream, data)
            while await stream.receive_some(65536):
                pass
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # Reset: the broker has closed over something that it did not read.
    finally:
        await trio.aclose_forcefully(stream)


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    await stream.send_all(data)
    await stream.send_eof()
