"""Encodes replies: Produce and Fetch by hand, for speed, all others by their generated structure.
Knows no connection and no broker.

Layouts: Kafka 0.8.2 protocol guide, checked against a running 0.8.2.2 broker; later versions as in
`wire/`. All answers begin with the size and the correlation id; behind them stand the tagged fields
of a flexible version: only refusals of Produce and Fetch have any, which name the present leader.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

from braidlog.protocols.kafka.codec import write
from braidlog.protocols.kafka.fields import (
    INT16,
    INT32,
    PIECE_BYTES_MIN,
    Writer,
    uvarint_bytes,
)
from braidlog.protocols.kafka.messages import (
    BY_ID_VERSION,
    Fetched,
    FetchReply,
    Leader,
    Produced,
    ProduceReply,
    Reply,
)
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsResponse
from braidlog.storage.formats.api import Part, StoredPart

FRAME_HEAD = struct.Struct(">ii")  # bytes that follow the first field, correlation id
FLEXIBLE_HEAD = struct.Struct(">iiB")  # The same, then the number of tagged fields.
NO_TAGS = b"\0"
LEADERS_TAG = b"\1\0"  # Of an answer: a single tagged field, 0, the addresses of leaders.
# Of a partition in Produce and Fetch: a single tagged field, its number, its bytes; the node and
# the epoch of the leader, without tagged fields.
LEADER = struct.Struct(">BBBiiB")
LEADER_BYTES = 9
PRODUCE_LEADER_TAG, FETCH_LEADER_TAG = 0, 1
NO_LIST = b"\1"  # An empty list of a flexible version.
# Partition, error, base offset, since version 2 the time, since 5 the log's start.
PRODUCED, PRODUCED_V2, PRODUCED_V5 = map(struct.Struct, (">ihq", ">ihqq", ">ihqqq"))
# Of a set without an error: no wrong records, no message; then no tagged fields.
NO_REASONS, NO_REASONS_FLEXIBLE = bytes(4) + b"\xff\xff", NO_LIST + NO_TAGS + NO_TAGS
NO_THROTTLE = INT32.pack(0)
FETCH_SESSION = struct.Struct(">hi")  # Since version 7 of Fetch: error, session.
NO_SESSION_ID = 0
NONE_ABORTED = NOT_ELSEWHERE = -1  # No aborted transactions; no other replica to read from.
# Partition, error, high watermark, since version 4 what is stable, since 5 the log's start; since 4
# aborted transactions, since 11 the replica to read from; bytes of the message set.
FETCHED, FETCHED_V4, FETCHED_V5, FETCHED_V11 = map(
    struct.Struct, (">ihqi", ">ihqqii", ">ihqqqii", ">ihqqqiii")
)
# From version 12 on a byte says that aborted transactions are null, and the set's size follows.
FETCHED_V12 = struct.Struct(">ihqqqBi")


def encode(correlation_id: int, reply: Reply, version: int = 0) -> list[Part]:
    """Return the whole frame, in parts. Message sets are not copied: they must not change."""
    parts: Sequence[Part]
    if isinstance(reply, ProduceReply):
        body = b"".join(_produce(reply, version))
        size = len(body) + INT32.size
        if version >= reply.FLEXIBLE:
            return [FLEXIBLE_HEAD.pack(size + len(NO_TAGS), correlation_id, 0) + body]
        return [FRAME_HEAD.pack(size, correlation_id) + body]
    if isinstance(reply, FetchReply):
        parts = _fetch(reply, version)
    else:
        out = Writer()
        write(out, reply, version)
        parts = out.parts()
    size = sum(map(len, parts)) + INT32.size
    # Clients read the answer to ApiVersions before they know whether the broker is flexible.
    if version >= reply.FLEXIBLE and type(reply) is not ApiVersionsResponse:
        head = FLEXIBLE_HEAD.pack(size + 1, correlation_id, 0)
    else:
        head = FRAME_HEAD.pack(size, correlation_id)
    if len(parts) == 1 and type(parts[0]) is bytes:
        return [head + parts[0]]
    return [head, *parts]


def string(value: bytes | None) -> bytes:
    """Return a Kafka string: int16 length, then the bytes; None is null."""
    return b"\xff\xff" if value is None else INT16.pack(len(value)) + value


def compact_string(value: bytes | None) -> bytes:
    """Return a string of a flexible version; None is null."""
    return NO_TAGS if value is None else uvarint_bytes(len(value) + 1) + value


def _key(name: bytes | None, version: int) -> bytes:
    """Return the name, or the id, of a topic in an answer of a flexible version."""
    if version < BY_ID_VERSION:
        return compact_string(name)
    assert name is not None
    return name


def _produce_flexible(reply: ProduceReply, version: int) -> list[bytes]:  # hot: see make bench
    names_leader = False
    out = [uvarint_bytes(len(reply.topics) + 1)]
    for name, partitions in reply.topics.items():
        out += (_key(name, version), uvarint_bytes(len(partitions) + 1))
        for index, result in partitions.items():
            offset, start = result.base_offset, result.log_start_offset
            out.append(PRODUCED_V5.pack(index, result.error, offset, result.append_ms, start))
            if result.error:
                names_leader = names_leader or result.leader is not None
                out += (
                    _wrong_flexible(result) if result.wrong else NO_LIST,
                    compact_string(result.message) if result.message else NO_TAGS,
                    _leader_tag(result.leader, PRODUCE_LEADER_TAG),
                )
            else:
                out.append(NO_REASONS_FLEXIBLE)
        out.append(NO_TAGS)
    out += (NO_THROTTLE, _leaders(reply.topics.values()) if names_leader else NO_TAGS)
    return out


def _leader_tag(leader: Leader | None, tag: int) -> bytes:
    """Return the tagged fields of a partition."""
    if leader is None:
        return NO_TAGS
    return LEADER.pack(1, tag, LEADER_BYTES, leader.node_id, leader.epoch, 0)


def _leaders(topics: Iterable[Mapping[int, Produced | Fetched]]) -> bytes:
    """Return the tagged fields of an answer: the address of each leader that a partition names."""
    leaders = {
        result.leader.node_id: result.leader
        for results in topics
        for result in results.values()
        if result.leader is not None
    }
    if not leaders:
        return NO_TAGS
    nodes = uvarint_bytes(len(leaders) + 1)
    for leader in leaders.values():
        address = compact_string(leader.host) + INT32.pack(leader.port)
        nodes += INT32.pack(leader.node_id) + address + NO_TAGS + NO_TAGS  # The rack is null.
    return LEADERS_TAG + uvarint_bytes(len(nodes)) + nodes


def _wrong_flexible(result: Produced) -> bytes:
    return uvarint_bytes(len(result.wrong) + 1) + b"".join(
        INT32.pack(place) + compact_string(reason) + NO_TAGS for place, reason in result.wrong
    )


def _wrong(result: Produced) -> bytes:
    return INT32.pack(len(result.wrong)) + b"".join(
        INT32.pack(place) + string(reason) for place, reason in result.wrong
    )


def _produce(reply: ProduceReply, version: int) -> list[bytes]:  # hot: see make bench
    if version >= reply.FLEXIBLE:
        return _produce_flexible(reply, version)
    has_reasons = version >= 8
    out = [INT32.pack(len(reply.topics))]
    for name, partitions in reply.topics.items():
        out += (string(name), INT32.pack(len(partitions)))
        for index, result in partitions.items():
            error, offset = result.error, result.base_offset
            if version >= 5:
                start = result.log_start_offset
                out.append(PRODUCED_V5.pack(index, error, offset, result.append_ms, start))
            elif version >= 2:
                out.append(PRODUCED_V2.pack(index, error, offset, result.append_ms))
            else:
                out.append(PRODUCED.pack(index, error, offset))
            if has_reasons and not error:
                out.append(NO_REASONS)
            elif has_reasons:
                out += (_wrong(result), string(result.message))
    if version >= 1:
        out.append(NO_THROTTLE)
    return out


def _fetch(reply: FetchReply, version: int) -> list[Part]:
    parts: list[Part] = []
    small = bytearray()
    names_leader = False
    if version >= 1:
        small += NO_THROTTLE
    if version >= 7:
        small += FETCH_SESSION.pack(reply.error, NO_SESSION_ID)
    is_flexible = version >= reply.FLEXIBLE
    small += uvarint_bytes(len(reply.topics) + 1) if is_flexible else INT32.pack(len(reply.topics))
    for name, partitions in reply.topics.items():
        if is_flexible:
            small += _key(name, version)
            small += uvarint_bytes(len(partitions) + 1)
        else:
            small += string(name)
            small += INT32.pack(len(partitions))
        for index, fetched in partitions.items():
            small += _fetched_head(index, fetched, version)
            for piece in fetched.parts:
                if len(piece) < PIECE_BYTES_MIN and not isinstance(piece, StoredPart):
                    small += piece
                    continue
                if small:
                    parts.append(bytes(small))
                    small.clear()
                parts.append(piece)
            if is_flexible:
                names_leader = names_leader or fetched.leader is not None
                small += _leader_tag(fetched.leader, FETCH_LEADER_TAG)
        if is_flexible:
            small += NO_TAGS
    if is_flexible:
        small += _leaders(reply.topics.values()) if names_leader else NO_TAGS
    return [*parts, bytes(small)] if small else parts


def _fetched_head(index: int, fetched: Fetched, version: int) -> bytes:
    error, end, size = fetched.error, fetched.high_watermark, fetched.size
    if version < 4:
        return FETCHED.pack(index, error, end, size)
    if version < 5:
        return FETCHED_V4.pack(index, error, end, end, NONE_ABORTED, size)
    start = fetched.log_start_offset
    if version < 11:
        return FETCHED_V5.pack(index, error, end, end, start, NONE_ABORTED, size)
    if version >= FetchReply.FLEXIBLE:
        fixed = FETCHED_V12.pack(index, error, end, end, start, 0, NOT_ELSEWHERE)
        return fixed + uvarint_bytes(size + 1)
    return FETCHED_V11.pack(index, error, end, end, start, NONE_ABORTED, NOT_ELSEWHERE, size)
