"""Sends requests to a listener over a socket, one at a time."""

import trio

READ_BYTES = 65536


async def connect(address) -> trio.SocketStream:
    return await trio.open_tcp_stream(*address)


async def ask(stream, path: str, method: str = "GET") -> tuple[int, bytes]:
    """Send a request on a lasting connection; return the answer's status and body."""
    await stream.send_all(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += await stream.receive_some(READ_BYTES)
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    (size,) = (int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
    while len(body) < size:
        body += await stream.receive_some(READ_BYTES)
    return int(lines[0].split()[1]), body


async def read_to_end(stream) -> bytes:
    received = b""
    try:
        async for piece in stream:
            received += piece
    except trio.BrokenResourceError:
        pass
    return received
