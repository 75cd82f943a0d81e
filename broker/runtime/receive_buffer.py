"""Receive buffers: a bounded pool, and the buffer of a connection. Knows no socket and no protocol.

A connection holds a large buffer only while the buffer has bytes, so that a thousand idle
connections cost nothing; a short piece of a frame is copied aside, so that a thousand slow
connections cost little. For a larger frame, a buffer grows only as fast as the frame's bytes
arrive.
"""

import trio

from braidlog.broker.limits import (
    KIB,
    LEFTOVER_BYTES_MAX,
    RECEIVE_BUFFERS_FREE_MAX,
    RECEIVE_BUFFERS_MAX,
    RECEIVE_BYTES,
    RECEIVE_BYTES_ALL_MAX,
    RECEIVE_BYTES_SMALL,
)

# With less free space at the end, the content moves to the start of the buffer first.
ROOM_BYTES_MIN = 64 * KIB

NOTHING = memoryview(b"")


class OutOfBuffers(Exception):
    """All memory for large frames is in use."""


class BufferPool:
    """Lends receive buffers. One per broker.

    Guarantees: buffers of RECEIVE_BYTES and more never hold more than `bytes_max` together. Only
    `freed` waits.
    """

    def __init__(
        self,
        *,
        buffers_max: int = RECEIVE_BUFFERS_MAX,
        free_max: int = RECEIVE_BUFFERS_FREE_MAX,
        bytes_max: int = RECEIVE_BYTES_ALL_MAX,
    ) -> None:
        self.lent = 0  # large buffers in use
        self.grown_bytes = 0  # bytes in buffers grown beyond RECEIVE_BYTES
        self.small_bytes = 0  # bytes in smaller buffers
        self._buffers_max = buffers_max
        self.bytes_max = bytes_max
        self._free_max = free_max
        self._free: list[memoryview] = []
        self._freed = trio.lowlevel.ParkingLot()
        self._waiting = 0  # for `_freed`

    @property
    def used(self) -> int:
        """Number of lent bytes."""
        return self.lent * RECEIVE_BYTES + self.grown_bytes + self.small_bytes

    @property
    def is_short(self) -> bool:
        """True if more than half of the memory is lent: time to be strict."""
        return self.used > self.bytes_max // 2

    async def freed(self) -> None:
        """Wait until some connection returns a buffer."""
        self._waiting += 1
        try:
            await self._freed.park()
        finally:
            self._waiting -= 1

    @property
    def free(self) -> int:
        """Number of large buffers kept for the next connection with data."""
        return len(self._free)

    def borrow(self) -> memoryview:
        """Lend a buffer of RECEIVE_BYTES, or of RECEIVE_BYTES_SMALL while all large buffers are
        lent.
        """
        lent = self.lent + 1
        used = lent * RECEIVE_BYTES + self.grown_bytes + self.small_bytes
        if lent > self._buffers_max or used > self.bytes_max:
            self.small_bytes += RECEIVE_BYTES_SMALL
            return memoryview(bytearray(RECEIVE_BYTES_SMALL))
        self.lent = lent
        return self._free.pop() if self._free else memoryview(bytearray(RECEIVE_BYTES))

    def grow(self, old: memoryview, size: int) -> memoryview:
        """Lend a buffer of `size` bytes that begins with the bytes of `old`; `old` must not be used
        any more.

        Raises OutOfBuffers, and leaves `old` unchanged.
        """
        if self.used - len(old) + size > self.bytes_max:
            raise OutOfBuffers(f"frames in progress hold {self.used} bytes")
        self._count(size, 1)
        if len(old) > RECEIVE_BYTES:
            self._count(len(old), -1)
            return _extended(old, size)
        new = memoryview(bytearray(size))
        new[: len(old)] = old
        self.give_back(old)
        return new

    def give_back(self, buffer: memoryview) -> None:
        """Take back a lent or grown buffer, which must not be used any more."""
        size = len(buffer)
        if size == RECEIVE_BYTES:
            self.lent -= 1
            if len(self._free) < self._free_max:
                self._free.append(buffer)
        else:
            self._count(size, -1)
        if self._waiting:  # An attribute, not a call of the lot: this runs at each receive.
            self._freed.unpark_all()

    def _count(self, size: int, change: int) -> None:
        if size == RECEIVE_BYTES:
            self.lent += change
        elif size > RECEIVE_BYTES:
            self.grown_bytes += change * size
        else:
            self.small_bytes += change * size


class ReceiveBuffer:
    """Received bytes of a connection that are not handled yet.

    Guarantees that memory grows with the received bytes, never with the value of a length field.
    Never waits.
    """

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._view = NOTHING  # the buffer; NOTHING if there is none
        self._start = 0
        self._end = 0
        self._needed = 0  # whole size of the frame at _start, 0 if not known yet
        self._aside = b""  # a short piece of a frame, while there is no buffer

    def __len__(self) -> int:
        return self._end - self._start + len(self._aside)

    @property
    def held_bytes(self) -> int:
        """Memory in use, filled or not."""
        return len(self._view) + len(self._aside)

    def room(self) -> memoryview:  # hot: see make bench
        """Return the memory for the next receive; at least one byte. Raises OutOfBuffers."""
        if self._view is NOTHING:
            self._take_buffer()
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            return self._view
        capacity = len(self._view)
        if start and (capacity - end < ROOM_BYTES_MIN or start + self._needed > capacity):
            size = end - start
            self._view[:size] = self._view[start:end]
            self._start, self._end = 0, size
        if self._end == capacity:
            self._grow(capacity)
        return self._view[self._end :]

    def received(self, size: int) -> None:
        """Note that `size` bytes were written into `room()`."""
        self._end += size

    def filled(self) -> memoryview:
        """Return the received bytes that are not consumed; valid until `room` or `rest`
        is called.
        """
        return self._view[self._start : self._end]

    def consume(self, size: int) -> None:
        """Remove the frame at the front, which has been handled."""
        self._start += size
        self._needed = 0

    def expect(self, size: int) -> None:
        """Note that the frame at the front has `size` bytes in all, of which some are missing."""
        self._needed = size

    def rest(self) -> None:
        """Return the buffer to the pool if it holds little or nothing: no bytes are
        expected soon.
        """
        size = self._end - self._start
        if self._view is not NOTHING and size <= LEFTOVER_BYTES_MAX:
            if size:
                self._aside = bytes(self.filled())
            self._release()

    def close(self) -> None:
        """Return all memory."""
        self._aside = b""
        if self._view is not NOTHING:
            self._release()

    def _take_buffer(self) -> None:
        self._view = self._pool.borrow()
        if self._aside:
            self._end = len(self._aside)
            self._view[: self._end] = self._aside
            self._aside = b""

    def _release(self) -> None:
        self._pool.give_back(self._view)
        self._view = NOTHING
        self._start = self._end = 0

    def _grow(self, capacity: int) -> None:
        """Double the buffer, at most to the size of the incoming frame: memory follows the received
        bytes, not the announced length.
        """
        assert capacity < max(self._needed, RECEIVE_BYTES), (
            "a frame of unknown size fills the buffer"
        )
        size = max(RECEIVE_BYTES, min(2 * capacity, self._needed))
        self._view = self._pool.grow(self._view, size)


def _extended(view: memoryview, size: int) -> memoryview:
    """Enlarge the same memory in place: a copy would need as much memory again."""
    buffer = view.obj
    assert type(buffer) is bytearray
    missing = size - len(view)
    view.release()
    try:
        buffer.extend(bytes(missing))
    except BufferError:  # A view of an earlier frame is still alive.
        buffer = bytearray(buffer)
        buffer.extend(bytes(missing))
    return memoryview(buffer)
