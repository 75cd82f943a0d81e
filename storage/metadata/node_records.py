"""Records of ZooKeeper's nodes and sessions, as a journal holds them (storage/FORMAT.md, section
9.3).
"""

import msgspec


class Acl(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """An entry of a node's access list: permission bits, scheme and id."""

    perms: int
    scheme: str
    id: str


Acls = tuple[Acl, ...]


class StoredNode(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A node. Changed by the store alone."""

    data: bytes | None
    acl: Acls
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    """Number of changes of the data."""
    created: int
    """Number of children ever created; names of sequence nodes come from this number."""
    aversion: int
    """Number of changes of the access list."""
    owner: int
    """The session of an ephemeral node, else 0."""


class NodeMade(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=1, gc=False):
    """A node was created below an existing parent."""

    path: str
    data: bytes | None
    acl: Acls
    owner: int
    zxid: int
    time_ms: int


class NodeSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=2, gc=False):
    """The data of a node were set."""

    path: str
    data: bytes | None
    zxid: int
    time_ms: int


class AclSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=3, gc=False):
    """The access list of a node was set."""

    path: str
    acl: Acls


class NodeGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=4, gc=False):
    """A node without children was deleted."""

    path: str
    zxid: int


class SessionMade(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=5, gc=False):
    """A session began, or has another timeout."""

    session_id: int
    password: bytes
    timeout_ms: int


class SessionGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=6, gc=False):
    """A session ended; its ephemeral nodes end with later records, or at the next start."""

    session_id: int


class ZxidsReserved(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=7, gc=False):
    """Clients may have seen every zxid below `end`; the next start continues there."""

    end: int


class NodeKept(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=8, gc=False):
    """A node with all its numbers, in a snapshot."""

    path: str
    node: StoredNode


NodeChange = NodeMade | NodeSet | AclSet | NodeGone
StoredNodeChange = NodeChange | SessionMade | SessionGone | ZxidsReserved | NodeKept
