"""Typed bodies of the JSON API: requests and answers. `docs/api.md` describes them.

Knows no broker and no HTTP. Times are microseconds since 1970, sizes bytes.
"""

from typing import Annotated, Literal, TypeVar

import msgspec

from braidlog.protocols.http.values.jsontext import RepeatedName, check_names

PARTITIONS_MAX = 10_000  # As for `topics.num_partitions`: each one is a folder and open files.

Partitions = Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]
Encoding = Literal["utf8", "base64"]
Setting = str | int | bool
T = TypeVar("T")


class BadBody(ValueError):
    """A body is not JSON, or not of the expected form; the text says where."""


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    """PUT of a topic. Without `partitions`: as many as the broker gives a new topic."""

    partitions: Partitions | None = None
    settings: dict[str, Setting] = {}


class AlterTopic(msgspec.Struct, forbid_unknown_fields=True):
    """PATCH of a topic: the new number of partitions, settings to change; null resets one."""

    partitions: Partitions | None = None
    settings: dict[str, Setting | None] = {}


class SegmentInfo(msgspec.Struct):
    """One log file of a partition."""

    base_offset: int
    size_bytes: int
    last_modified_us: int


class PartitionInfo(msgspec.Struct):
    """Where one partition's log begins and ends; records below `high_watermark` are delivered."""

    partition: int
    partition_id: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    compacted_offset: int  # Where the compacted view ends; 0 if there is none.
    segments: list[SegmentInfo]


class TopicSummary(msgspec.Struct):
    """One line of the list of topics."""

    name: str
    partitions: int
    records: int
    size_bytes: int
    durability: str


class GroupSummary(msgspec.Struct):
    """One line of the list of groups. `group` is base64 if `encoding` says so."""

    topic: str
    group: str
    encoding: Encoding
    partitions: int
    backlog: int


class TopicDetail(msgspec.Struct):
    """Everything about one topic. `settings` are its own, `in_force` those that apply to it."""

    name: str
    topic_id: int
    created_us: int
    partitioned: bool
    durability: str
    settings: dict[str, Setting]
    in_force: dict[str, Setting | None]
    partitions: list[PartitionInfo]
    groups: list[GroupSummary]


class GroupPosition(msgspec.Struct):
    """A group in one partition; `position` is the next offset wanted, null if never set.

    `acknowledged` are closed ranges [first, last] above the position, the lowest ones first; if not
    all are listed, `acknowledged_ranges` is still their full number.
    """

    partition: int
    position: int | None
    acknowledged: list[tuple[int, int]]
    acknowledged_ranges: int
    backlog: int
    log_start_offset: int
    high_watermark: int


class GroupMember(msgspec.Struct):
    """One reader under a group's name, in any protocol; `name` is what that protocol's tools call
    it, `partitions` those assigned to it now.
    """

    protocol: str
    name: str
    address: str
    partitions: list[int]


class GroupDetail(msgspec.Struct):
    """Everything about one group on one topic."""

    topic: str
    group: str
    encoding: Encoding
    backlog: int
    partitions: list[GroupPosition]
    members: list[GroupMember]


class TopicPage(msgspec.Struct):
    """A page of topics; `next` is what to send as `after` for the page that follows, or null."""

    topics: list[TopicSummary]
    next: str | None


class GroupPage(msgspec.Struct):
    """A page of groups, ordered by topic and name; `next` as for topics, a topic's name."""

    groups: list[GroupSummary]
    next: str | None


class Readiness(msgspec.Struct):
    """Whether the broker should get work, and the result of each check."""

    ready: bool
    checks: dict[str, bool]


class ErrorBody(msgspec.Struct):
    """The answer to every refused request; `reason` is what Pulsar's admin clients show."""

    error_code: int
    code: str
    message: str
    reason: str


def decode(body: bytes, into: type[T]) -> T:
    """A typed body; an empty one is the empty object. Raises BadBody."""
    try:
        value = msgspec.json.decode(body or b"{}", type=into)
        check_names(body or b"{}")
        return value
    except msgspec.ValidationError as error:
        raise BadBody(readable(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RepeatedName) as error:
        raise BadBody(str(error)) from None


def readable(error: msgspec.ValidationError) -> str:
    """The fault of a body in a reader's words: the field first, no marks of the library."""
    text, _, place = str(error).partition(" - at `$")
    text = text.replace("`", "")
    field = place.rstrip("`").lstrip(".")
    return f"{field}: {text[:1].lower()}{text[1:]}" if field else text


def encode(body: msgspec.Struct) -> bytes:
    """JSON, UTF-8."""
    return msgspec.json.encode(body)
