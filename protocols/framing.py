"""Length-prefixed frames: how long the next one is, refused before anything is buffered for it.

Kafka, Pulsar and classic Iggy frames begin with a length that counts what follows it. Knows no
socket, no buffer and no protocol: each listener says how the length is written and how far it may
go.
"""

import struct
from dataclasses import dataclass

from broker.server.endings import ProtocolError


@dataclass(frozen=True, slots=True)
class LengthPrefix:
    """A length at the very start of a frame, from `bytes_min` to `bytes_max`, both included."""

    layout: struct.Struct
    bytes_min: int
    bytes_max: int

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the frame, its length field included; None while the length is missing.

        Raises:
            ProtocolError: The length is out of bounds, as the first bytes of HTTP and TLS are.
        """
        if len(view) < self.layout.size:
            return None
        (size,) = self.layout.unpack_from(view)
        if not self.bytes_min <= size <= self.bytes_max:
            raise ProtocolError(
                f"frame of {size} bytes, {self.bytes_min} to {self.bytes_max} are taken"
            )
        return self.layout.size + int(size)
