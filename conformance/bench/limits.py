"""Limits of this machine, measured without the broker, in the same run as the workloads.

L: blocking loopback MB/s with 128 KiB sends. W: pwritev of 128 KiB pieces into the page cache,
MB/s. P: blocking ping-pongs of 64 B per second. S: fdatasyncs per second of 1 KiB appends in
sequence. D: MB/s of 128 KiB appends with an fdatasync after each. H: requests per second of a bare
Starlette answer on the transport; H us: processor time of such an answer.
"""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from conformance.bench.bare_http import bare_requests

PIECE = 128 * 1024
MB = 1e6


def measure_limits(folder: Path, seconds: float) -> dict[str, float]:
    """Measure a round of each limit; files go into `folder`, on the broker's file system."""
    bare_rate, bare_us = bare_requests(seconds)
    return {
        "L": _loopback(seconds),
        "W": _appends(folder, seconds, PIECE, lambda fd: None) * PIECE / MB,
        "P": _ping_pong(seconds),
        "S": syncs_per_second(folder, seconds),
        "D": _appends(folder, seconds, PIECE, os.fdatasync) * PIECE / MB,
        "H": bare_rate,
        "H us": bare_us,
    }


def syncs_per_second(folder: Path, seconds: float) -> float:
    """Return the fdatasyncs per second of 1 KiB appends in sequence."""
    return _appends(folder, seconds, 1024, os.fdatasync)


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def _loopback(seconds: float) -> float:
    near, far = _pair()
    received_bytes = 0

    def take() -> None:
        nonlocal received_bytes
        buffer = bytearray(1 << 20)
        while got := far.recv_into(buffer):
            received_bytes += got

    reader = threading.Thread(target=take)
    piece = bytes(PIECE)
    started = time.perf_counter()
    reader.start()
    while time.perf_counter() - started < seconds:
        near.sendall(piece)
    near.close()
    reader.join()
    far.close()
    return received_bytes / MB / (time.perf_counter() - started)


def _ping_pong(seconds: float) -> float:
    """Measure with a process at each end: two threads would measure the interpreter lock."""
    near, far = _pair()
    child = os.fork()
    if not child:
        near.close()
        while data := far.recv(64):
            far.sendall(data)
        os._exit(0)
    far.close()
    piece = bytes(64)
    turns = 0
    started = time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        near.sendall(piece)
        near.recv(64)
        turns += 1
    near.close()
    os.waitpid(child, 0)
    return turns / spent


def _appends(folder: Path, seconds: float, size: int, sync: Callable[[int], None]) -> float:
    """Return appends per second; the file restarts at 256 MiB, so that it stays in the cache."""
    piece = [os.urandom(size)]
    turns = pos = 0
    with tempfile.TemporaryFile(dir=folder) as file:
        fd = file.fileno()
        started = time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            pos += os.pwritev(fd, piece, pos)
            sync(fd)
            turns += 1
            if pos > 256 << 20:
                os.ftruncate(fd, 0)
                pos = 0
    return turns / spent
