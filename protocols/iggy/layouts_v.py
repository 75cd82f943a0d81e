"""The layouts of dialect V (crate 0.11, protocol 0.11.0), as tables, and the dialect itself.

Requests are named by the classic command codes: `vsr.py` maps operations to codes. Layouts:
apache/iggy-website, `content/docs/binary-protocol`, protocol 0.11.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy import forms
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.dialects import Behaviour, Dialect, RecordLayout
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.layouts import (
    D5_REQUESTS,
    GROUP,
    STREAM,
    TOPIC,
    Pieces,
    counted_from_zero,
    request,
    send_target,
)
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.partitioning import xxhash32_from_zero
from braidlog.protocols.iggy.permission_field import PERMISSIONS_FROM_0
from braidlog.protocols.iggy.reply_layouts import D5_RECORDS, record
from braidlog.protocols.iggy.topic_options import V_CATALOGUE, V_TOPIC_KEYS
from braidlog.protocols.reader import LittleEndianReader

# The partition in the empty answer to a poll of another member's partition.
NOT_OWNED = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class BatchSend:
    """SEND: the length of the target, the target, then a batch. Implements `PayloadLayout`."""

    def read(self, payload: memoryview) -> m.SendMessages:
        reader = LittleEndianReader(payload)
        request = send_target(reader, 0)
        request.messages = reader.rest()
        return request


@dataclass(frozen=True, slots=True)
class Register:
    """Login: versions, then a user with a password, or a token; the lengths show which.

    From W on a secret of `secret_bytes` follows the versions.
    """

    secret_bytes: int = 0

    def read(self, payload: memoryview) -> object:
        """See `PayloadLayout`. The client's protocol version is read before."""
        try:
            return self._read(payload, has_password=True)
        except ProtocolError:
            return self._read(payload, has_password=False)

    def _read(self, payload: memoryview, *, has_password: bool) -> u.LoginUser | u.LoginWithToken:
        reader = LittleEndianReader(payload)
        reader.u32()
        f.STR8.read(reader)
        version = f.STR8.read(reader)
        secret = bytes(reader.take(self.secret_bytes))
        first = f.STR8.read(reader)
        second = f.STR8.read(reader) if has_password else ""
        context = f.STR32.read(reader)
        if reader.left:
            raise ProtocolError(f"{reader.left} bytes too many in a login")
        if has_password:
            return u.LoginUser(first, second, version, context, secret)
        return u.LoginWithToken(first, version, context, secret)


_OPTIONS: Pieces = {"options": f.OPTIONS}
_OFFSET: Pieces = {"consumer": f.CONSUMER_FROM_0, **TOPIC, "partition": f.PartitionOrFlag()}

V_REQUESTS = counted_from_zero(
    {
        **D5_REQUESTS,
        CommandCode.LOGIN_USER: Register(),
        CommandCode.SEND_MESSAGES: BatchSend(),
        CommandCode.STORE_CONSUMER_OFFSET: request(
            m.StoreConsumerOffset, **_OFFSET, offset=f.U64_FIELD, quorum=f.U8_FIELD
        ),
        CommandCode.DELETE_CONSUMER_OFFSET: request(
            m.DeleteConsumerOffset, **_OFFSET, quorum=f.U8_FIELD
        ),
        CommandCode.CREATE_STREAM: request(m.CreateStream, name=f.NAME8, **_OPTIONS),
        CommandCode.UPDATE_STREAM: request(m.UpdateStream, **STREAM, name=f.NAME8, **_OPTIONS),
        CommandCode.CREATE_TOPIC: request(
            m.CreateTopic, **STREAM, partitions_count=f.U32_FIELD, name=f.NAME8, **_OPTIONS
        ),
        CommandCode.UPDATE_TOPIC: request(m.UpdateTopic, **TOPIC, name=f.NAME8, **_OPTIONS),
        CommandCode.SYNC_GROUP: request(m.SyncGroup, **GROUP),
        CommandCode.DESCRIBE_OPTIONS: request(m.DescribeOptions, scope=f.U8_FIELD),
        CommandCode.CREATE_USER: request(
            u.CreateUser,
            username=f.STR8,
            password=f.STR8,
            status=f.U8_FIELD,
            permissions=PERMISSIONS_FROM_0,
            **_OPTIONS,
        ),
        CommandCode.UPDATE_USER: request(
            u.UpdateUser,
            user=f.GIVEN_IDENTIFIER,
            username=f.Maybe(f.STR8),
            status=f.Maybe(f.U8_FIELD),
            **_OPTIONS,
        ),
    }
)
del V_REQUESTS[CommandCode.LOGIN_WITH_TOKEN]  # The register operation carries both kinds of login.

V_RECORDS: dict[type[Any], RecordLayout] = {
    **D5_RECORDS,
    r.PolledHead: record(
        partition=f.PartitionNumber(0, NOT_OWNED),
        current_offset=f.U64_FIELD,
        messages_count=f.U32_FIELD,
    ),
    r.StreamInfo: D5_RECORDS[r.StreamInfo].followed_by(options=f.Counted()),
    r.TopicDetails: record(
        topic_id=f.NUMBER_FROM_0,
        created_us=f.U64_FIELD,
        partitions_count=f.U32_FIELD,
        expiry_us=f.U64_FIELD,
        compression=f.U8_FIELD,
        size_max=f.U64_FIELD,
        size_bytes=f.U64_FIELD,
        messages_count=f.U64_FIELD,
        name=f.STR8,
        options=f.Counted(),
        derived_options=f.Counted(),
    ),
    r.SentInfo: record(
        entries_count=f.U32_FIELD,
        stream_id=f.NUMBER_FROM_0,
        topic_id=f.NUMBER_FROM_0,
        partition=f.PARTITION_FROM_0,
        base_offset=f.U64_FIELD,
    ),
    r.Assignment: record(generation=f.U64_FIELD, partitions=f.PartitionNumbers(0)),
    r.Count: record(count=f.U32_FIELD),
    r.OptionInfo: record(key=f.STR8, kind=f.U8_FIELD, default=f.Counted(), description=f.STR32),
    r.UserDetails: D5_RECORDS[r.UserDetails].followed_by(options=f.Counted()),
    r.LoginInfo: record(
        user_id=f.U32_FIELD,
        session=f.U64_FIELD,
        protocol_version=f.U32_FIELD,
        server_version=f.STR8,
    ),
}

V = Dialect(
    "V",
    "protocol 0.11.0: Rust crate 0.11, apache-iggy 0.9.0",
    requests=V_REQUESTS,
    records=V_RECORDS,
    unserved=frozenset({int(CommandCode.GET_SNAPSHOT)}),
    # Its answer has no payload.
    silent=frozenset({int(CommandCode.LOGOUT_USER)}),
    key_partition=xxhash32_from_zero,
    form=forms.BATCH_FORM,
    behaviour=Behaviour(
        owned_only=True,
        cooperative_join=True,
        leave_is_checked=True,
        zero_polls=True,
        lists_missing_stream=True,
        group_needs_topic=True,
    ),
    topic_options=V_TOPIC_KEYS,
    described=V_CATALOGUE,
    error_numbers={
        ErrorCode.STREAM_NAME_NOT_FOUND: ErrorCode.STREAM_ID_NOT_FOUND,
        ErrorCode.TOPIC_NAME_NOT_FOUND: ErrorCode.TOPIC_ID_NOT_FOUND,
        ErrorCode.GROUP_NAME_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    },
)

# For a SEND, or a command that stores or deletes an offset, the server's error does not name the
# missing resource.
_NOT_THERE = frozenset(
    {
        ErrorCode.STREAM_ID_NOT_FOUND,
        ErrorCode.STREAM_NAME_NOT_FOUND,
        ErrorCode.TOPIC_ID_NOT_FOUND,
        ErrorCode.TOPIC_NAME_NOT_FOUND,
        ErrorCode.PARTITION_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_NAME_NOT_FOUND,
        ErrorCode.GROUP_MEMBER_NOT_FOUND,
    }
)
_VAGUE = frozenset(
    {
        int(CommandCode.SEND_MESSAGES),
        int(CommandCode.STORE_CONSUMER_OFFSET),
        int(CommandCode.DELETE_CONSUMER_OFFSET),
    }
)


def error_number(command: int, code: ErrorCode) -> int:
    """Return the number of a command's error in V."""
    if command in _VAGUE and code in _NOT_THERE:
        return ErrorCode.RESOURCE_NOT_FOUND
    return V.error_number(code)
