"""Nodes and sessions of ZooKeeper's clients: memory equals a replay, undone changes leave no
trace, and a zxid never repeats.
"""

import random

import pytest
from msgspec.structs import asdict

from braidlog.storage.errors import DamagedLog, StorageFull
from braidlog.storage.metadata.node_records import (
    Acl,
    AclSet,
    NodeGone,
    NodeMade,
    NodeSet,
    SessionMade,
)
from braidlog.storage.metadata.nodes import OPEN, RESERVED_TOGETHER, StoredNodes, parent_of
from tests.storage.metadata.memory_journal import MemoryJournal


def state_of(nodes):
    return (
        {path: asdict(node) for path, node in nodes.nodes.items()},
        {path: set(nodes.children(path)) for path in nodes.nodes},
        {number: set(nodes.ephemerals(number)) for number in (1, 2, 3)},
        dict(nodes.sessions),
        nodes.stored_bytes,
    )


def change_at_random(rng, nodes):
    """Return a change that fits the present state."""
    zxid, time_ms = nodes.next_zxid(), rng.randrange(1000)
    path = rng.choice(sorted(nodes.nodes))
    kind = rng.randrange(5)
    if kind == 0 and path != "/" and not nodes.children(path):
        return NodeGone(path, zxid)
    if kind == 1:
        return NodeSet(path, rng.choice([None, b"", bytes(rng.randrange(50))]), zxid, time_ms)
    if kind == 2:
        return AclSet(path, (Acl(rng.randrange(32), "ip", "127.0.0.1"),))
    while nodes.nodes[path].owner:  # An ephemeral node has no children.
        path = parent_of(path)
    path_made = f"{path.rstrip('/')}/{rng.randrange(6)}"
    if path_made in nodes.nodes:
        return NodeSet(path_made, b"again", zxid, time_ms)
    return NodeMade(path_made, b"x", OPEN, rng.choice([0, 0, 1, 2]), zxid, time_ms)


@pytest.mark.parametrize("seed", range(8))
def test_memory_equals_a_replay_also_over_snapshots_and_undone_changes(seed):
    rng, journal = random.Random(seed), MemoryJournal()
    nodes = StoredNodes(journal)
    for _ in range(300):
        if rng.random() < 0.05:
            nodes.begin_session(SessionMade(rng.randrange(1, 4), b"secret", rng.randrange(9)))
        if rng.random() < 0.02 and nodes.sessions:
            nodes.end_session(rng.choice(sorted(nodes.sessions)))
        before = state_of(nodes)
        for _ in range(rng.randrange(1, 4)):
            nodes.apply(change_at_random(rng, nodes))
        if rng.random() < 0.3:
            nodes.undo()
            assert state_of(nodes) == before
        else:
            nodes.write()
        if rng.random() < 0.1:
            journal.extra_bytes = 1 << 30  # A snapshot begins with the next change.
        if rng.random() < 0.05:
            again = StoredNodes(journal.reopened())
            assert state_of(again) == state_of(nodes)
            assert again.zxid >= nodes.zxid
    assert journal.snapshots > 0


def test_numbers_of_a_node_follow_its_changes():
    nodes = StoredNodes(MemoryJournal())
    nodes.apply(NodeMade("/a", b"1", OPEN, 0, 5, 100))
    nodes.apply(NodeMade("/a/b", None, OPEN, 0, 6, 101))
    nodes.apply(NodeSet("/a", b"22", 7, 102))
    nodes.apply(NodeGone("/a/b", 8))
    nodes.write()
    node = nodes.nodes["/a"]
    assert (node.czxid, node.mzxid, node.pzxid) == (5, 7, 8)
    assert (node.ctime_ms, node.mtime_ms, node.version, node.created) == (100, 102, 1, 1)


def test_a_full_disk_leaves_the_change_undone():
    journal = MemoryJournal()
    nodes = StoredNodes(journal)
    nodes.next_zxid()
    before = state_of(nodes)
    nodes.apply(NodeMade("/a", b"1", OPEN, 0, 1, 100))
    journal.full = True
    with pytest.raises(StorageFull):
        nodes.write()
    nodes.undo()
    assert state_of(nodes) == before


def test_zxids_go_on_above_every_zxid_seen_before_a_crash():
    journal = MemoryJournal()
    nodes = StoredNodes(journal)
    seen = [nodes.next_zxid() for _ in range(3)]
    assert seen == [1, 2, 3]
    assert StoredNodes(journal.reopened()).next_zxid() > RESERVED_TOGETHER
    nodes.zxid += RESERVED_TOGETHER  # As after as many changes of virtual nodes.
    assert StoredNodes(journal.reopened()).next_zxid() < nodes.next_zxid()
    assert StoredNodes(journal.reopened()).next_zxid() > nodes.zxid


def test_a_session_that_ended_can_leave_nodes_after_a_crash():
    journal = MemoryJournal()
    nodes = StoredNodes(journal)
    nodes.begin_session(SessionMade(1, b"secret", 4000))
    nodes.apply(NodeMade("/a", b"", OPEN, 1, nodes.next_zxid(), 1))
    nodes.write()
    assert nodes.ended_with_nodes() == []
    nodes.end_session(1)
    reopened = StoredNodes(journal.reopened())
    assert reopened.ended_with_nodes() == [1]
    assert reopened.ephemerals(1) == {"/a"}


def test_a_change_of_a_missing_node_is_damage():
    journal = MemoryJournal()
    nodes = StoredNodes(journal)
    nodes.apply(NodeMade("/a", b"", OPEN, 0, 1, 1))
    nodes.write()
    journal.records = [record for record in journal.records if b"/a" not in record]
    nodes.apply(NodeSet("/a", b"x", 2, 2))
    nodes.write()
    with pytest.raises(DamagedLog, match="NodeSet of unknown '/a'"):
        StoredNodes(journal.reopened())
    lost = []
    StoredNodes(journal.reopened(), lost.append)
    assert len(lost) == 1
