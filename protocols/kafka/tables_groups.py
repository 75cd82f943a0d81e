"""The tables of consumer groups. Layouts: as in `tables.py`."""

from braidlog.protocols.kafka import group_messages as m
from braidlog.protocols.kafka.fields import (
    BLOB,
    BOOL,
    I16,
    I32,
    TEXT,
    Api,
    Array,
    Field,
    ignored,
    table,
)

MEMBER = (Field("member_id", TEXT), Field("instance_id", TEXT, since=3))

JOIN_GROUP = Api(
    5,
    table(
        m.JoinGroupRequest,
        Field("group", TEXT),
        Field("session_timeout_ms", I32),
        Field("rebalance_timeout_ms", I32, since=1),
        Field("member_id", TEXT),
        Field("instance_id", TEXT, since=5),
        Field("protocol_type", TEXT),
        Field(
            "protocols",
            Array(table(m.GroupProtocol, Field("name", TEXT), Field("metadata", BLOB))),
        ),
    ),
    table(
        m.JoinGroupReply,
        ignored(I32, since=2),  # Throttle time.
        Field("error", I16),
        Field("generation", I32),
        Field("protocol_name", TEXT),
        Field("leader", TEXT),
        Field("member_id", TEXT),
        Field(
            "members",
            Array(
                table(
                    m.JoinedMember,
                    Field("member_id", TEXT),
                    Field("instance_id", TEXT, since=5),
                    Field("metadata", BLOB),
                )
            ),
        ),
    ),
)

SYNC_GROUP = Api(
    3,
    table(
        m.SyncGroupRequest,
        Field("group", TEXT),
        Field("generation", I32),
        *MEMBER,
        Field(
            "assignments",
            Array(table(m.Assigned, Field("member_id", TEXT), Field("assignment", BLOB))),
        ),
    ),
    table(
        m.SyncGroupReply,
        ignored(I32, since=1),  # Throttle time.
        Field("error", I16),
        Field("assignment", BLOB),
    ),
)

HEARTBEAT = Api(
    3,
    table(m.HeartbeatRequest, Field("group", TEXT), Field("generation", I32), *MEMBER),
    table(m.HeartbeatReply, ignored(I32, since=1), Field("error", I16)),
)

LEAVE_GROUP = Api(
    3,
    table(
        m.LeaveGroupRequest,
        Field("group", TEXT),
        Field("member_id", TEXT, until=2),
        Field("members", Array(table(m.Leaving, *MEMBER)), since=3),
    ),
    table(
        m.LeaveGroupReply,
        ignored(I32, since=1),  # Throttle time.
        Field("error", I16),
        Field("members", Array(table(m.Left, *MEMBER, Field("error", I16))), since=3),
    ),
)

DESCRIBE_GROUPS = Api(
    4,
    table(
        m.DescribeGroupsRequest,
        Field("groups", Array(TEXT)),
        ignored(BOOL, since=3),  # Whether to tell which operations are allowed.
    ),
    table(
        m.DescribeGroupsReply,
        ignored(I32, since=1),  # Throttle time.
        Field(
            "groups",
            Array(
                table(
                    m.DescribedGroup,
                    Field("error", I16),
                    Field("group", TEXT),
                    Field("state", TEXT),
                    Field("protocol_type", TEXT),
                    Field("protocol_name", TEXT),
                    Field(
                        "members",
                        Array(
                            table(
                                m.DescribedMember,
                                Field("member_id", TEXT),
                                Field("instance_id", TEXT, since=4),
                                Field("client_id", TEXT),
                                Field("client_host", TEXT),
                                Field("metadata", BLOB),
                                Field("assignment", BLOB),
                            )
                        ),
                    ),
                    ignored(I32, since=3, value=-(2**31)),  # Operations: not told.
                )
            ),
        ),
    ),
)

LIST_GROUPS = Api(
    2,
    table(m.ListGroupsRequest),
    table(
        m.ListGroupsReply,
        ignored(I32, since=1),  # Throttle time.
        Field("error", I16),
        Field(
            "groups",
            Array(table(m.ListedGroup, Field("group", TEXT), Field("protocol_type", TEXT))),
        ),
    ),
)

DELETE_GROUPS = Api(
    1,
    table(m.DeleteGroupsRequest, Field("groups", Array(TEXT))),
    table(
        m.DeleteGroupsReply,
        ignored(I32),  # Throttle time.
        Field("groups", Array(table(m.DeletedGroup, Field("group", TEXT), Field("error", I16)))),
    ),
)

GROUP_APIS = {
    11: JOIN_GROUP,
    12: HEARTBEAT,
    13: LEAVE_GROUP,
    14: SYNC_GROUP,
    15: DESCRIBE_GROUPS,
    16: LIST_GROUPS,
    42: DELETE_GROUPS,
}
