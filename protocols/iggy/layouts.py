"""The layouts of requests in the dialects of the classic framing, as tables: each dialect is the
dialect before with changes.

Layouts: apache/iggy at the tags of the crates (0.0.60 to 0.10.0), `sdk/src/*/`, `iggy/src/*/`,
`core/common/src/commands/`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.dialects import PayloadLayout, RequestLayout
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.permission_field import PERMISSIONS_FROM_0, PERMISSIONS_FROM_1
from braidlog.protocols.reader import LittleEndianReader

INDEX_ENTRY = struct.Struct("<IIQ")  # 0, end of the message, 0
# Bytes of headers, bytes of payload; in a message of D3 to D5 they begin at MESSAGE_SIZES_POS.
MESSAGE_SIZES = struct.Struct("<II")
MESSAGE_SIZES_POS = 48
PARTITIONS_MAX = 100_000  # In a request of D0.

Requests = dict[int, PayloadLayout]
Rows = dict[int, RequestLayout]
Pieces = dict[str, f.Readable]
Row = Callable[..., RequestLayout]

# Counted from 1, as before D4; `counted_from_zero` gives the later pieces.
STREAM: Pieces = {"stream": f.IDENTIFIER_FROM_1}
TOPIC: Pieces = {"stream": f.IDENTIFIER_FROM_1, "topic": f.IDENTIFIER_FROM_1}
GROUP: Pieces = {**TOPIC, "group": f.IDENTIFIER_FROM_1}
USER: Pieces = {"user": f.GIVEN_IDENTIFIER}
NEW_USER: Pieces = {
    "username": f.STR8,
    "password": f.STR8,
    "status": f.U8_FIELD,
    "permissions": PERMISSIONS_FROM_1,
}
POLL: Pieces = {"strategy": f.STRATEGY_FIELD, "count": f.U32_FIELD, "auto_commit": f.FLAG}


def request(type_: type[Any], **fields: f.Readable) -> RequestLayout:
    """Return a row of a table."""
    return RequestLayout(type_, tuple(fields.items()))


def lenient(type_: type[Any], **fields: f.Readable) -> RequestLayout:
    """Return a row whose payload may have further bytes at the end."""
    return RequestLayout(type_, tuple(fields.items()), rest=True)


@dataclass(frozen=True, slots=True)
class IndexedSend:
    """SEND of D3 to D5: the length of the target, the target, an index, then the messages, whose
    headers have `head_bytes`.
    """

    head_bytes: int
    base: int

    def read(self, payload: memoryview) -> m.SendMessages:
        """See `PayloadLayout`. The index must fit the messages: only the index distinguishes these
        dialects.
        """
        reader = LittleEndianReader(payload)
        request = send_target(reader, self.base)
        count = request.count or 0
        index = reader.take(count * INDEX_ENTRY.size)
        request.messages = reader.rest()
        end = 0
        if count:
            _, first_end, _ = INDEX_ENTRY.unpack_from(index)
            _, end, _ = INDEX_ENTRY.unpack_from(index, len(index) - INDEX_ENTRY.size)
            if first_end != self._first_end(request.messages):
                raise ProtocolError("the first message does not end where its index says")
        if end != len(request.messages):
            raise ProtocolError(f"{len(request.messages)} bytes of messages, {end} in the index")
        return request

    def _first_end(self, messages: memoryview) -> int:
        if len(messages) < self.head_bytes:
            raise ProtocolError("the first message is cut short")
        headers_bytes, payload_bytes = MESSAGE_SIZES.unpack_from(messages, MESSAGE_SIZES_POS)
        return self.head_bytes + int(headers_bytes) + int(payload_bytes)


def send_target(reader: LittleEndianReader, base: int) -> m.SendMessages:
    """Read the target of a SEND from D3 on, and the number of messages; the messages are not read
    yet.
    """
    size = reader.u32()
    start = reader.pos
    identifier = f.IDENTIFIER_FROM_1 if base else f.IDENTIFIER_FROM_0
    stream, topic = identifier.read(reader), identifier.read(reader)
    partitioning = f.PartitioningField(base).read(reader)
    count = reader.u32()
    if reader.pos - start != size:
        raise ProtocolError(f"{reader.pos - start} bytes of a SEND's head, {size} are announced")
    return m.SendMessages(stream, topic, partitioning, memoryview(b""), count)


def _offset(consumer: f.Readable, partition: f.Readable, row: Row = request) -> Rows:
    """Return the rows of the commands about reading, which share most of their fields."""
    pieces: Pieces = {"consumer": consumer, **TOPIC, "partition": partition}
    return {
        CommandCode.POLL_MESSAGES: row(m.PollMessages, **pieces, **POLL),
        CommandCode.GET_CONSUMER_OFFSET: row(m.GetConsumerOffset, **pieces),
        CommandCode.STORE_CONSUMER_OFFSET: row(m.StoreConsumerOffset, **pieces, offset=f.U64_FIELD),
    }


def _groups(group: f.Readable, row: Row = request) -> Rows:
    pieces: Pieces = {**TOPIC, "group": group}
    return {
        CommandCode.GET_GROUP: row(m.GetGroup, **pieces),
        CommandCode.DELETE_GROUP: row(m.DeleteGroup, **pieces),
        CommandCode.JOIN_GROUP: row(m.JoinGroup, **pieces),
        CommandCode.LEAVE_GROUP: row(m.LeaveGroup, **pieces),
    }


_PARTITION_COUNT = f.NonZero(PARTITIONS_MAX)
_CHOSEN = f.ChosenId(zero_picks=False)
_PICKED = f.ChosenId(zero_picks=True)
_PARTITION_1 = f.PartitionOrZero()

D0_REQUESTS: Rows = {
    CommandCode.PING: request(m.Ping),
    CommandCode.GET_STATS: request(m.GetStats),
    CommandCode.GET_ME: request(m.GetMe),
    CommandCode.GET_CLIENT: request(m.GetClient, client_id=f.NonZero()),
    CommandCode.GET_CLIENTS: request(m.GetClients),
    **_offset(f.BareConsumer(), _PARTITION_1, lenient),
    CommandCode.SEND_MESSAGES: request(
        m.SendMessages,
        **TOPIC,
        partitioning=f.PartitioningField(1, ErrorCode.CANNOT_PARSE_SLICE),
        messages=f.REST,
    ),
    CommandCode.GET_STREAM: lenient(m.GetStream, **STREAM),
    CommandCode.GET_STREAMS: request(m.GetStreams),
    CommandCode.CREATE_STREAM: lenient(m.CreateStream, stream_id=_CHOSEN, name=f.FoldedName()),
    CommandCode.DELETE_STREAM: lenient(m.DeleteStream, **STREAM),
    CommandCode.GET_TOPIC: lenient(m.GetTopic, **TOPIC),
    CommandCode.GET_TOPICS: lenient(m.GetTopics, **STREAM),
    CommandCode.CREATE_TOPIC: lenient(
        m.CreateTopic,
        **STREAM,
        topic_id=_CHOSEN,
        partitions_count=f.AtMost(PARTITIONS_MAX),
        expiry_us=f.ExpirySeconds(),
        name=f.FoldedName(),
    ),
    CommandCode.DELETE_TOPIC: lenient(m.DeleteTopic, **TOPIC),
    CommandCode.CREATE_PARTITIONS: lenient(m.CreatePartitions, **TOPIC, count=_PARTITION_COUNT),
    CommandCode.DELETE_PARTITIONS: lenient(m.DeletePartitions, **TOPIC, count=_PARTITION_COUNT),
    CommandCode.GET_GROUPS: lenient(m.GetGroups, **TOPIC),
    CommandCode.CREATE_GROUP: lenient(m.CreateGroup, **TOPIC, group_id=_CHOSEN),
    **_groups(f.NonZero(), lenient),
    # Only crates 0.0.61 to 0.0.89 have these.
    CommandCode.UPDATE_STREAM: request(m.UpdateStream, **STREAM, name=f.FoldedName()),
    CommandCode.UPDATE_TOPIC: request(
        m.UpdateTopic, **TOPIC, expiry_us=f.ExpirySeconds(), name=f.FoldedName()
    ),
    CommandCode.LOGIN_USER: request(u.LoginUser, username=f.STR8, password=f.STR8),
    CommandCode.LOGOUT_USER: request(u.LogoutUser),
}

D1A_REQUESTS: Rows = {
    **{code: replace(layout, rest=False) for code, layout in D0_REQUESTS.items()},
    CommandCode.GET_CLIENT: request(m.GetClient, client_id=f.U32_FIELD),
    **_offset(f.CONSUMER_FROM_1, _PARTITION_1),
    CommandCode.SEND_MESSAGES: request(
        m.SendMessages, **TOPIC, partitioning=f.PartitioningField(1), messages=f.REST
    ),
    CommandCode.CREATE_STREAM: request(m.CreateStream, stream_id=_PICKED, name=f.NAME8),
    CommandCode.UPDATE_STREAM: request(m.UpdateStream, **STREAM, name=f.NAME8),
    CommandCode.PURGE_STREAM: request(m.PurgeStream, **STREAM),
    CommandCode.CREATE_TOPIC: request(
        m.CreateTopic,
        **STREAM,
        topic_id=_CHOSEN,
        partitions_count=f.U32_FIELD,
        expiry_us=f.ExpirySeconds(),
        name=f.NAME8,
    ),
    CommandCode.UPDATE_TOPIC: request(
        m.UpdateTopic, **TOPIC, expiry_us=f.ExpirySeconds(), name=f.NAME8
    ),
    CommandCode.PURGE_TOPIC: request(m.PurgeTopic, **TOPIC),
    CommandCode.CREATE_PARTITIONS: request(m.CreatePartitions, **TOPIC, count=f.U32_FIELD),
    CommandCode.DELETE_PARTITIONS: request(m.DeletePartitions, **TOPIC, count=f.U32_FIELD),
    CommandCode.CREATE_GROUP: request(m.CreateGroup, **TOPIC, group_id=_PICKED, name=f.NAME8),
    **_groups(f.IDENTIFIER_FROM_1),
    CommandCode.LOGIN_WITH_TOKEN: request(u.LoginWithToken, token=f.STR8),
    CommandCode.GET_USER: request(u.GetUser, **USER),
    CommandCode.GET_USERS: request(u.GetUsers),
    CommandCode.CREATE_USER: request(u.CreateUser, **NEW_USER),
    CommandCode.DELETE_USER: request(u.DeleteUser, **USER),
    CommandCode.UPDATE_USER: request(
        u.UpdateUser, **USER, username=f.Maybe(f.STR8), status=f.Maybe(f.U8_FIELD)
    ),
    CommandCode.UPDATE_PERMISSIONS: request(
        u.UpdatePermissions, **USER, permissions=PERMISSIONS_FROM_1
    ),
    CommandCode.CHANGE_PASSWORD: request(u.ChangePassword, **USER, old=f.STR8, new=f.STR8),
    CommandCode.GET_TOKENS: request(u.GetTokens),
    CommandCode.CREATE_TOKEN: request(u.CreateToken, name=f.STR8, expiry_us=f.ExpirySeconds()),
    CommandCode.DELETE_TOKEN: request(u.DeleteToken, name=f.STR8),
}


def _topic_requests(expiry: f.Readable, id_field: f.Readable | None) -> Rows:
    """Return the rows of CREATE_TOPIC and UPDATE_TOPIC from D1b on."""
    chosen: Pieces = {} if id_field is None else {"topic_id": id_field}
    settings: Pieces = {
        "compression": f.U8_FIELD,
        "expiry_us": expiry,
        "size_max": f.U64_FIELD,
        "replication": f.U8_FIELD,
        "name": f.NAME8,
    }
    return {
        CommandCode.CREATE_TOPIC: request(
            m.CreateTopic, **STREAM, **chosen, partitions_count=f.U32_FIELD, **settings
        ),
        CommandCode.UPDATE_TOPIC: request(m.UpdateTopic, **TOPIC, **settings),
    }


D1B_REQUESTS: Rows = {**D1A_REQUESTS, **_topic_requests(f.ExpirySeconds(), _PICKED)}

# Requests with possible extra bytes: Iggy's servers from D2 on ignore the end of these. Their
# layout is the same in all those dialects, so they do not help to detect the dialect. Clients do
# send extra bytes: Node's sends a number of partitions in DELETE_TOPIC and five bytes if there are
# no permissions, Go's up to 0.6 a byte behind permissions, C#'s four bytes behind a token.
UNREAD_AFTER = (
    *(
        CommandCode.GET_STREAM,
        CommandCode.UPDATE_STREAM,
        CommandCode.DELETE_STREAM,
        CommandCode.PURGE_STREAM,
    ),
    *(
        CommandCode.GET_TOPIC,
        CommandCode.GET_TOPICS,
        CommandCode.DELETE_TOPIC,
        CommandCode.PURGE_TOPIC,
    ),
    *(CommandCode.CREATE_PARTITIONS, CommandCode.DELETE_PARTITIONS),
    *(
        CommandCode.GET_GROUP,
        CommandCode.GET_GROUPS,
        CommandCode.DELETE_GROUP,
        CommandCode.JOIN_GROUP,
        CommandCode.LEAVE_GROUP,
    ),
    *(
        CommandCode.GET_USER,
        CommandCode.CREATE_USER,
        CommandCode.DELETE_USER,
        CommandCode.UPDATE_USER,
    ),
    *(
        CommandCode.UPDATE_PERMISSIONS,
        CommandCode.CHANGE_PASSWORD,
        CommandCode.LOGIN_WITH_TOKEN,
        CommandCode.DELETE_TOKEN,
    ),
)

D2_REQUESTS: Rows = {
    **D1B_REQUESTS,
    **{code: replace(D1B_REQUESTS[code], rest=True) for code in UNREAD_AFTER},
    **_topic_requests(f.U64_FIELD, _PICKED),
    CommandCode.LOGIN_USER: request(
        u.LoginUser, username=f.STR8, password=f.STR8, version=f.STR32, context=f.STR32
    ),
    CommandCode.FLUSH_UNSAVED_BUFFER: request(
        m.FlushUnsavedBuffer, **TOPIC, partition=f.PARTITION_FROM_1, fsync=f.FLAG
    ),
    CommandCode.DELETE_CONSUMER_OFFSET: request(
        m.DeleteConsumerOffset, consumer=f.CONSUMER_FROM_1, **TOPIC, partition=_PARTITION_1
    ),
    CommandCode.CREATE_TOKEN: request(u.CreateToken, name=f.STR8, expiry_us=f.U64_FIELD),
}

D3_REQUESTS: Requests = {
    **D2_REQUESTS,
    CommandCode.SEND_MESSAGES: IndexedSend(head_bytes=56, base=1),
    CommandCode.DELETE_SEGMENTS: request(
        m.DeleteSegments, **TOPIC, partition=f.PARTITION_FROM_1, count=f.U32_FIELD
    ),
}

FROM_ZERO: dict[f.Readable, f.Readable] = {
    f.IDENTIFIER_FROM_1: f.IDENTIFIER_FROM_0,
    f.CONSUMER_FROM_1: f.CONSUMER_FROM_0,
    f.PARTITION_FROM_1: f.PARTITION_FROM_0,
    PERMISSIONS_FROM_1: PERMISSIONS_FROM_0,
}


def counted_from_zero(requests: Requests) -> Requests:
    """Return the same layouts with streams, topics, groups and partitions counted from 0, as since
    D4.
    """
    return {
        code: layout.with_pieces(FROM_ZERO) if isinstance(layout, RequestLayout) else layout
        for code, layout in requests.items()
    }


D4_REQUESTS = counted_from_zero(
    {
        **D3_REQUESTS,
        **_offset(f.CONSUMER_FROM_1, f.PartitionOrFlag()),
        **_topic_requests(f.U64_FIELD, None),
        CommandCode.GET_CLUSTER_METADATA: request(m.GetClusterMetadata),
        CommandCode.DELETE_CONSUMER_OFFSET: request(
            m.DeleteConsumerOffset,
            consumer=f.CONSUMER_FROM_1,
            **TOPIC,
            partition=f.PartitionOrFlag(),
        ),
        CommandCode.SEND_MESSAGES: IndexedSend(head_bytes=56, base=0),
        CommandCode.CREATE_STREAM: request(m.CreateStream, name=f.NAME8),
        CommandCode.CREATE_GROUP: request(m.CreateGroup, **TOPIC, name=f.NAME8),
    }
)

D5_REQUESTS: Requests = {
    **D4_REQUESTS,
    CommandCode.SEND_MESSAGES: IndexedSend(head_bytes=64, base=0),
}
