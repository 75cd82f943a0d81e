"""Many connections from a single process (epoll, no threads): an answer triggers the next frame."""

import select
import socket
import time

from conformance.bench.kafka_load import check_produced, produce_answer_bytes, produce_frame
from conformance.clients.raw.wire import TIMEOUT_S


def synchronous_producers(
    address: tuple[str, int], topics: list[str], body: bytes, seconds: float
) -> list[float]:
    """Run a producer per topic of the list (names may repeat), each with a single request in
    flight.

    Return the latency in seconds of every acknowledged request. Topic names must have the same
    length.
    """
    size = produce_answer_bytes(topics[0])
    poll = select.epoll()
    sockets: dict[int, tuple[socket.socket, bytes]] = {}
    for topic in topics:
        sock = socket.create_connection(address, timeout=TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[sock.fileno()] = (sock, produce_frame(topic, 0, body))
        poll.register(sock, select.EPOLLIN)
    clock = time.perf_counter
    latencies: list[float] = []
    sent_at = {}
    for fd, (sock, frame) in sockets.items():
        sent_at[fd] = clock()
        sock.sendall(frame)
    deadline = clock() + seconds
    while sent_at:
        for fd, _ in poll.poll(TIMEOUT_S):
            sock, frame = sockets[fd]
            # An answer is far smaller than a TCP segment and arrives whole.
            check_produced(sock.recv(size, socket.MSG_WAITALL))
            now = clock()
            latencies.append(now - sent_at.pop(fd))
            if now < deadline:
                sent_at[fd] = now
                sock.sendall(frame)
    for sock, _ in sockets.values():
        sock.close()
    poll.close()
    return latencies


def one_in_flight(frames: dict[socket.socket, bytes], seconds: float) -> int:
    """Send a socket's small frame after each answer; return the number of answers."""
    poll = select.epoll()
    by_number = {sock.fileno(): sock for sock in frames}
    for sock, frame in frames.items():
        poll.register(sock, select.EPOLLIN)
        sock.sendall(frame)
    answered, waiting = 0, len(frames)
    deadline = time.perf_counter() + seconds
    while waiting:
        for number, _ in poll.poll(TIMEOUT_S):
            sock = by_number[number]
            sock.recv(4096)  # An answer is far smaller than a TCP segment and arrives whole.
            answered += 1
            if time.perf_counter() < deadline:
                sock.sendall(frames[sock])
            else:
                waiting -= 1
    poll.close()
    return answered
