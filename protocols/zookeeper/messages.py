"""Requests and answers of ZooKeeper 3.4 as tables: the layout of each operation.

`zookeeper.jute` of release 3.4 is the source; `create2` and `setWatches2` come from 3.5 and 3.6.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from braidlog.protocols.zookeeper.jute import Layout


class Op(enum.IntEnum):
    """Served operations (`ZooDefs.OpCode`)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SET_WATCHES = 101
    SET_WATCHES2 = 105
    CLOSE = -11


class Xid(enum.IntEnum):
    """Xids with a meaning of their own."""

    EVENT = -1
    PING = -2


class Event(enum.IntEnum):
    """Kinds of watch events (`Watcher.Event.EventType`)."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


SYNC_CONNECTED: Final = 3  # The state in every event that a server sends.
ERROR: Final = -1  # The type of a failed part in the answer to `multi`.
EVENT_LAYOUT: Final[Layout] = ("int", "int", "string")

# Fields of each request, behind xid and type. `multi` is a sequence of parts, read by the machine.
REQUESTS: Final[Mapping[int, Layout]] = {
    Op.CREATE: ("string", "buffer", "acls", "int"),
    Op.DELETE: ("string", "int"),
    Op.EXISTS: ("string", "bool"),
    Op.GET_DATA: ("string", "bool"),
    Op.SET_DATA: ("string", "buffer", "int"),
    Op.GET_ACL: ("string",),
    Op.SET_ACL: ("string", "acls", "int"),
    Op.GET_CHILDREN: ("string", "bool"),
    Op.SYNC: ("string",),
    Op.PING: (),
    Op.GET_CHILDREN2: ("string", "bool"),
    Op.CHECK: ("string", "int"),
    Op.CREATE2: ("string", "buffer", "acls", "int"),
    Op.AUTH: ("int", "string", "buffer"),
    Op.SET_WATCHES: ("long", "strings", "strings", "strings"),
    Op.SET_WATCHES2: ("long", "strings", "strings", "strings", "strings", "strings"),
    Op.CLOSE: (),
}
# Fields of each answer, behind xid, zxid and error.
REPLIES: Final[Mapping[int, Layout]] = {
    Op.CREATE: ("string",),
    Op.DELETE: (),
    Op.EXISTS: ("stat",),
    Op.GET_DATA: ("buffer", "stat"),
    Op.SET_DATA: ("stat",),
    Op.GET_ACL: ("acls", "stat"),
    Op.SET_ACL: ("stat",),
    Op.GET_CHILDREN: ("strings",),
    Op.SYNC: ("string",),
    Op.PING: (),
    Op.GET_CHILDREN2: ("strings", "stat"),
    Op.CHECK: (),
    Op.CREATE2: ("string", "stat"),
    Op.AUTH: (),
    Op.SET_WATCHES: (),
    Op.SET_WATCHES2: (),
    Op.CLOSE: (),
}
PARTS: Final = frozenset((Op.CREATE, Op.CREATE2, Op.DELETE, Op.SET_DATA, Op.CHECK))  # of `multi`


@dataclass(frozen=True, slots=True)
class Word:
    """A four-letter word, sent in place of a session."""

    name: bytes


@dataclass(frozen=True, slots=True)
class Connect:
    """The first request of a connection: begins a session, or continues the session of that id."""

    zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool  # The client sends the byte, and expects the byte in the answer.


@dataclass(frozen=True, slots=True)
class KeeperRequest:
    """A request; `fields` follow `REQUESTS`. The fields of `multi` are its parts."""

    xid: int
    op: int
    fields: Sequence[Any]


@dataclass(frozen=True, slots=True)
class PartResult:
    """Answer to a part of `multi`: the values of `REPLIES`, or the error if `op` is `ERROR`."""

    op: int
    values: Sequence[Any] = ()
    error: int = 0
