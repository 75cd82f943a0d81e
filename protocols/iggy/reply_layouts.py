"""The layouts of answers in the dialects of the classic framing, as tables: each dialect is the
dialect before with changes. Layouts: apache/iggy, `server/src/binary/mapper.rs` at the tags.
"""

from __future__ import annotations

from typing import Any

from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.dialects import RecordLayout
from braidlog.protocols.iggy.permission_field import PERMISSIONS_FROM_0, PERMISSIONS_FROM_1

Records = dict[type[Any], RecordLayout]
Pieces = dict[str, f.Writable]

NOBODY_FROM_D4 = (1 << 32) - 1
# A user, or nobody.
USER_FROM_1, USER_FROM_0 = f.UserNumber(1, 0), f.UserNumber(0, NOBODY_FROM_D4)


def record(**fields: f.Writable) -> RecordLayout:
    """A row of a table."""
    return RecordLayout(tuple(fields.items()))


def client(user: f.Writable | None) -> RecordLayout:
    """A connection; before 0.0.81 there were no users."""
    user_fields: Pieces = {} if user is None else {"user_id": user}
    return record(
        client_id=f.U32_FIELD,
        **user_fields,
        transport=f.U8_FIELD,
        address=f.STR32,
        groups_count=f.U32_FIELD,
    )


def partitions(base: int) -> Records:
    """All records that name partitions."""
    number = f.PartitionNumber(base)
    return {
        r.PartitionDetails: record(
            partition=number,
            created_us=f.U64_FIELD,
            segments_count=f.U32_FIELD,
            current_offset=f.U64_FIELD,
            size_bytes=f.U64_FIELD,
            messages_count=f.U64_FIELD,
        ),
        r.PolledHead: record(
            partition=number, current_offset=f.U64_FIELD, messages_count=f.U32_FIELD
        ),
        r.OffsetInfo: record(
            partition=number, current_offset=f.U64_FIELD, stored_offset=f.U64_FIELD
        ),
        r.MemberInfo: record(member_id=f.U32_FIELD, partitions=f.PartitionNumbers(base)),
    }


def stats(time: f.Writable, cpu: Pieces, more: Pieces) -> RecordLayout:
    """Return the layout of the broker's statistics: `cpu` follows its share of a core, `more` the
    kernel's version.
    """
    return record(
        process_id=f.U32_FIELD,
        cpu_usage=f.F32_FIELD,
        **cpu,
        memory_bytes=f.U64_FIELD,
        memory_total_bytes=f.U64_FIELD,
        memory_available_bytes=f.U64_FIELD,
        run_time_us=time,
        start_time_us=time,
        read_bytes=f.U64_FIELD,
        written_bytes=f.U64_FIELD,
        messages_bytes=f.U64_FIELD,
        streams_count=f.U32_FIELD,
        topics_count=f.U32_FIELD,
        partitions_count=f.U32_FIELD,
        segments_count=f.U32_FIELD,
        messages_count=f.U64_FIELD,
        clients_count=f.U32_FIELD,
        groups_count=f.U32_FIELD,
        hostname=f.STR32,
        os_name=f.STR32,
        os_version=f.STR32,
        kernel_version=f.STR32,
        **more,
    )


TOTAL_CPU: Pieces = {"total_cpu_usage": f.F32_FIELD}
VERSION: Pieces = {
    "server_version": f.STR32,
    "server_semver": f.U32_FIELD,
    "cache_metrics_count": f.U32_FIELD,
}
MACHINE: Pieces = {
    "threads_count": f.U32_FIELD,
    "disk_free_bytes": f.U64_FIELD,
    "disk_total_bytes": f.U64_FIELD,
}


def topic(expiry: f.Writable, settings: Pieces) -> RecordLayout:
    """A topic; `settings` follow its expiry."""
    return record(
        topic_id=f.NUMBER_FROM_1,
        created_us=f.U64_FIELD,
        partitions_count=f.U32_FIELD,
        expiry_us=expiry,
        **settings,
        size_bytes=f.U64_FIELD,
        messages_count=f.U64_FIELD,
        name=f.STR8,
    )


TOPIC_SETTINGS: Pieces = {
    "compression": f.U8_FIELD,
    "size_max": f.U64_FIELD,
    "replication": f.U8_FIELD,
}

D0_RECORDS: Records = {
    **partitions(1),
    r.LoginInfo: record(user_id=USER_FROM_1),
    r.ClientInfo: client(None),
    r.JoinedGroup: record(
        stream_id=f.NUMBER_FROM_1, topic_id=f.NUMBER_FROM_1, group_id=f.NUMBER_FROM_1
    ),
    r.StatsReply: stats(f.Seconds(), {}, {}),
    r.StreamInfo: record(
        stream_id=f.NUMBER_FROM_1,
        created_us=f.U64_FIELD,
        topics_count=f.U32_FIELD,
        size_bytes=f.U64_FIELD,
        messages_count=f.U64_FIELD,
        name=f.STR8,
    ),
    r.TopicDetails: topic(f.ExpirySeconds(), {}),
    r.GroupInfo: record(
        group_id=f.NUMBER_FROM_1, partitions_count=f.U32_FIELD, members_count=f.U32_FIELD
    ),
    r.SentInfo: record(),
    r.Count: record(),
}

D1A_RECORDS: Records = {
    **D0_RECORDS,
    r.ClientInfo: client(USER_FROM_1),
    r.GroupInfo: D0_RECORDS[r.GroupInfo].followed_by(name=f.STR8),
    r.UserDetails: record(
        user_id=USER_FROM_1,
        created_us=f.U64_FIELD,
        status=f.U8_FIELD,
        username=f.STR8,
    ),
    r.UserPermissions: record(permissions=PERMISSIONS_FROM_1),
    r.TokenDetails: record(name=f.STR8, expires_us=f.U64_FIELD),
    r.RawToken: record(token=f.STR8),
}

D1B_RECORDS: Records = {
    **D1A_RECORDS,
    r.StatsReply: stats(f.U64_FIELD, TOTAL_CPU, {}),
    r.TopicDetails: topic(f.ExpirySeconds(), TOPIC_SETTINGS),
}

D2_RECORDS: Records = {
    **D1B_RECORDS,
    # Earlier clients of this dialect ignore the fields that later versions added.
    r.StatsReply: stats(f.U64_FIELD, TOTAL_CPU, VERSION),
    r.TopicDetails: topic(f.U64_FIELD, TOPIC_SETTINGS),
}

FROM_ZERO: dict[f.Writable, f.Writable] = {
    f.NUMBER_FROM_1: f.NUMBER_FROM_0,
    USER_FROM_1: USER_FROM_0,
    PERMISSIONS_FROM_1: PERMISSIONS_FROM_0,
}

D4_RECORDS: Records = {
    # Streams, topics, groups and users are counted from 0, as partitions are.
    **{kind: layout.with_pieces(FROM_ZERO) for kind, layout in D2_RECORDS.items()},
    **partitions(0),
    # Rust's clients ignore the fields of D5; Go's of D5, whose version looks like D4, need them.
    r.StatsReply: stats(f.U64_FIELD, TOTAL_CPU, {**VERSION, **MACHINE}),
    r.Node: record(
        cluster=f.STR32,
        nodes_count=f.U32_FIELD,
        name=f.STR32,
        host=f.STR32,
        ports=f.NodePorts(),
    ),
}

D5_RECORDS: Records = {
    **D4_RECORDS,
}
