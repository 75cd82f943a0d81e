"""A WebSocket client over a trio stream, for tests: bytes in, bytes out."""

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    Request,
)


class WsClient:
    """The client's side of a WebSocket whose binary messages are a stream."""

    def __init__(self, stream, *, read_bytes: int = 65536) -> None:
        self.machine = WSConnection(ConnectionType.CLIENT)
        self.stream = stream
        self.accepted = None
        self.closed: CloseConnection | None = None
        self.pongs: list[bytes] = []
        self.messages = 0
        self._received = bytearray()
        self._read_bytes = read_bytes

    async def open(self, headers=()) -> None:
        """Open the WebSocket."""
        await self.send(Request(host="x", target="/", extra_headers=list(headers)))
        while self.accepted is None:
            assert await self._read(), "the broker closed"

    async def send(self, *events: Event) -> None:
        """Send events together."""
        await self.stream.send_all(b"".join(self.machine.send(event) for event in events))

    async def send_all(self, data: bytes) -> None:
        """Send a binary message."""
        await self.send(BytesMessage(data))

    async def ping(self, payload: bytes) -> None:
        """Send a ping."""
        await self.send(Ping(payload))

    async def receive_some(self, size: int = 65536) -> bytes:
        """Return the next bytes of messages; b"" at the end."""
        while not self._received and await self._read():
            pass
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    async def until_closed(self) -> CloseConnection | None:
        """Read to the end; return the broker's close frame."""
        while await self._read():
            pass
        return self.closed

    async def _read(self) -> bool:
        received = b"" if self.closed else await self.stream.receive_some(self._read_bytes)
        if not received:
            return False
        self.machine.receive_data(received)
        for event in self.machine.events():
            if isinstance(event, AcceptConnection):
                self.accepted = event
            elif isinstance(event, BytesMessage):
                self._received += event.data
                self.messages += event.message_finished
            elif isinstance(event, Pong):
                self.pongs.append(bytes(event.payload))
            elif isinstance(event, CloseConnection):
                self.closed = event
                return False
        return True

    async def aclose(self) -> None:
        """Close the stream below."""
        await self.stream.aclose()
