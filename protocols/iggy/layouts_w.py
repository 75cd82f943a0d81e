"""The layouts of dialect W (protocol 0.12), as tables: V with changes; and the dialect itself.

Layouts: crate `iggy_binary_protocol` 0.11.1-edge.8 and requests of apache-iggy 0.9.1.dev5, until
clients of the release can be had. Development builds have layouts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy import vsr
from braidlog.protocols.iggy.dialects import PayloadLayout, RecordLayout
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fetch_requests import FetchedPlace, FetchMessages
from braidlog.protocols.iggy.fields import FieldRefused
from braidlog.protocols.iggy.forms import PRODUCER_BATCH_FORM
from braidlog.protocols.iggy.layouts import POLL, TOPIC, Pieces, counted_from_zero, request
from braidlog.protocols.iggy.layouts_v import V_RECORDS, V_REQUESTS, Register, V
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.metadata_pages import ChangesQuery
from braidlog.protocols.iggy.reply_layouts import record
from braidlog.protocols.iggy.topic_options import (
    SCOPE_STREAM,
    SCOPE_TOPIC,
    SCOPE_USER,
    UPDATABLE,
    W_CATALOGUE,
    W_TOPIC_KEYS,
)
from braidlog.protocols.reader import LittleEndianReader
from braidlog.storage.formats.record import HeaderKind

STATUSES: Final[Mapping[bytes, int]] = {b"active": 1, b"inactive": 2}
WAIT_TARGETS_MAX: Final = 1_000  # Partitions that a request waits for, as in Iggy.
PATCH_MAX: Final = 16  # Options that an update names; the catalogue has 20.
Options = dict[str, tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class ResourceUpdate:
    """UPDATE_RESOURCE: the request that V has for the named resource, with the changes alone.
    Implements `PayloadLayout`.
    """

    def read(self, payload: memoryview) -> object:
        reader = LittleEndianReader(payload)
        scope = reader.u8()
        if scope == SCOPE_TOPIC:
            names = f.IDENTIFIER_FROM_0.read(reader), f.IDENTIFIER_FROM_0.read(reader)
            options, resets = _patch(reader)
            return _topic_update(*names, options, resets)
        if scope == SCOPE_STREAM:
            stream = f.IDENTIFIER_FROM_0.read(reader)
            options, resets = _patch(reader)
            _no_resets(resets, ("name",))
            name = _text(options, "name")
            _nothing_else(options)
            return m.UpdateStream(stream, name or "", options=options)
        if scope == SCOPE_USER:
            user = f.GIVEN_IDENTIFIER.read(reader)
            options, resets = _patch(reader)
            _no_resets(resets, ("username", "status"))
            username, status = _text(options, "username"), _status(options)
            _nothing_else(options)
            return u.UpdateUser(user, username, status, options=options)
        raise ProtocolError(f"scope {scope} of an update does not exist")


def _patch(reader: LittleEndianReader) -> tuple[Options, tuple[str, ...]]:
    """Read the options to reset and to set. Raises ProtocolError for an update without a change."""
    count = reader.u8()
    if count > PATCH_MAX:
        raise ProtocolError(f"{count} options to reset, expected at most {PATCH_MAX}")
    resets = tuple(f.NAME8.read(reader) for _ in range(count))
    options = f.OPTIONS.read(reader)
    if not resets and not options:
        raise ProtocolError("an update that changes nothing")
    if len({*resets, *options}) < len(resets) + len(options):
        raise ProtocolError("an update that names an option twice")
    return options, resets


def _topic_update(
    stream: m.Name, topic: m.Name, options: Options, resets: tuple[str, ...]
) -> m.UpdateTopic:
    for key in (*options, *resets):
        if key != "name" and key not in W_TOPIC_KEYS:
            raise FieldRefused(ErrorCode.UNSUPPORTED_OPTION_KEY, f"no topic has an option {key!r}")
    for key in options:
        if key != "name" and key not in UPDATABLE:
            raise FieldRefused(ErrorCode.OPTION_NOT_UPDATABLE, f"option {key!r} cannot change")
    for key in resets:
        if key not in UPDATABLE:
            raise FieldRefused(ErrorCode.OPTION_NOT_RESETTABLE, f"option {key!r} has no default")
    name = _text(options, "name")
    return m.UpdateTopic(stream, topic, name, options=options, resets=resets)


def _no_resets(resets: tuple[str, ...], keys: tuple[str, ...]) -> None:
    for key in resets:
        code = ErrorCode.OPTION_NOT_RESETTABLE
        if key not in keys:
            code = ErrorCode.UNSUPPORTED_OPTION_KEY
        raise FieldRefused(code, f"option {key!r} cannot be reset")


def _nothing_else(options: Options) -> None:
    for key in options:
        raise FieldRefused(ErrorCode.UNSUPPORTED_OPTION_KEY, f"there is no option {key!r}")


def _text(options: Options, key: str) -> str | None:
    """Take a text option out of the options; None if it is absent."""
    if key not in options:
        return None
    kind, value = options.pop(key)
    if kind != HeaderKind.STRING or not 1 <= len(value) <= 255:
        raise FieldRefused(ErrorCode.INVALID_OPTION_VALUE, f"option {key!r}: {value!r}")
    return f.decoded(memoryview(value))


def _status(options: Options) -> int | None:
    text = _text(options, "status")
    if text is None:
        return None
    if text.encode() not in STATUSES:
        raise FieldRefused(ErrorCode.INVALID_OPTION_VALUE, f"status {text!r}")
    return STATUSES[text.encode()]


class WaitTargets:
    """A count, then partitions, each with the start of a poll. Implements `Readable`."""

    def read(self, reader: LittleEndianReader) -> dict[int, m.PollingStrategy]:
        count = reader.u32()
        if not 1 <= count <= WAIT_TARGETS_MAX:
            raise ProtocolError(f"{count} partitions, expected 1 to {WAIT_TARGETS_MAX}")
        targets = {reader.u32(): f.STRATEGY_FIELD.read(reader) for _ in range(count)}
        if len(targets) < count:
            raise ProtocolError("a wait that names a partition twice")
        return targets


class FetchTargets:
    """A count, then partitions, each with the start and the limits of a read. Implements
    `Readable`.
    """

    def read(self, reader: LittleEndianReader) -> list[FetchedPlace]:
        count = reader.u32()
        if not 1 <= count <= WAIT_TARGETS_MAX:
            raise ProtocolError(f"{count} partitions, expected 1 to {WAIT_TARGETS_MAX}")
        targets = [
            FetchedPlace(
                reader.u32(),
                f.STRATEGY_FIELD.read(reader),
                reader.u32(),
                *vsr.NUMBERS.unpack(reader.take(vsr.NUMBERS.size)),
            )
            for _ in range(count)
        ]
        if len({target.partition for target in targets}) < count:
            raise ProtocolError("a fetch that names a partition twice")
        return targets


@dataclass(frozen=True, slots=True)
class SessionBinding:
    """BIND_SESSION: versions, then the session and the secret of its login."""

    def read(self, payload: memoryview) -> u.BindSession:
        """See `PayloadLayout`. The client's protocol version is read before."""
        reader = LittleEndianReader(payload)
        reader.u32()
        f.STR8.read(reader)
        version = f.STR8.read(reader)
        client = bytes(reader.take(vsr.CLIENT_BYTES))
        session, metadata_op = vsr.NUMBERS.unpack(reader.take(vsr.NUMBERS.size))
        secret = bytes(reader.take(SECRET_BYTES))
        if reader.left:
            raise ProtocolError(f"{reader.left} bytes too many in a binding")
        return u.BindSession(version, client, session, metadata_op, secret)


SECRET_BYTES: Final = 32
_OFFSET: Pieces = {"consumer": f.OFFSET_OWNER, **TOPIC, "partition": f.PartitionOrFlag()}
_RETIRED = (
    *(CommandCode.UPDATE_USER, CommandCode.UPDATE_STREAM, CommandCode.UPDATE_TOPIC),
    *(CommandCode.PURGE_STREAM, CommandCode.PURGE_TOPIC, CommandCode.FLUSH_UNSAVED_BUFFER),
)

W_REQUESTS: dict[int, PayloadLayout] = counted_from_zero(
    {
        **{code: layout for code, layout in V_REQUESTS.items() if code not in _RETIRED},
        CommandCode.LOGIN_USER: Register(SECRET_BYTES),
        CommandCode.BIND_SESSION: SessionBinding(),
        CommandCode.UPDATE_RESOURCE: ResourceUpdate(),
        CommandCode.GET_METADATA_CHANGES: ChangesQuery(),
        CommandCode.GET_PARTITION_ROUTE: request(
            m.GetPartitionRoute, **TOPIC, partition=f.U32_FIELD
        ),
        CommandCode.POLL_MESSAGES_DEFERRED: request(
            m.PollDeferred,
            consumer=f.CONSUMER_FROM_0,
            **TOPIC,
            partition=f.PartitionOrFlag(),
            **POLL,
            wait_us=f.U64_FIELD,
            min_count=f.U32_FIELD,
            max_bytes=f.U32_FIELD,
            request_timeout_us=f.U64_FIELD,
        ),
        CommandCode.CANCEL_DEFERRED_REQUEST: request(m.CancelDeferred),
        CommandCode.FETCH_MESSAGES: request(
            FetchMessages,
            consumer=f.CONSUMER_FROM_0,
            **TOPIC,
            wait_us=f.U64_FIELD,
            request_timeout_us=f.U64_FIELD,
            min_count=f.U32_FIELD,
            count=f.U32_FIELD,
            max_bytes=f.U32_FIELD,
            auto_commit=f.FLAG,
            targets=FetchTargets(),
        ),
        CommandCode.GET_CONSUMER_OFFSET: request(m.GetConsumerOffset, **_OFFSET),
        CommandCode.STORE_CONSUMER_OFFSET: request(
            m.StoreConsumerOffset, **_OFFSET, offset=f.U64_FIELD, quorum=f.U8_FIELD
        ),
        CommandCode.DELETE_CONSUMER_OFFSET: request(
            m.DeleteConsumerOffset, **_OFFSET, quorum=f.U8_FIELD
        ),
    }
)

DEV_REQUESTS: dict[int, PayloadLayout] = {
    **W_REQUESTS,
    CommandCode.WAIT_FOR_MESSAGES: request(
        m.WaitForMessages,
        consumer=f.CONSUMER_FROM_0,
        stream=f.IDENTIFIER_FROM_0,
        topic=f.IDENTIFIER_FROM_0,
        wait_us=f.U64_FIELD,
        request_timeout_us=f.U64_FIELD,
        targets=WaitTargets(),
    ),
}

_CONTEXT: dict[str, f.Writable] = {
    "incarnation": f.U64_FIELD,
    "generation": f.U64_FIELD,
    "metadata_op": f.U64_FIELD,
}

DEV_RECORDS: dict[type[Any], RecordLayout] = {
    **V_RECORDS,
    r.PolledHead: V_RECORDS[r.PolledHead].followed_by(**_CONTEXT),
    r.PartitionDetails: V_RECORDS[r.PartitionDetails].followed_by(**_CONTEXT),
    r.FetchSection: record(
        partition=f.PARTITION_FROM_0,
        status=f.U32_FIELD,
        current_offset=f.U64_FIELD,
        messages_count=f.U32_FIELD,
        **_CONTEXT,
        next_offset=f.U64_FIELD,
        records_bytes=f.U32_FIELD,
    ),
    r.StreamInfo: V_RECORDS[r.StreamInfo].followed_by(derived_options=f.Counted()),
    r.TopicDetails: record(
        topic_id=f.NUMBER_FROM_0,
        created_us=f.U64_FIELD,
        partitions_count=f.U32_FIELD,
        size_bytes=f.U64_FIELD,
        messages_count=f.U64_FIELD,
        name=f.STR8,
        options=f.Counted(),
        derived_options=f.Counted(),
    ),
    r.UserDetails: V_RECORDS[r.UserDetails].followed_by(derived_options=f.Counted()),
    r.Node: record(
        cluster=f.STR32,
        nodes_count=f.U32_FIELD,
        replica_id=f.U8_FIELD,
        name=f.STR32,
        host=f.STR32,
        ports=f.NodePorts(),
    ),
    r.OptionInfo: record(
        key=f.STR8,
        kind=f.U8_FIELD,
        flags=f.U8_FIELD,
        default=f.Counted(),
        description=f.STR32,
    ),
    r.NothingSent: record(entries_count=f.U32_FIELD),
    r.ReadyPartitions: record(partitions=f.PartitionNumbers(0)),
    r.PartitionRoute: record(
        incarnation=f.U64_FIELD,
        metadata_op=f.U64_FIELD,
        view=f.U32_FIELD,
        partitions_count=f.U32_FIELD,
        primary_replica=f.U8_FIELD,
    ),
}
W_RECORDS: dict[type[Any], RecordLayout] = {
    **DEV_RECORDS,
    r.PartitionDetails: DEV_RECORDS[r.PartitionDetails].followed_by(
        members=f.NodeIds(), in_sync=f.NodeIds()
    ),
}

W = replace(
    V,
    name="W",
    clients="protocol 0.12: Rust crate 0.11.1-edge.7 to 0.12, apache-iggy 0.10",
    requests=W_REQUESTS,
    records=W_RECORDS,
    form=PRODUCER_BATCH_FORM,
    topic_options=W_TOPIC_KEYS,
    described=W_CATALOGUE,
    behaviour=replace(V.behaviour, checks_owner=True, lists_new_topics=True, keeps_sessions=True),
)
W_DEV = replace(
    W,
    name="W of development builds",
    clients="Rust crate 0.11.1-edge.2 to edge.6, apache-iggy 0.9.1.dev2 to dev5",
    requests=DEV_REQUESTS,
    records=DEV_RECORDS,
)
