"""Ends connections with peers that stall or are gone, and, while memory is short, the connections
that hold most of the memory. A single task watches all connections. Knows no protocol.

A slow peer stays connected as long as it moves STALL_BYTES in the allowed time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import trio

from braidlog.broker.limits import (
    ACCESS_SWEEP_S,
    FRAME_STALL_S,
    SHORT_STALL_S,
    SWEEP_CONNECTIONS,
    SWEEP_S,
    WRITE_STALL_S,
)
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.receive_buffer import BufferPool
from braidlog.broker.server.opened import OpenConnection


async def watch_access(connections: Collection[OpenConnection], version: Callable[[], int]) -> None:
    """Notify all connections of changed users and permissions within ACCESS_SWEEP_S, until
    cancelled. `version` differs after each change: without a change, no connection is asked.
    """
    seen = version()
    while True:
        await trio.sleep(ACCESS_SWEEP_S)
        if version() == seen:
            continue
        seen = version()
        for connection in tuple(connections):
            connection.access_changed()
            await trio.lowlevel.checkpoint()  # A connection may have thousands of producers.


async def watch_connections(
    connections: Collection[OpenConnection], receiving: BufferPool, sending: OutputBudget
) -> None:
    """Check all connections every SWEEP_S, until cancelled."""
    while True:
        await trio.sleep(SWEEP_S)
        now = trio.current_time()
        for number, connection in enumerate(tuple(connections), 1):
            if not connection.is_at_rest and connection.is_open:
                _end_if_stalled(connection, now)
            if number % SWEEP_CONNECTIONS == 0:
                await trio.lowlevel.checkpoint()
        if receiving.is_short:
            free_input(tuple(connections), receiving)
        if sending.is_short:
            sending.drop_read_ahead()
            free_output(tuple(connections), sending)


def _end_if_stalled(connection: OpenConnection, now: float) -> None:
    if connection.outbox.stalled_s(now) >= WRITE_STALL_S:
        connection.cut_off(f"it has read next to nothing for {WRITE_STALL_S:.0f} s")
    elif connection.stalled_s(now) >= FRAME_STALL_S:
        connection.end(f"next to nothing of a frame in {FRAME_STALL_S:.0f} s")
    elif connection.notice_gone():
        connection.end("the client is gone")


def free_input(connections: Collection[OpenConnection], receiving: BufferPool) -> None:
    """End connections with stalled frames, those that hold most first, until half of the memory is
    free.
    """
    now = trio.current_time()
    stalled = _stalled(connections, lambda connection: connection.stalled_s(now))
    held = receiving.used
    for connection in sorted(stalled, key=lambda slow: slow.held_bytes, reverse=True):
        if held <= receiving.bytes_max // 2:
            return
        held -= connection.held_bytes
        connection.end(f"next to nothing of a frame in {SHORT_STALL_S:.0f} s, and memory is short")


def free_output(connections: Collection[OpenConnection], sending: OutputBudget) -> None:
    """End connections that do not read, those that hold most first, until half of the memory is
    free.
    """
    now = trio.current_time()
    stalled = _stalled(connections, lambda connection: connection.outbox.stalled_s(now))
    for connection in sorted(stalled, key=lambda slow: slow.outbox.unsent_bytes, reverse=True):
        if not sending.is_short:
            return
        connection.cut_off(
            f"it has read next to nothing for {SHORT_STALL_S:.0f} s, and memory is short"
        )


def _stalled(
    connections: Collection[OpenConnection], stalled_s: Callable[[OpenConnection], float]
) -> list[OpenConnection]:
    return [
        connection
        for connection in connections
        if connection.is_open and stalled_s(connection) >= SHORT_STALL_S
    ]
