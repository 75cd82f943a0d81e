"""`python -m conformance.tree.sessions`: many ZooKeeper sessions with ephemeral nodes and watches.

Measures the broker's memory and longest turns, and the memory of the listener without clients.

The exit code is 1 if a figure is above its limit.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from conformance.clients.raw import zookeeper as zk
from conformance.clients.raw.zookeeper import ZooKeeper
from conformance.ending import end_on_signals
from conformance.server import ANY_PORT, RunningBroker

MIB: Final = 1 << 20
TURN_MS: Final = 50  # A longer turn is a line in the broker's log (docs/limits.md).
SETTINGS: Final = (f"loop_turn_log_ms={TURN_MS}", "listeners.zookeeper.tick_ms=1500")
TIMEOUT_MS: Final = 30_000
IDLE_MOST_MIB: Final = 1.0
# Docs/limits.md: a node takes some 500 bytes, a watch some 400; a connection with its session some
# 40 KiB.
NODE_BYTES, WATCH_BYTES, SESSION_BYTES = 500, 400, 40 * 1024
STARTS: Final = 3
EXPIRY_S: Final = 90.0
PING_S: Final = 5.0


def idle_bytes(listen: dict[str, str]) -> float:
    """Return the memory of a broker without clients: the median of several starts."""
    sizes = []
    for _ in range(STARTS):
        with RunningBroker(listen=listen) as broker:
            time.sleep(1.0)
            sizes.append(broker.resident_bytes())
    return statistics.median(sizes)


def long_turns(broker: RunningBroker) -> list[str]:
    """Return the log lines of turns above the limit."""
    return [line for line in broker.log().splitlines() if '"loop_held"' in line]


def play(broker: RunningBroker, sessions: int, nodes: int, watches: int) -> list[str]:
    """Open the sessions, fire a watch of each, and let all expire; return what failed."""
    address = broker.address("zookeeper")
    owner = ZooKeeper(TIMEOUT_MS)
    owner.connect(address)
    owner.create("/many", b"")
    for number in range(watches):
        owner.create(f"/many/watched-{number}", b"")
    before = broker.resident_bytes()
    begun = time.monotonic()
    ping_due = begun + PING_S
    clients = []
    for number in range(sessions):
        client = ZooKeeper(TIMEOUT_MS)
        client.connect(address)
        for node in range(nodes):
            client.create(f"/many/{number}-{node}", b"x", zk.EPHEMERAL)
        for watch in range(watches):
            client.exists(f"/many/watched-{watch}", watch=True)
        clients.append(client)
        if time.monotonic() >= ping_due:  # The first sessions would expire meanwhile.
            for opened in (owner, *clients):
                opened.ping()
            ping_due = time.monotonic() + PING_S
    grown = broker.resident_bytes() - before
    bound = sessions * (SESSION_BYTES + nodes * NODE_BYTES + watches * WATCH_BYTES)
    opened_s = time.monotonic() - begun
    print(
        f"{sessions} sessions, {sessions * nodes} ephemeral nodes, {sessions * watches} watches in"
        f" {opened_s:.0f} s: {grown / MIB:.0f} MiB, limit {bound / MIB:.0f} MiB",
        flush=True,
    )
    begun = time.monotonic()
    owner.set("/many/watched-0", b"y")
    for client in clients:
        client.ping()
        assert list(client.events) == [(zk.CHANGED, "/many/watched-0")], client.events
    print(f"a change reached {sessions} watches in {time.monotonic() - begun:.1f} s", flush=True)
    for client in clients:
        client.disconnect()
    begun = time.monotonic()
    while owner.children("/many")[1].children > watches:
        if time.monotonic() - begun > EXPIRY_S:
            return ["the sessions do not expire"]
        time.sleep(0.5)
    print(f"all sessions had expired after {time.monotonic() - begun:.0f} s", flush=True)
    turns = long_turns(broker)
    print(f"turns above {TURN_MS} ms: {len(turns)}", *turns[:3], sep="\n", flush=True)
    failed = [f"{len(turns)} turns above {TURN_MS} ms"] if turns else []
    return failed + ([f"{grown} bytes, limit {bound}"] if grown > bound else [])


def main(arguments: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.tree.sessions", description=__doc__
    )
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=10, help="ephemeral nodes of each")
    parser.add_argument("--watches", type=int, default=100, help="of each")
    options = parser.parse_args(arguments)
    off, on = idle_bytes({}), idle_bytes({"zookeeper": ANY_PORT})
    more = (on - off) / MIB
    print(f"idle: {off / MIB:.1f} MiB without the listener, {more:+.2f} MiB with it", flush=True)
    failed = [f"{more:.2f} MiB more, limit {IDLE_MOST_MIB}"] if more > IDLE_MOST_MIB else []
    with RunningBroker(listen={"zookeeper": ANY_PORT}, settings=SETTINGS) as broker:
        failed += play(broker, options.sessions, options.nodes, options.watches)
    for line in failed:
        print(f"FAILED: {line}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
