"""Changes that another broker makes, and whose answers are lost: none is made twice."""

from contextlib import asynccontextmanager

import pytest

from broker import errors
from broker.access.rights import ANONYMOUS
from broker.cluster.siblings import Asker
from storage.metadata.names import TopicName
from tests.broker.cluster.cut_links import cut_links
from tests.broker.cluster.nodes import two_brokers
from tests.storage.shared.shared_dirs import SharedStore


@asynccontextmanager
async def lossy(tmp_path):
    """The broker that asks, the catalogue's owner, and what cuts the link from one to the other."""
    async with two_brokers(SharedStore(tmp_path)) as (nodes, names):
        asker, owner = sorted(nodes, key=lambda node: node.broker.catalogue.is_owned)
        async with cut_links(asker, owner) as cutter:
            yield asker, owner, cutter, names


def parts(name):
    return [name.tenant, name.namespace, name.topic]


async def test_a_change_without_an_answer_is_not_made_again(tmp_path):
    async with lossy(tmp_path) as (asker, owner, cutter, _):
        home = asker.broker.home
        name = TopicName("public", "default", "orders")
        cutter.answers_to_lose = 1
        with pytest.raises(errors.Unanswered):
            await home.change(Asker(ANONYMOUS, "test"), "create", parts(name), 1, None, {}, None)
        assert owner.broker.topics.find(name) is not None
        with pytest.raises(errors.TopicExists):
            await home.change(Asker(ANONYMOUS, "test"), "create", parts(name), 1, None, {}, None)


async def test_a_change_that_was_not_sent_is_made_at_the_next_try(tmp_path):
    async with lossy(tmp_path) as (asker, _owner, _, _names):
        home = asker.broker.home
        name = TopicName("public", "default", "orders")
        await home.kept()
        ((_, idle),) = home._idle.items()
        await idle[0].send_all(b"")
        idle[0].socket.shutdown(2)  # The other side has ended it meanwhile.
        await home.change(Asker(ANONYMOUS, "test"), "create", parts(name), 1, None, {}, None)
        assert asker.broker.topics.find(name) is not None


async def test_a_question_without_an_answer_may_be_asked_again(tmp_path):
    async with lossy(tmp_path) as (asker, owner, cutter, names):
        theirs = next(name for name in names if owner.broker.placement.is_here(name))
        cutter.answers_to_lose = 1
        with pytest.raises(errors.NotOwner):
            await asker.broker.home.committed(
                owner.number, Asker(ANONYMOUS, "test"), b"g", [(theirs.full, 0)]
            )
        cutter.answers_to_lose = 1
        await asker.broker.home.follow()
        assert cutter.lost == 2


async def test_a_commit_without_an_answer_may_have_been_made(tmp_path):
    async with lossy(tmp_path) as (asker, owner, cutter, names):
        theirs = next(name for name in names if owner.broker.placement.is_here(name))
        cutter.answers_to_lose = 1
        with pytest.raises(errors.Unanswered):
            await asker.broker.home.commit(
                owner.number, Asker(ANONYMOUS, "test"), b"g", [(theirs.full, 0, 7, b"", 1)]
            )
        topic = owner.broker.topics.get(theirs)
        assert owner.broker.subscriptions.get(topic, b"g").position(0) == 7
