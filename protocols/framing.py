"""Length-prefixed frames: finds the size of the next one, and refuses it before it is buffered.

Kafka, Pulsar and classic Iggy frames begin with a length that counts what follows it. Knows no
socket, no buffer and no protocol: each listener says how the length is written, and its bounds.
"""

import struct
from dataclasses import dataclass

from braidlog.broker.server.endings import ProtocolError


@dataclass(frozen=True, slots=True)
class LengthPrefix:
    """A length at the very start of a frame, from `bytes_min` to `bytes_max`, both included."""

    layout: struct.Struct
    bytes_min: int
    bytes_max: int

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the frame, its length field included; None while the length is missing.

        Raises:
            ProtocolError: The length is out of bounds, as it is if the bytes are HTTP or TLS.
        """
        if len(view) < self.layout.size:
            return None
        (size,) = self.layout.unpack_from(view)
        if not self.bytes_min <= size <= self.bytes_max:
            raise ProtocolError(
                f"frame of {size} bytes, {self.bytes_min} to {self.bytes_max} are taken"
            )
        return self.layout.size + int(size)
