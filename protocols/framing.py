"""Length-prefixed frames: finds the size of the next frame, and refuses a frame of a wrong size
before it is buffered.

Kafka, Pulsar and classic Iggy frames begin with a length that counts the bytes after the length.
Knows no socket, no buffer and no protocol: each adapter gives the layout of the length and its
bounds.
"""

import struct
from dataclasses import dataclass

from braidlog.broker.runtime.endings import ProtocolError


@dataclass(frozen=True, slots=True)
class LengthPrefix:
    """A length at the start of a frame, from `bytes_min` to `bytes_max`, both included."""

    layout: struct.Struct
    bytes_min: int
    bytes_max: int

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole size of the frame, with the length field; None while the length is
        incomplete.

        Raises:
            ProtocolError: The length is out of bounds. HTTP and TLS bytes have such a length.
        """
        if len(view) < self.layout.size:
            return None
        (size,) = self.layout.unpack_from(view)
        if not self.bytes_min <= size <= self.bytes_max:
            raise ProtocolError(
                f"frame of {size} bytes, {self.bytes_min} to {self.bytes_max} are taken"
            )
        return self.layout.size + int(size)
