"""Answers about groups to the catalogue's owner: rights, and topics that are moving."""

import pytest

from braidlog.broker import errors
from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import ANONYMOUS, Action
from braidlog.broker.cluster.peers import Asker
from braidlog.broker.positions.members import SubscriptionMember
from tests.broker.access.rules import Nothing
from tests.broker.cluster.nodes import two_brokers
from tests.storage.shared.shared_dirs import SharedStore

ASKER = Asker(ANONYMOUS, "test")
NAMESPACE = ("public", "default")


async def test_groups_and_positions_are_returned_and_moved_by_the_owner_of_a_topic(tmp_path):
    async with two_brokers(SharedStore(tmp_path)) as ((first, second), (ours, theirs)):
        peers, node, place = first.parts.peers, second.number, (theirs.full, 0)
        commit = (theirs.full, 0, 5, b"", 1, -1)
        assert await peers.topic_positions(node, b"g", theirs) is None
        assert await peers.commit_forward(node, ASKER, b"g", commit)
        assert not await peers.commit_forward(node, ASKER, b"g", (theirs.full, 0, 4, b"", 1, -1))
        assert await peers.topic_positions(node, b"g", theirs) == {0: 5}
        assert await peers.groups(NAMESPACE, {node: 1}) == {theirs.full: [b"g"]}
        assert await peers.group_positions(b"g", NAMESPACE, {node: 1}) == {theirs.full: {0: 5}}
        for ask in (peers.groups(NAMESPACE, {node: 2}), peers.topic_positions(node, b"g", ours)):
            with pytest.raises(errors.NotOwner):
                await ask
        assert await peers.standing(node, ASKER, b"q", place) is None
        await peers.seek(node, ASKER, b"q", place, 7)
        await peers.seek(node, ASKER, b"q", place, 0)
        assert await peers.standing(node, ASKER, b"q", place) == (0, 0)
        # Each change needs its right at the owner too.
        rules = Nothing()
        second.broker.access = Access(rules)
        for call in (
            peers.commit_forward(node, ASKER, b"g", commit),
            peers.end_position(node, ASKER, b"g", place, "zookeeper"),
            peers.seek(node, ASKER, b"q", place, 1),
            peers.standing(node, ASKER, b"q", place),
        ):
            with pytest.raises(errors.NotAuthorized):
                await call
        assert rules.actions == {Action.CONSUME, Action.DELETE, Action.DESCRIBE}
        second.broker.access = Access(Nothing(Action.CONSUME, Action.DELETE))
        reader = SubscriptionMember("pulsar", "p", "", (0,))
        source = lambda topic, name: [reader]  # noqa: E731
        second.broker.members.add_source(source, "pulsar")
        with pytest.raises(errors.SubscriptionBusy):
            await peers.end_position(node, ASKER, b"g", place, "zookeeper")
        second.broker.members.remove_source(source)
        await peers.end_position(node, ASKER, b"g", place, "zookeeper")
        with pytest.raises(errors.SubscriptionNotFound):
            await peers.end_position(node, ASKER, b"g", place, "zookeeper")
