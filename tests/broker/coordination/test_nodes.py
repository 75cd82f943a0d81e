"""Stored nodes within limits; a failed block leaves nothing behind."""

import pytest

from braidlog.broker import errors
from braidlog.broker.coordination import nodes as module
from braidlog.broker.coordination.nodes import NodeMade, Nodes, NodeSet, SessionMade
from braidlog.storage.metadata.nodes import OPEN
from tests.storage.metadata.memory_journal import MemoryJournal


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def nodes(journal):
    opened = Nodes(lambda: journal, report=lambda error: None)
    opened.open()
    return opened


def make(nodes, path, data=b""):
    nodes.apply(NodeMade(path, data, OPEN, 0, nodes.next_zxid(), 1))


def test_changes_of_a_block_are_one_record(nodes, journal):
    before = len(journal.records)
    with nodes.together():
        make(nodes, "/a")
        make(nodes, "/a/b")
    assert len(journal.records) == before + 2  # And the reserved zxids.
    assert nodes.count == 3


def test_an_error_in_a_block_undoes_the_block(nodes):
    with pytest.raises(ZeroDivisionError), nodes.together():
        make(nodes, "/a")
        raise ZeroDivisionError
    assert nodes.find("/a") is None


def test_a_full_disk_is_a_broker_error_and_undoes_the_block(nodes, journal):
    nodes.next_zxid()
    journal.full = True
    with pytest.raises(errors.StorageFull), nodes.together():
        make(nodes, "/a")
    assert nodes.find("/a") is None


def test_a_node_and_all_nodes_have_limits(nodes):
    size = module.NODE_BYTES_MAX
    with pytest.raises(errors.LimitExceeded), nodes.together():
        make(nodes, "/a", bytes(size + 1))
    rooms = module.NODES_BYTES_MAX // size
    data = bytes(size)
    with nodes.together():
        for number in range(rooms - 1):
            make(nodes, f"/{number}", data)
    with pytest.raises(errors.LimitExceeded), nodes.together():
        make(nodes, "/last", data)
    with nodes.together():
        nodes.apply(NodeSet("/0", b"", nodes.next_zxid(), 1))
        make(nodes, "/last", data)


def test_sessions_have_a_limit_and_may_change_at_the_limit(journal):
    nodes = Nodes(lambda: journal, report=lambda error: None, sessions_max=1)
    nodes.open()
    nodes.begin_session(SessionMade(1, b"", 4000))
    with pytest.raises(errors.LimitExceeded):
        nodes.begin_session(SessionMade(2, b"", 4000))
    nodes.begin_session(SessionMade(1, b"", 8000))
    assert nodes.sessions[1].timeout_ms == 8000


def test_closed_nodes_belong_to_another_broker_until_they_are_read_again(nodes, journal):
    with nodes.together():
        make(nodes, "/a")
    tenure = nodes.tenure
    nodes.close()
    assert not nodes.is_open
    for use in (lambda: nodes.zxid, nodes.next_zxid, lambda: nodes.find("/a")):
        with pytest.raises(errors.NotOwner):
            use()
    nodes.open()
    assert nodes.find("/a") is not None
    assert nodes.tenure not in (tenure, tenure + 1)
