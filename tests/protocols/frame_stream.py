"""A client's end of a connection in tests, cut into whole frames. Knows no protocol."""

from collections.abc import Callable

import trio

from tests.waiting import HANG_S

SizeOf = Callable[[bytes], int | None]


def length_first(data: bytes) -> int | None:
    """Return the size of a frame with a leading length, 4 bytes big endian (Kafka, Pulsar)."""
    return 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else None


class FrameStream:
    """Frames of a connection. `size_of` returns a frame's whole size, None: more bytes needed."""

    def __init__(self, stream: trio.SocketStream, size_of: SizeOf = length_first) -> None:
        self.stream = stream
        self._size_of = size_of
        self._data = b""

    async def frame(self) -> bytes | None:
        """Return the next whole frame; None if the other side closed, or reset, the connection."""
        with trio.fail_after(HANG_S):
            while (size := self._size_of(self._data)) is None or len(self._data) < size:
                try:
                    more = await self.stream.receive_some()
                except trio.BrokenResourceError:
                    more = b""
                if not more:
                    assert not self._data, "closed within a frame"
                    return None
                self._data += more
        frame, self._data = self._data[:size], self._data[size:]
        return frame

    @property
    def has_more(self) -> bool:
        """Return True if bytes behind the last frame were received."""
        return bool(self._data)
