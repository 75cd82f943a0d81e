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
from braidlog.protocols.zookeeper.errors import Code, NodeError

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
        raise NodeError(Code.INVALID_ACL)
    entries: dict[Acl, None] = {}
    for one in acl:
        if one.scheme == "auth":
            own = [Acl(one.perms, *who) for who in identities if who[0] == "digest"]
            if not own:
                raise NodeError(Code.INVALID_ACL, "no id of the client for the scheme auth")
            entries.update(dict.fromkeys(own))
        elif _is_valid(one):
            entries[one] = None
        else:
            raise NodeError(Code.INVALID_ACL)
    return tuple(entries)


def allows(acl: Acls, perm: int, identities: Sequence[Identity]) -> bool:
    """Return True if the list gives a client this permission; an empty list gives everything."""
    if not acl:
        return True
    return any(one.perms & perm and _matches(one, identities) for one in acl)


def _is_valid(one: Acl) -> bool:
    match one.scheme:
        case "world":
            return one.id == "anyone"
        case "digest":
            return _is_digest(one.id)
        case "ip":
            return _network(one.id) is not None
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


def _matches(one: Acl, identities: Sequence[Identity]) -> bool:
    if one.scheme == "world":
        return True
    if one.scheme == "ip":
        network = _network(one.id)
        return network is not None and any(
            ipaddress.ip_address(host) in network for scheme, host in identities if scheme == "ip"
        )
    return (one.scheme, one.id) in identities


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
