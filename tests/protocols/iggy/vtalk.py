"""A raw conversation in the newest dialect, for tests that need statuses and bodies."""

import itertools
import struct

from braidlog.protocols.iggy.topic_options import Options, packed
from tests.protocols.frame_stream import FrameStream
from tests.protocols.iggy.test_vsr import LOGIN, frame

NON_REPLICATED = 2
REPLY = 8
CREATE_STREAM, CREATE_TOPIC, UPDATE_TOPIC = 128, 132, 133
STREAM, TOPIC = b"\x02\x02st", b"\x02\x02tp"


class VClient:
    """A client of the newest dialect; each has an id of its own."""

    _numbers = itertools.count(1)

    def __init__(self, stream, client_id: bytes = b"") -> None:
        self._frames = FrameStream(stream, _size)
        self.client_id = client_id or struct.pack("<QQ", next(self._numbers), 0)
        self.session = bytes(8)

    async def login(self, login: bytes = LOGIN) -> bytes:
        """Log in as root; return the answer."""
        answer = await self._exchange(self._own(login, 0))
        if answer[60] == REPLY:
            self.session = answer[264:272]
        return answer

    async def status(self, operation: int, body: bytes, options: Options | None = None) -> int:
        """Return the status in the header of an answer to an operation."""
        status, _ = await self.perform(operation, body + packed(options or {}))
        return status

    async def perform(
        self, operation: int, body: bytes, *, incarnation: int = 0, generation: int = 0
    ) -> tuple[int, bytes]:
        """Return status and body of the answer to an operation."""
        request = frame(operation=operation, body=body)
        return await self._answer(request, incarnation, generation)

    async def query(
        self, code: int, body: bytes, *, incarnation: int = 0, generation: int = 0
    ) -> tuple[int, bytes]:
        """Return status and body of the answer to a command that is not replicated."""
        request = frame(operation=NON_REPLICATED, code=code, body=body)
        return await self._answer(request, incarnation, generation)

    async def send_only(self, request: bytes, incarnation: int) -> None:
        """Send a request of this session; `next_frame` reads the answer."""
        await self._frames.stream.send_all(self._own(request, incarnation))

    async def close(self) -> None:
        """Close the connection."""
        await self._frames.stream.aclose()

    async def next_frame(self) -> bytes:
        """Return the next answer. Raises EOFError."""
        answer = await self._frames.frame()
        if answer is None:
            raise EOFError("connection was closed")
        return answer

    def _own(self, request: bytes, incarnation: int, generation: int = 0) -> bytes:
        numbers = struct.pack("<QQ", incarnation, generation)
        head = request[:128] + self.client_id + request[144:184] + self.session
        return head + request[192:200] + numbers + request[216:]

    async def _answer(self, request: bytes, incarnation: int, generation: int) -> tuple[int, bytes]:
        answer = await self._exchange(self._own(request, incarnation, generation))
        return int(struct.unpack_from("<I", answer, 216)[0]), answer[256:]

    async def _exchange(self, request: bytes) -> bytes:
        await self._frames.stream.send_all(request)
        return await self.next_frame()


def _size(data: bytes) -> int | None:
    return struct.unpack_from("<I", data, 48)[0] if len(data) >= 52 else None
