"""Typed bodies of the JSON API: requests and answers. `docs/api.md` describes them.

Knows no broker and no HTTP. Times are microseconds since 1970, sizes bytes.
"""

from typing import Annotated

import msgspec

from braidlog.protocols.http.path_names import Encoding

PARTITIONS_MAX = 10_000  # As for `topics.num_partitions`: each is a folder and open files.

Partitions = Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]
Setting = str | int | bool


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    """PUT of a topic. `partitions` defaults to the broker's number for a new topic."""

    partitions: Partitions | None = None
    settings: dict[str, Setting] = {}


class AlterTopic(msgspec.Struct, forbid_unknown_fields=True):
    """PATCH of a topic: the new number of partitions, settings to change; null resets a setting."""

    partitions: Partitions | None = None
    settings: dict[str, Setting | None] = {}


class SegmentInfo(msgspec.Struct):
    """A log file of a partition."""

    base_offset: int
    size_bytes: int
    last_modified_us: int


class PartitionInfo(msgspec.Struct):
    """The bounds of a partition's log; records below `high_watermark` are delivered."""

    partition: int
    partition_id: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    compacted_offset: int  # End of the compacted view; 0 without a compaction.
    segments: list[SegmentInfo]


class TopicSummary(msgspec.Struct):
    """An entry of the list of topics. `ends`: the sum of the partitions' high watermarks. `ends`
    and `groups` are null for a topic of another broker.
    """

    name: str
    partitions: int
    records: int
    size_bytes: int
    durability: str
    ends: int | None
    groups: int | None
    schema_version: int | None  # The newest; null without a schema.


class GroupClient(msgspec.Struct):
    """A member of a group that reads no topic."""

    name: str
    address: str


class GroupSummary(msgspec.Struct):
    """An entry of the list of groups. `group` is base64 if `encoding` says so.

    `topic` is null for a group with members that read no existing topic; `backlog` is null for a
    group without a position on the topic, and on a topic of another broker. `members` read the
    topic now. `type` is the kind of a group that clients join, null for other subscriptions;
    `protocol_type` is the protocol of Kafka's members among themselves.
    """

    topic: str | None
    group: str
    encoding: Encoding
    partitions: int
    backlog: int | None
    members: int
    state: str
    type: str | None
    protocol_type: str | None
    # Age of the oldest unread record; 0 without a backlog, null if unknown. Only with `ages=true`.
    oldest_s: float | msgspec.UnsetType | None = msgspec.UNSET
    # The members of a group without a topic, if the request names the group.
    clients: list[GroupClient] | msgspec.UnsetType = msgspec.UNSET


class TopicDetail(msgspec.Struct):
    """All details of a topic. `settings` are the topic's own, `in_force` the effective settings,
    `inherited` those of the namespace.
    """

    name: str
    topic_id: int
    created_us: int
    partitioned: bool
    durability: str
    settings: dict[str, Setting]
    in_force: dict[str, Setting | None]
    partitions: list[PartitionInfo]
    groups: list[GroupSummary]
    inherited: dict[str, Setting] = {}
    silent_brokers: list[int] = []  # As in `GroupPage`.


class GroupPosition(msgspec.Struct):
    """A group's position in a partition; `position` is the next offset wanted, null if never set.
    `backlog` is null if the group has no position on the topic at all.

    `acknowledged` are closed ranges [first, last] above the position, the lowest first. The list
    may be incomplete; `acknowledged_ranges` is the full number of ranges.
    """

    partition: int
    position: int | None
    acknowledged: list[tuple[int, int]]
    acknowledged_ranges: int
    backlog: int | None
    log_start_offset: int
    high_watermark: int
    # Age of the oldest unread record; 0 without a backlog, null if unknown. Only with `ages=true`.
    oldest_s: float | msgspec.UnsetType | None = msgspec.UNSET


class GroupMember(msgspec.Struct):
    """A reader under a group's name, in any protocol; `name` is the reader's name in that
    protocol's tools, `partitions` are those assigned now. `library` is the name that the client
    gives, empty if unknown.
    """

    protocol: str
    name: str
    address: str
    partitions: list[int]
    library: str


class GroupDetail(msgspec.Struct):
    """All details of a group on a topic. `backlog`, `state`, `type` and `protocol_type` as in
    `GroupSummary`; `silent_brokers` as in `GroupPage`.
    """

    topic: str
    group: str
    encoding: Encoding
    backlog: int | None
    state: str
    type: str | None
    protocol_type: str | None
    partitions: list[GroupPosition]
    members: list[GroupMember]
    silent_brokers: list[int]


class TopicPage(msgspec.Struct):
    """A page of topics; `next` is the value of `after` for the next page, or null: a name, or with
    another order the number of entries before.
    """

    topics: list[TopicSummary]
    next: str | None


class GroupPage(msgspec.Struct):
    """A page of groups; `next` as for topics: a topic's name, or with `sort=lag` the number of
    entries before. `silent_brokers` are the numbers of brokers that did not answer within a second:
    members that they coordinate are missing.
    """

    groups: list[GroupSummary]
    next: str | None
    silent_brokers: list[int]


class Readiness(msgspec.Struct):
    """Readiness of the broker for work, and the result of each check."""

    ready: bool
    checks: dict[str, bool]
