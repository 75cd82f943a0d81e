"""Encodes replies by their generated structures. Knows no connection and no broker.

Layouts: Kafka 0.8.2 protocol guide, checked against a running 0.8.2.2 broker; later versions as in
`wire/`. All answers begin with the size and the correlation id; behind them stand the tagged fields
of a flexible version, of which there are none.
"""

import struct

from braidlog.protocols.kafka.codec import write
from braidlog.protocols.kafka.fields import INT32, Writer
from braidlog.protocols.kafka.messages import Reply, StoredSets
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsResponse
from braidlog.storage.formats.api import Part
from braidlog.storage.formats.quick import SPEEDUPS

FRAME_HEAD = struct.Struct(">ii")  # bytes that follow the first field, correlation id
FLEXIBLE_HEAD = struct.Struct(">iiB")  # The same, then the number of tagged fields.


def encode(correlation_id: int, reply: Reply, version: int = 0) -> list[Part]:
    """Return the whole frame, in parts. Message sets are not copied: they must not change."""
    if isinstance(reply, StoredSets):  # hot: see make bench
        assert SPEEDUPS is not None, "the extension stored the sets"
        return [SPEEDUPS.kafka_produced(version, correlation_id, reply.topics)]
    out = Writer()
    write(out, reply, version)
    size = out.size + INT32.size
    # Clients read the answer to ApiVersions before they know whether the broker is flexible.
    if version >= reply.FLEXIBLE and type(reply) is not ApiVersionsResponse:
        return out.parts(FLEXIBLE_HEAD.pack(size + 1, correlation_id, 0))
    return out.parts(FRAME_HEAD.pack(size, correlation_id))
