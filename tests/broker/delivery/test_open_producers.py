"""Producer names and access modes, every pair of modes."""

from types import SimpleNamespace

import pytest

from braidlog.broker.delivery.open_producers import AccessMode, Producer, ProducerRegistry
from braidlog.broker.errors import ProducerBusy, ProducerFenced
from braidlog.broker.topics.client_limits import ClientLimits

SHARED, EXCLUSIVE, WAIT, FENCING = AccessMode


class ProbedOwner:
    """A connection that answers probes or is deaf."""

    peer = "10.0.0.1:5000"
    version_text = "Pulsar-CPP-v4.2.0"

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


class EpochStore:
    """The part of a listener that a registry uses: the store of epochs."""

    def __init__(self, partitions=1, topic_epoch=0):
        self.meta = SimpleNamespace(topic_id=1, topic_epoch=topic_epoch)
        self.topic = SimpleNamespace(
            client_limits=ClientLimits(), meta=self.meta, name="t", partitions=[None] * partitions
        )
        self.partition = SimpleNamespace(partition_id=7)
        self.registry = ProducerRegistry(self.raise_epoch)

    def raise_epoch(self, topic):
        topic.meta.topic_epoch += 1

    def admit(self, name, mode=SHARED, *, owner=None, epoch=None):
        producer = Producer(
            owner or ProbedOwner(), self.topic, self.partition, 0, name, 0, mode, 1, 0, {}
        )
        self.registry.admit(producer, epoch)
        return producer


def test_a_name_is_used_once():
    listener = EpochStore()
    first = listener.admit("p")
    with pytest.raises(ProducerBusy):
        listener.admit("p")
    listener.registry.remove(first)
    listener.admit("p")
    assert listener.registry.count(listener.partition) == 1


def test_tools_see_the_producers_of_a_partition():
    listener = EpochStore()
    listener.admit("p", EXCLUSIVE)
    listener.admit("q", WAIT)
    first, second = listener.registry.shown(7)
    assert (first.name, first.access_mode, first.is_waiting) == ("p", "Exclusive", False)
    assert (second.name, second.access_mode, second.is_waiting) == ("q", "WaitForExclusive", True)
    assert (first.address, first.client_version) == (ProbedOwner.peer, ProbedOwner.version_text)
    assert list(listener.registry.shown(8)) == []


async def test_non_persistent_holder_keeps_its_name():
    listener = EpochStore()
    listener.admit("p")
    newcomer = Producer(
        ProbedOwner(), listener.topic, listener.partition, 0, "p", 0, SHARED, 1, 0, {}
    )
    with pytest.raises(ProducerBusy):
        await listener.registry.probe(newcomer)


async def test_a_deaf_holder_is_replaced():
    listener = EpochStore()
    deaf = listener.admit("p", owner=ProbedOwner(is_deaf=True))
    newcomer = Producer(
        ProbedOwner(), listener.topic, listener.partition, 0, "p", 0, SHARED, 1, 0, {}
    )
    await listener.registry.probe(newcomer)
    assert deaf.owner.heard == ["ended"]
    listener.registry.admit(newcomer, None)


# Present producers, new producer, result.

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


@pytest.mark.parametrize(("present", "comes", "outcome"), TABLE)
def test_modes(present, comes, outcome):
    listener = EpochStore()
    old = listener.admit("old", present) if present is not None else None
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            listener.admit("new", comes)
        assert listener.registry.count(listener.partition) == 1
        return
    new = listener.admit("new", comes)
    assert new.is_ready == (outcome != "waits")
    assert (new.topic_epoch is not None) == (comes is not SHARED and new.is_ready)
    if old is not None:
        assert old.owner.heard == (["fenced old"] if outcome == "fences" else [])


def test_a_shared_producer_is_refused_while_a_producer_waits():
    listener = EpochStore()
    first = listener.admit("first", EXCLUSIVE)
    listener.admit("second", WAIT)
    listener.registry.remove(first)
    with pytest.raises(ProducerBusy):
        listener.admit("third")


def test_waiting_producers_take_their_turns_in_order():
    listener = EpochStore()
    producers = [
        listener.admit("a", EXCLUSIVE),
        listener.admit("b", WAIT),
        listener.admit("c", WAIT),
    ]
    listener.registry.remove(producers[0])
    assert producers[1].owner.heard == ["granted b"]
    assert (producers[1].is_ready, producers[1].topic_epoch) == (True, 1)
    assert not producers[2].is_ready
    listener.registry.remove(producers[1])
    assert producers[2].owner.heard == ["granted c"]
    assert producers[2].topic_epoch == 2


def test_turn_comes_when_the_last_shared_producer_has_left():
    listener = EpochStore()
    shared = [listener.admit("a"), listener.admit("b")]
    waiting = listener.admit("w", WAIT)
    listener.registry.remove(shared[0])
    assert not waiting.is_ready
    listener.registry.remove(shared[1])
    assert waiting.is_ready


def test_a_waiting_producer_that_leaves_is_skipped():
    listener = EpochStore()
    first, second = listener.admit("a", EXCLUSIVE), listener.admit("b", WAIT)
    listener.registry.remove(second)
    listener.registry.remove(first)
    assert second.owner.heard == []
    assert listener.registry.count(listener.partition) == 0


def test_fencing_excludes_waiting_producers_too():
    listener = EpochStore()
    first, second = listener.admit("a", EXCLUSIVE), listener.admit("b", WAIT)
    listener.admit("c", FENCING)
    assert (first.owner.heard, second.owner.heard) == (["fenced a"], ["fenced b"])
    assert listener.registry.count(listener.partition) == 1


# Epochs.


def test_epochs_begin_at_0_and_grow_with_each_exclusive_producer():
    listener = EpochStore()
    for epoch in range(3):
        producer = listener.admit("p", EXCLUSIVE)
        assert producer.topic_epoch == epoch
        listener.registry.remove(producer)


def test_returning_producer_keeps_its_epoch_and_an_older_one_is_fenced():
    listener = EpochStore()
    old = listener.admit("old", EXCLUSIVE)
    listener.admit("new", FENCING)
    with pytest.raises(ProducerFenced):
        listener.admit("old", EXCLUSIVE, epoch=old.topic_epoch)
    assert EpochStore(topic_epoch=2).admit("new", EXCLUSIVE, epoch=1).topic_epoch == 1


def test_older_producer_is_fenced_after_a_restart_too():
    with pytest.raises(ProducerFenced):
        EpochStore(topic_epoch=2).admit("old", EXCLUSIVE, epoch=0)


def test_partitions_of_a_topic_do_not_fence_each_other():
    """Their epochs come from a shared counter: a lower epoch is no older producer of this
    partition.
    """
    listener = EpochStore(partitions=3, topic_epoch=3)
    assert listener.admit("p", EXCLUSIVE, epoch=0).topic_epoch == 0
