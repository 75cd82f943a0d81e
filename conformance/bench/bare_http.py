"""HTTP requests to the broker and to a bare Starlette application on the same transport.

Each connection has a single request in flight. The bare application is the limit of such a server.
"""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from conformance.bench.process import cpu_seconds
from conformance.clients.raw.wire import TIMEOUT_S

CONNECTIONS = 10
VALUE = "v" * 100
READ_BYTES = 65536
PACE_S = 0.001  # Interval of the check whether the next request is due.
BARE_ANSWER = b'{"schema_version":null,"messageIds":[{"partition":0,"messageId":"CAEQABgA"}]}'


def request_of(path: str, messages: int) -> bytes:
    """Return a whole POST of `messages` messages."""
    body = json.dumps({"messages": [{"value": VALUE}] * messages}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def answers(
    address: tuple[str, int], request: bytes, seconds: float, rate: float = 0
) -> list[float]:
    """Send the request again on each connection after each answer; return the seconds per answer.

    `rate` limits the requests per second of all connections together; 0 means no limit.
    """
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    for _ in range(CONNECTIONS):
        sock = socket.create_connection(address, timeout=TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[sock.fileno()] = sock
        poll.register(sock, select.EPOLLIN)
    clock = time.perf_counter
    began = clock()
    times_s: list[float] = []
    sent_at: dict[int, float] = {}
    idle = list(sockets)
    while idle or sent_at:
        now = clock()
        while idle and (not rate or now - began >= (len(times_s) + len(sent_at)) / rate):
            number = idle.pop()
            if now - began >= seconds:
                sockets.pop(number).close()
                continue
            sent_at[number] = clock()
            sockets[number].sendall(request)
        if not idle and not sent_at:
            break
        for number, _ in poll.poll(PACE_S if idle else TIMEOUT_S):
            _take_answer(sockets[number])
            times_s.append(clock() - sent_at.pop(number))
            idle.append(number)
        if idle and now - began >= seconds:
            rate = 0
    poll.close()
    return times_s


def _take_answer(sock: socket.socket) -> None:
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        received += _piece(sock)
    assert received.startswith(b"HTTP/1.1 200"), received[:200]
    lower = received[:end].lower()
    at = lower.index(b"content-length:") + 15
    size = int(lower[at:].split(b"\r\n", 1)[0])
    while len(received) < end + 4 + size:
        received += _piece(sock)


def _piece(sock: socket.socket) -> bytes:
    piece = sock.recv(READ_BYTES)
    if not piece:
        raise ConnectionError("closed before the answer was whole")
    return piece


@contextmanager
def bare_server() -> Iterator[tuple[tuple[str, int], int]]:
    """Run Starlette on the transport in another process; yield the address and the process id."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        listening.setblocking(False)
        child = os.fork()
        if not child:
            try:
                _serve_bare(listening.fileno())
            finally:
                os._exit(1)
        try:
            yield listening.getsockname(), child
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _serve_bare(fd: int) -> None:
    import trio
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from braidlog.protocols.http.refusals import raw_refusal
    from braidlog.protocols.transport.connection import HttpConnection, Settings
    from braidlog.protocols.transport.serving import HEAD_BYTES_MAX, KEEP_ALIVE_S

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(BARE_ANSWER, media_type="application/json")

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])
    settings = Settings(
        app,
        raw_refusal,
        head_bytes_max=HEAD_BYTES_MAX,
        keep_alive_s=KEEP_ALIVE_S,
    )

    async def serve(stream: trio.SocketStream) -> None:
        await HttpConnection(settings, stream).run()

    async def serve_all() -> None:
        listening = trio.socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM)
        await trio.serve_listeners(serve, [trio.SocketListener(listening)])

    trio.run(serve_all)


def bare_requests(seconds: float) -> tuple[float, float]:
    """Return requests per second of the bare server (one message each) and its processor
    microseconds per request.
    """
    with bare_server() as (address, pid):
        request = request_of("/topics/public/default/orders", 1)
        answers(address, request, min(0.2, seconds))  # Warm-up.
        cpu, began = cpu_seconds(pid), time.perf_counter()
        count = len(answers(address, request, seconds))
        spent = time.perf_counter() - began
        return count / spent, (cpu_seconds(pid) - cpu) * 1e6 / count
