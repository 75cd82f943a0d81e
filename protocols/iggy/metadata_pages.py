"""The bytes of GET_METADATA_CHANGES (W): the question, and a page of the answer.

Knows no broker. Layouts: crate `iggy_binary_protocol` 0.11.1-edge.8, `primitives/metadata_changes`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy.fields import STR8, U32, U64
from braidlog.protocols.reader import LittleEndianReader

CURSOR = struct.Struct("<16sQ16sI")  # Log id, number of the change, checksum, ordinal.
HEADS = struct.Struct("<QQQ")  # Oldest change, since when it is retained, last change.
RECORD = struct.Struct("<QI16sQB")  # Change, ordinal, checksum, time, and no actor.
PAGE_ITEMS_MAX: Final = 1_000  # As in Iggy.
LAST_ORDINAL: Final = (1 << 32) - 1  # Of a cursor after all records of a change.


class ChangeStart(enum.IntEnum):
    """The start of a query."""

    EARLIEST = 0
    LATEST = 1
    AFTER = 2  # A cursor.
    CURRENT = 3  # The state now, without changes.


class ChangeStatus(enum.IntEnum):
    """The outcome of a query."""

    OK = 0
    BEHIND = 1  # The cursor names a change that is not known here yet.
    EXPIRED = 2  # Changes after the cursor are not retained.
    RESET = 3  # The cursor is of another history.


class ItemGroup(enum.IntEnum):
    """A kind of items."""

    STREAMS = 1
    TOPICS = 2
    PARTITIONS = 3
    GROUPS = 4
    MEMBERS = 5
    USERS = 6
    TOKENS = 7
    SESSIONS = 8


# A page of the state has a group's items only together with those of the group's parent.
PARENTS: Final[Mapping[ItemGroup, ItemGroup]] = {
    ItemGroup.TOPICS: ItemGroup.STREAMS,
    ItemGroup.PARTITIONS: ItemGroup.TOPICS,
    ItemGroup.GROUPS: ItemGroup.TOPICS,
    ItemGroup.MEMBERS: ItemGroup.GROUPS,
    ItemGroup.TOKENS: ItemGroup.USERS,
    ItemGroup.SESSIONS: ItemGroup.USERS,
}
ALL_GROUPS: Final = frozenset(ItemGroup)
KNOWN_GROUPS: Final = frozenset(int(group) for group in ItemGroup)
Code = TypeVar("Code", bound=enum.IntEnum)
ItemKey = tuple[int | str, ...]
"""The numbers, and a token's name, that order the items of a group."""


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """A place in the history: the change `op` of the log `log_id`."""

    log_id: bytes
    op: int
    checksum: bytes = bytes(16)
    ordinal: int = 0

    def write(self) -> bytes:
        """Return the bytes of the cursor."""
        return CURSOR.pack(self.log_id, self.op, self.checksum, self.ordinal)


@dataclass(frozen=True, slots=True)
class PageToken:
    """The end of a page of the state: the next page begins after `last_key` of `group`."""

    anchor: ChangeCursor
    head: int
    mask: int
    group: ItemGroup
    last_key: ItemKey

    def write(self) -> bytes:
        """Return the bytes of the token."""
        key = _key_bytes(self.last_key)
        end = struct.pack("<QBBH", self.head, self.mask, self.group, len(key))
        return self.anchor.write() + end + key


@dataclass(slots=True)
class GetMetadataChanges:
    """Asks for the changes of streams, topics and users after a place, or for their state."""

    start: ChangeStart
    cursor: ChangeCursor
    limit: int
    groups: frozenset[ItemGroup]
    token: PageToken | None = None
    since_us: int | None = None
    until_us: int | None = None

    def takes(self, time_us: int) -> bool:
        """Return True for a change at that time."""
        is_late = self.since_us is None or time_us >= self.since_us
        return is_late and (self.until_us is None or time_us <= self.until_us)


class ChangesQuery:
    """The layout of the question."""

    def read(self, payload: memoryview) -> GetMetadataChanges:
        """See `PayloadLayout`. Raises ProtocolError, also for a query that Iggy refuses."""
        reader = LittleEndianReader(payload)
        start = _enum(ChangeStart, reader.u8(), "start")
        cursor = _cursor(reader)
        since, until = _time(reader), _time(reader)
        limit = reader.u32()
        groups = frozenset(
            ItemGroup(code) for code in reader.take(reader.u8()) if code in KNOWN_GROUPS
        )
        size = struct.unpack("<H", reader.take(2))[0]
        token = _token(LittleEndianReader(reader.take(size))) if size else None
        if reader.left:
            raise ProtocolError(f"{reader.left} bytes too many in a query")
        query = GetMetadataChanges(start, cursor, limit, groups or ALL_GROUPS, token, since, until)
        _check(query)
        return query


def mask_of(groups: Iterable[ItemGroup]) -> int:
    """Return the bits of groups in a token."""
    return sum(1 << (group - 1) for group in groups)


def _check(query: GetMetadataChanges) -> None:
    """Raises ProtocolError for a query that contradicts itself."""
    is_current = query.start is ChangeStart.CURRENT
    if not 1 <= query.limit <= PAGE_ITEMS_MAX:
        raise ProtocolError(f"{query.limit} items, expected 1 to {PAGE_ITEMS_MAX}")
    if query.start is not ChangeStart.AFTER and any(query.cursor.write()):
        raise ProtocolError("a cursor in a query that starts elsewhere")
    if query.token is not None and not is_current:
        raise ProtocolError("a page's token in a query of changes")
    if query.token is not None and query.token.mask != mask_of(query.groups):
        raise ProtocolError("a token of a page of other groups")
    since, until = query.since_us, query.until_us
    if (since, until) != (None, None) and query.start in (ChangeStart.LATEST, ChangeStart.CURRENT):
        raise ProtocolError("a time in a query without changes")
    if since is not None and until is not None and since > until:
        raise ProtocolError("a time that ends before it begins")
    if is_current and any(PARENTS.get(group, group) not in query.groups for group in query.groups):
        raise ProtocolError("a group of items without its parent")


def _enum(kind: type[Code], code: int, name: str) -> Code:
    try:
        return kind(code)
    except ValueError:
        raise ProtocolError(f"{name} {code} does not exist") from None


def _time(reader: LittleEndianReader) -> int | None:
    flag = reader.u8()
    if flag > 1:
        raise ProtocolError(f"flag {flag}")
    return int(U64.unpack(reader.take(U64.size))[0]) if flag else None


def _cursor(reader: LittleEndianReader) -> ChangeCursor:
    cursor = ChangeCursor(*CURSOR.unpack(reader.take(CURSOR.size)))
    if not cursor.op and (any(cursor.checksum) or cursor.ordinal):
        raise ProtocolError("a cursor before the first change has a checksum")
    return cursor


def _token(reader: LittleEndianReader) -> PageToken:
    anchor = _cursor(reader)
    head, mask, code, size = struct.unpack("<QBBH", reader.take(12))
    group = _enum(ItemGroup, code, "group")
    key = LittleEndianReader(reader.take(size))
    if head < anchor.op or not mask & mask_of((group,)) or reader.left:
        raise ProtocolError("a page's token that contradicts itself")
    last_key: list[int | str] = [key.u32() for _ in range(KEY_NUMBERS[group])]
    if group is ItemGroup.TOKENS:
        last_key.append(STR8.read(key))
    if key.left:
        raise ProtocolError(f"a key of {size} bytes in group {group}")
    return PageToken(anchor, head, mask, group, tuple(last_key))


KEY_NUMBERS: Final[Mapping[ItemGroup, int]] = {
    ItemGroup.STREAMS: 1,
    ItemGroup.TOPICS: 2,
    ItemGroup.PARTITIONS: 2,
    ItemGroup.GROUPS: 3,
    ItemGroup.MEMBERS: 4,
    ItemGroup.USERS: 1,
    ItemGroup.TOKENS: 1,
    ItemGroup.SESSIONS: 2,
}


def _key_bytes(key: ItemKey) -> bytes:
    return b"".join(U32.pack(part) if isinstance(part, int) else STR8.write(part) for part in key)


# Pages.


class ChangeKind(enum.IntEnum):
    """The kind of a change."""

    STREAM_CREATED = 1
    STREAM_UPDATED = 2
    STREAM_DELETED = 3
    TOPIC_CREATED = 10
    TOPIC_UPDATED = 11
    TOPIC_DELETED = 12
    PARTITIONS_CHANGED = 20
    GROUP_CREATED = 30
    GROUP_DELETED = 31
    USER_CREATED = 50
    USER_UPDATED = 51
    USER_DELETED = 52
    PASSWORD_CHANGED = 53
    PERMISSIONS_UPDATED = 54
    TOKEN_CREATED = 60
    TOKEN_DELETED = 61

    @property
    def group(self) -> ItemGroup:
        """The group of such changes."""
        return GROUP_OF[self // 10]


GROUP_OF: Final[Mapping[int, ItemGroup]] = {
    0: ItemGroup.STREAMS,
    1: ItemGroup.TOPICS,
    2: ItemGroup.PARTITIONS,
    3: ItemGroup.GROUPS,
    5: ItemGroup.USERS,
    6: ItemGroup.TOKENS,
}


class WrittenRecord(NamedTuple):
    """A record of a change: number of the change, place within the change, time, kind, body."""

    op: int
    ordinal: int
    time_us: int
    kind: ChangeKind
    body: bytes

    def write(self) -> bytes:
        """Return the bytes of the record."""
        head = RECORD.pack(self.op, self.ordinal, bytes(16), self.time_us, 0)
        return head + bytes((self.kind.group, self.kind)) + U32.pack(len(self.body)) + self.body


@dataclass(slots=True)
class ChangesPage:
    """An answer: records of changes, or items (a group and a body each).

    `begin_after` are number and time of the last change that is not remembered. Without a `cursor`
    the client has to read the state again.
    """

    status: ChangeStatus
    log_id: bytes
    head: int
    begin_after: tuple[int, int]
    cursor: ChangeCursor | None = None
    records: Sequence[WrittenRecord] = ()
    items: Sequence[tuple[ItemGroup, bytes]] = ()
    is_current: bool = False
    has_more: bool = False
    token: PageToken | None = None

    def write(self) -> bytes:
        """Return the bytes of the page."""
        number, time_us = self.begin_after
        parts = [
            bytes((self.status, self.is_current, 1)),
            self.log_id,
            HEADS.pack(number + 1, time_us, self.head),
            bytes((self.cursor is not None,)),
            b"" if self.cursor is None else self.cursor.write(),
            bytes((self.has_more,)),
            U32.pack(len(self.records)),
            *(record.write() for record in self.records),
            U32.pack(len(self.items)),
        ]
        for group, body in self.items:
            parts += (bytes((group,)), U32.pack(len(body)), body)
        token = b"" if self.token is None else self.token.write()
        return b"".join((*parts, struct.pack("<H", len(token)), token))


def stream_key(number: int, created_us: int) -> bytes:
    """Return a stream's lasting key; its time of creation tells streams of one number apart."""
    return struct.pack("<IQ", number, created_us)


def topic_key(stream: bytes, number: int, topic_id: int) -> bytes:
    """Return a topic's lasting key; `topic_id` is never used again."""
    return stream + struct.pack("<IQ", number, topic_id)


def user_key(number: int, created_us: int) -> bytes:
    """Return a user's lasting key."""
    return struct.pack("<IQ", number, created_us)


def options_block(explicit: bytes, derived: bytes) -> bytes:
    """Return readable options."""
    return b"".join((b"\0", U32.pack(len(explicit)), explicit, U32.pack(len(derived)), derived))


UNREADABLE = b"\x01"  # Instead of options that are not known any more.


def described(key: bytes, created_us: int, name: str, options: bytes) -> bytes:
    """Return the body of a stream or topic."""
    return key + U64.pack(created_us) + STR8.write(name) + options


def user_body(key: bytes, name: str, status: int, permissions: bytes) -> bytes:
    """Return the body of a user; `permissions` is a block, empty if the user has none."""
    parts = (key, STR8.write(name), bytes((status, bool(permissions))), permissions)
    return b"".join((*parts, options_block(b"", b"")))


def token_body(user: bytes, name: str, expiry_us: int) -> bytes:
    """Return the body of an access token; 0 is no expiry."""
    return user + STR8.write(name) + U64.pack(expiry_us)
