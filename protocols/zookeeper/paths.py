"""Paths of nodes: ZooKeeper's rules, and the chroot of a listener. Knows no node."""

from __future__ import annotations

import re
from typing import Final

from braidlog.protocols.zookeeper.errors import NodeError, ZkCode

ROOT: Final = "/"
# Longest path. ZooKeeper has no limit but the frame; watches and nodes keep paths in memory.
PATH_BYTES_MAX: Final = 8 * 1024
# Characters that `PathUtils.validatePath` refuses.
REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def is_valid(path: str) -> bool:
    """Return True if a node can have this path (`PathUtils.validatePath`)."""
    if path == ROOT:
        return True
    if not path.startswith("/") or REFUSED.search(path) or len(path) > PATH_BYTES_MAX:
        return False
    return all(name not in ("", ".", "..") for name in path[1:].split("/"))


def is_name(text: str) -> bool:
    """Return True if a node can have this name."""
    return "/" not in text and is_valid(f"/{text}")


def check(path: str) -> None:
    """Raise NodeError for a path that no node can have."""
    if not is_valid(path):
        raise NodeError(ZkCode.BAD_ARGUMENTS, f"{path[:100]!r} is not a path of a node")


def parent_of(path: str) -> str:
    """Return the path of the parent; the root for the root itself."""
    return path.rpartition("/")[0] or ROOT


def within(path: str, chroot: str) -> str:
    """Return the path of the node that a client names: below the chroot the tree is shown again."""
    if chroot and (path == chroot or path.startswith(f"{chroot}/")):
        return path[len(chroot) :] or ROOT
    return path
