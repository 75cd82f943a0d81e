"""ZooKeeper's tree against a model: the model's own rules, and a short run."""

import pytest

from conformance.clients.raw import zookeeper as zk
from conformance.server import RunningBroker
from conformance.tree.__main__ import LISTEN, run
from conformance.tree.machine import SETTINGS, TreeMachine, TreesDiffer
from conformance.tree.model import (
    ABSENT,
    CHILDREN,
    DATA,
    UNKNOWN,
    ChangeRefused,
    ModelNode,
    ModelTree,
    Operation,
)


def tree():
    return ModelTree("/r", {"/r": ModelNode(None, 1, 1, 1)}, zxid=1)


def create(path, flags=0):
    return Operation(zk.CREATE, path, b"x", flags=flags)


def test_the_model_numbers_nodes_as_zookeeper_does():
    model = tree()
    assert model.change(7, create("/r/a", zk.EPHEMERAL), 2)[0] == "/r/a"
    assert model.change(7, create("/r/n-", zk.SEQUENTIAL), 3)[0] == "/r/n-0000000001"
    with pytest.raises(ChangeRefused, match="-108"):
        model.change(7, create("/r/a/b"), 4)
    model.change(7, Operation(zk.SET_DATA, "/r/a", b"yy", 0), 5)
    assert model.stat("/r/a") == (2, 5, 1, 0, 0, 7, 2, 0, 2)
    assert model.stat("/r") == (1, 1, 0, 2, 0, 0, 0, 2, 3)
    model.end_session(7, 6)
    assert model.stat("/r") == (1, 1, 0, 3, 0, 0, 0, 1, 6)


def test_a_transaction_of_the_model_is_whole_or_nothing():
    model = tree()
    parts = [create("/r/a"), Operation(zk.DELETE, "/r/none"), create("/r/b")]
    assert model.change(7, Operation(zk.MULTI, parts=parts), 2)[0] == [0, zk.NO_NODE, -2]
    assert list(model.nodes) == ["/r"]


def test_watches_of_the_model_fire_once_and_after_a_cut():
    model = tree()
    model.watch(7, ABSENT, "/r/a")
    model.watch(7, CHILDREN, "/r")
    assert model.change(8, create("/r/a"), 2)[1] == {7: [(zk.CREATED, "/r/a"), (zk.CHILD, "/r")]}
    assert model.change(8, create("/r/b"), 3)[1] == {}
    model.watch(7, DATA, "/r/a")
    model.watch(7, CHILDREN, "/r")
    model.watch(7, DATA, "/r/none")
    assert model.set_again(7, zxid_seen=2) == [(zk.DELETED, "/r/none"), (zk.CHILD, "/r")]
    assert model.watches[7] == {(DATA, "/r/a")}


def test_the_model_recognises_an_unanswered_change():
    before = tree()
    after = before.copy()
    after.change(7, create("/r/a"), UNKNOWN)
    seen = before.copy()
    seen.change(7, create("/r/a"), 5)
    assert after.matches(seen)
    assert not before.matches(seen)
    after.adopt(seen)
    assert (after.stat("/r/a"), after.zxid) == (seen.stat("/r/a"), 5)
    late = before.copy()
    late.change(7, create("/r/a"), 1)
    assert not before.copy().matches(late), "a zxid that is not newer"


@pytest.mark.slow
def test_a_short_run_finds_no_difference_and_a_wrong_model_finds_one():
    with RunningBroker(listen=LISTEN, others=False, settings=SETTINGS) as broker:
        counts = run(broker, 1, 60, 1)
        assert counts["kill"] == 1
        assert counts.total() == 61
        machine = TreeMachine(broker, 2)
        machine.tree.nodes[machine.tree.root].created += 1
        with pytest.raises(TreesDiffer):
            for _ in range(100):
                machine.step()
        for client in machine._clients:
            client.disconnect()
