"""Names and modes of access, every pair of them."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from broker.errors import ProducerBusy, ProducerFenced
from protocols.pulsar.registry import AccessMode, Producer, ProducerRegistry

SHARED, EXCLUSIVE, WAIT, FENCING = AccessMode


class Owner:
    """A connection that answers or does not."""

    def __init__(self, *, is_deaf=False):
        self.is_deaf = is_deaf
        self.heard = []

    async def is_alive(self):
        return not self.is_deaf

    def end(self, reason):
        self.heard.append("ended")

    def granted(self, producer):
        self.heard.append(f"granted {producer.name}")

    def fenced(self, producer):
        self.heard.append(f"fenced {producer.name}")


class Door:
    """The part of the door that a registry asks: where epochs are kept."""

    def __init__(self, partitions=1, topic_epoch=0):
        self.meta = SimpleNamespace(topic_id=1, topic_epoch=topic_epoch)
        topic = SimpleNamespace(meta=self.meta, name="t", partitions=[None] * partitions)
        self.partition = SimpleNamespace(partition_id=7, topic=topic)
        self.broker = SimpleNamespace(catalogue=self)
        self.registry = ProducerRegistry(self)

    def bump_topic_epoch(self, topic_id):
        self.meta.topic_epoch += 1

    @contextmanager
    def changing(self):
        yield

    def admit(self, name, mode=SHARED, *, owner=None, epoch=None):
        producer = Producer(owner or Owner(), self.partition, 0, name, 0, mode, 1)
        self.registry.admit(producer, epoch)
        return producer


def test_a_name_is_used_once():
    door = Door()
    first = door.admit("p")
    with pytest.raises(ProducerBusy):
        door.admit("p")
    door.registry.remove(first)
    door.admit("p")
    assert door.registry.count(door.partition) == 1


async def test_live_holder_keeps_its_name():
    door = Door()
    door.admit("p")
    newcomer = Producer(Owner(), door.partition, 0, "p", 0, SHARED, 1)
    with pytest.raises(ProducerBusy):
        await door.registry.probe(newcomer)


async def test_deaf_holder_makes_way():
    door = Door()
    deaf = door.admit("p", owner=Owner(is_deaf=True))
    newcomer = Producer(Owner(), door.partition, 0, "p", 0, SHARED, 1)
    await door.registry.probe(newcomer)
    assert deaf.owner.heard == ["ended"]
    door.registry.admit(newcomer, None)


# Who is there, who comes, what happens.

TABLE = [
    (None, SHARED, "ok"),
    (None, EXCLUSIVE, "ok"),
    (None, WAIT, "ok"),
    (None, FENCING, "ok"),
    (SHARED, SHARED, "ok"),
    (SHARED, EXCLUSIVE, ProducerFenced),
    (SHARED, WAIT, "waits"),
    (SHARED, FENCING, "fences"),
    (EXCLUSIVE, SHARED, ProducerBusy),
    (EXCLUSIVE, EXCLUSIVE, ProducerFenced),
    (EXCLUSIVE, WAIT, "waits"),
    (EXCLUSIVE, FENCING, "fences"),
]


@pytest.mark.parametrize(("there", "comes", "outcome"), TABLE)
def test_modes(there, comes, outcome):
    door = Door()
    old = door.admit("old", there) if there is not None else None
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            door.admit("new", comes)
        assert door.registry.count(door.partition) == 1
        return
    new = door.admit("new", comes)
    assert new.is_ready == (outcome != "waits")
    assert (new.topic_epoch is not None) == (comes is not SHARED and new.is_ready)
    if old is not None:
        assert old.owner.heard == (["fenced old"] if outcome == "fences" else [])


def test_shared_producer_is_busy_also_while_somebody_waits():
    door = Door()
    first = door.admit("first", EXCLUSIVE)
    door.admit("second", WAIT)
    door.registry.remove(first)
    with pytest.raises(ProducerBusy):
        door.admit("third")


def test_waiting_producers_take_their_turns_in_order():
    door = Door()
    producers = [door.admit("a", EXCLUSIVE), door.admit("b", WAIT), door.admit("c", WAIT)]
    door.registry.remove(producers[0])
    assert producers[1].owner.heard == ["granted b"]
    assert (producers[1].is_ready, producers[1].topic_epoch) == (True, 1)
    assert not producers[2].is_ready
    door.registry.remove(producers[1])
    assert producers[2].owner.heard == ["granted c"]
    assert producers[2].topic_epoch == 2


def test_turn_comes_when_the_last_shared_producer_has_left():
    door = Door()
    shared = [door.admit("a"), door.admit("b")]
    waiting = door.admit("w", WAIT)
    door.registry.remove(shared[0])
    assert not waiting.is_ready
    door.registry.remove(shared[1])
    assert waiting.is_ready


def test_waiter_that_leaves_is_passed_over():
    door = Door()
    first, second = door.admit("a", EXCLUSIVE), door.admit("b", WAIT)
    door.registry.remove(second)
    door.registry.remove(first)
    assert second.owner.heard == []
    assert door.registry.count(door.partition) == 0


def test_fencing_shuts_out_waiters_too():
    door = Door()
    first, second = door.admit("a", EXCLUSIVE), door.admit("b", WAIT)
    door.admit("c", FENCING)
    assert (first.owner.heard, second.owner.heard) == (["fenced a"], ["fenced b"])
    assert door.registry.count(door.partition) == 1


# Epochs.


def test_epochs_begin_at_0_and_grow_with_each_exclusive_producer():
    door = Door()
    for epoch in range(3):
        producer = door.admit("p", EXCLUSIVE)
        assert producer.topic_epoch == epoch
        door.registry.remove(producer)


def test_returning_producer_keeps_its_epoch_and_an_older_one_is_fenced():
    door = Door()
    old = door.admit("old", EXCLUSIVE)
    door.admit("new", FENCING)
    with pytest.raises(ProducerFenced):
        door.admit("old", EXCLUSIVE, epoch=old.topic_epoch)
    assert Door(topic_epoch=2).admit("new", EXCLUSIVE, epoch=1).topic_epoch == 1


def test_older_producer_is_fenced_after_a_restart_too():
    with pytest.raises(ProducerFenced):
        Door(topic_epoch=2).admit("old", EXCLUSIVE, epoch=0)


def test_partitions_of_one_topic_do_not_fence_each_other():
    """Their epochs come from one counter: a lower one is no older producer of this partition."""
    door = Door(partitions=3, topic_epoch=3)
    assert door.admit("p", EXCLUSIVE, epoch=0).topic_epoch == 0
