"""Access lists of nodes, for the schemes world, auth, digest and ip, as in ZooKeeper 3.4.

`fixed` checks a list that a client sets; `allows` decides. Knows no node and no connection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final

from braidlog.broker.coordination.nodes import Acl, Acls
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ENTRIES_MAX: Final = 100  # Of an access list; each request walks the whole list.

Identity = tuple[str, str]  # A client's proof: scheme and id.


def digest_id(user_and_password: str) -> str:
    """Return the id of the scheme digest for `user:password`."""
    user = user_and_password.partition(":")[0]
    hashed = hashlib.sha1(user_and_password.encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"


def fixed(acl: Acls, identities: Sequence[Identity]) -> Acls:
    """Return an access list as stored: `auth` becomes the client's own ids. Raises NodeError."""
    if not 0 < len(acl) <= ENTRIES_MAX:
        raise NodeError(ZkCode.INVALID_ACL)
    entries: dict[Acl, None] = {}
    for entry in acl:
        if entry.scheme == "auth":
            own = [
                Acl(entry.perms, *identity) for identity in identities if identity[0] == "digest"
            ]
            if not own:
                raise NodeError(ZkCode.INVALID_ACL, "no id of the client for the scheme auth")
            entries.update(dict.fromkeys(own))
        elif _is_valid(entry):
            entries[entry] = None
        else:
            raise NodeError(ZkCode.INVALID_ACL)
    return tuple(entries)


def allows(acl: Acls, perm: int, identities: Sequence[Identity]) -> bool:
    """Return True if the list gives a client this permission; an empty list gives everything."""
    if not acl:
        return True
    return any(entry.perms & perm and _matches(entry, identities) for entry in acl)


def _is_valid(entry: Acl) -> bool:
    match entry.scheme:
        case "world":
            return entry.id == "anyone"
        case "digest":
            return _is_digest(entry.id)
        case "ip":
            return _network(entry.id) is not None
        case _:
            return False


def _is_digest(text: str) -> bool:
    parts = text.split(":")
    if len(parts) != 2:
        return False
    try:
        base64.b64decode(parts[1])
    except (binascii.Error, ValueError):
        return False
    return True


def _matches(entry: Acl, identities: Sequence[Identity]) -> bool:
    if entry.scheme == "world":
        return True
    if entry.scheme == "ip":
        network = _network(entry.id)
        return network is not None and any(
            ipaddress.ip_address(host) in network for scheme, host in identities if scheme == "ip"
        )
    return (entry.scheme, entry.id) in identities


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
