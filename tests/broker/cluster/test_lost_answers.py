"""Changes by another broker with lost answers: no change is made twice."""

from types import SimpleNamespace

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.access.rights import ANONYMOUS
from braidlog.broker.cluster.cluster_peers import PeerTimes
from braidlog.broker.cluster.peers import Asker
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.cut_links import lossy


def parts(name):
    return [name.tenant, name.namespace, name.topic]


async def test_an_unanswered_change_is_not_repeated(tmp_path):
    async with lossy(tmp_path) as (asker, owner, cutter, _):
        home = asker.parts.peers
        name = TopicName("public", "default", "orders")
        cutter.answers_to_lose = 1
        with pytest.raises(errors.Unanswered):
            await home.change(Asker(ANONYMOUS, "test"), "create", 0, parts(name), 1, None, {}, None)
        assert owner.broker.topics.find(name) is not None
        with pytest.raises(errors.TopicExists):
            await home.change(Asker(ANONYMOUS, "test"), "create", 0, parts(name), 1, None, {}, None)


async def test_an_unsent_change_is_made_at_the_next_attempt(tmp_path):
    async with lossy(tmp_path) as (asker, _owner, _, _names):
        home = asker.parts.peers
        name = TopicName("public", "default", "orders")
        await home.stored_sizes()
        ((_, idle),) = home._idle.items()
        await idle[0].send_all(b"")
        idle[0].socket.shutdown(2)  # The other side has closed the connection meanwhile.
        await home.change(Asker(ANONYMOUS, "test"), "create", 0, parts(name), 1, None, {}, None)
        assert asker.broker.topics.find(name) is not None


async def test_an_unanswered_question_may_be_repeated(tmp_path):
    async with lossy(tmp_path) as (asker, owner, cutter, names):
        theirs = next(name for name in names if owner.broker.placement.is_here(name))
        cutter.answers_to_lose = 1
        place = theirs.full, 0
        results = await asker.parts.peers.committed(
            Asker(ANONYMOUS, "test"), b"g", [(owner.number, place)], trio.current_time() + 10.0
        )
        assert isinstance(results[place], errors.NotOwner)
        cutter.answers_to_lose = 1
        await asker.parts.peers.follow()
        assert cutter.lost == 2


async def test_an_unanswered_commit_may_have_been_made(tmp_path):
    async with lossy(tmp_path) as (asker, owner, cutter, names):
        theirs = next(name for name in names if owner.broker.placement.is_here(name))
        cutter.answers_to_lose = 1
        commit = (theirs.full, 0, 7, b"", 1)
        (error,) = await asker.parts.peers.commit(
            Asker(ANONYMOUS, "test"), b"g", [(owner.number, commit)]
        )
        assert isinstance(error, errors.Unanswered)
        topic = owner.broker.topics.get(theirs)
        assert owner.broker.subscriptions.get(topic, b"g").position(0) == 7


ORDERS = TopicName("acme", "shop", "orders")
MADE = TopicName("acme", "shop", "made")
ONE = ("acme", "shop")


class Changes:
    """Changes that a broker requests from another broker, and the catalogue's state of each."""

    def __init__(self, broker):
        self.topics, self.namespaces = broker.topics, broker.namespaces

    def count(self):
        return len(self.topics.get(ORDERS).partitions)

    def settings(self):
        return self.topics.get(ORDERS).settings

    def roles(self):
        return [*self.namespaces.admin_roles("acme")]

    def number(self):
        return self.namespaces.get(*ONE).iggy_id

    def changes(self):
        """Return for each change: a function that makes the change, and a check that it is made."""
        topics, namespaces = self.topics, self.namespaces
        return {
            "create": (lambda: topics.create(MADE, 2), lambda: topics.find(MADE) is not None),
            "add": (lambda: topics.add_partitions(ORDERS, 9, seen=8), lambda: self.count() == 9),
            "keep": (lambda: topics.keep_partitions(ORDERS, 7, seen=8), lambda: self.count() == 7),
            "alter": (
                lambda: topics.alter_settings(ORDERS, {"retention_ms": 5}),
                lambda: self.settings().get("retention_ms") == 5,
            ),
            "alter namespace": (
                lambda: topics.alter_namespace(*ONE, {"retention_ms": 6}),
                lambda: self.settings().get("retention_ms") == 6,
            ),
            "terminate": (
                lambda: topics.terminate(ORDERS),
                lambda: topics.get(ORDERS).is_terminated,
            ),
            "delete": (lambda: topics.delete(ORDERS), lambda: topics.find(ORDERS) is None),
            "create namespace": (
                lambda: namespaces.create("acme", "made"),
                lambda: namespaces.find("acme", "made") is not None,
            ),
            "renumber": (lambda: namespaces.renumber(*ONE, 77), lambda: self.number() == 77),
            "delete namespace": (
                lambda: namespaces.delete("acme", "empty"),
                lambda: namespaces.find("acme", "empty") is None,
            ),
            "create tenant": (
                lambda: namespaces.create_tenant("made", ["boss"]),
                lambda: namespaces.has_tenant("made"),
            ),
            "alter tenant": (
                lambda: namespaces.alter_tenant("acme", ["boss"]),
                lambda: self.roles() == ["boss"],
            ),
            "delete tenant": (
                lambda: namespaces.delete_tenant("idle"),
                lambda: not namespaces.has_tenant("idle"),
            ),
            "create cluster": (
                lambda: namespaces.clusters.create("made", {"url": "u"}),
                lambda: namespaces.clusters.find("made") == {"url": "u"},
            ),
            "alter cluster": (
                lambda: namespaces.clusters.alter("idle", {"url": "u"}),
                lambda: namespaces.clusters.find("idle") == {"url": "u"},
            ),
            "delete cluster": (
                lambda: namespaces.clusters.delete("idle"),
                lambda: namespaces.clusters.find("idle") is None,
            ),
        }


NO_NAMESPACES = SimpleNamespace(clusters=None)
NAMES = list(Changes(SimpleNamespace(topics=None, namespaces=NO_NAMESPACES)).changes())


async def prepared(asker):
    """Create the objects of the changes."""
    await asker.broker.namespaces.create(*ONE)
    await asker.broker.namespaces.create("acme", "empty")
    await asker.broker.namespaces.create_tenant("idle", [])
    await asker.broker.namespaces.clusters.create("idle", {})
    await asker.broker.topics.create(ORDERS, 8)


@pytest.mark.parametrize("name", NAMES)
async def test_a_change_with_a_lost_answer_is_made_once_and_reported_as_made(tmp_path, name):
    async with lossy(tmp_path) as (asker, owner, cutter, _):
        await prepared(asker)
        change, is_made = Changes(asker.broker).changes()[name]
        assert not is_made()
        cutter.answers_to_lose, place = 1, owner.parts.shared_catalogue.place
        await change()
        assert cutter.lost == 1 and is_made()
        assert owner.parts.shared_catalogue.place == place + 1


@pytest.mark.parametrize("name", NAMES)
async def test_a_change_by_a_silent_owner_is_reported_as_unknown(tmp_path, name):
    async with lossy(tmp_path, PeerTimes(find_s=0.0)) as (asker, owner, cutter, _):
        await prepared(asker)
        change, _ = Changes(asker.broker).changes()[name]
        _, is_made = Changes(owner.broker).changes()[name]
        cutter.answers_to_lose, place = 1_000_000, owner.parts.shared_catalogue.place
        with pytest.raises(errors.Unanswered):
            await change()
        assert is_made() and owner.parts.shared_catalogue.place == place + 1


async def test_a_late_request_does_not_affect_a_changed_topic(tmp_path):
    async with lossy(tmp_path) as (asker, owner, _, _names):
        await prepared(asker)
        based_on = asker.parts.shared_catalogue.place
        await owner.broker.topics.delete(ORDERS)
        await owner.broker.topics.create(ORDERS, 8)
        await owner.broker.topics.alter_namespace(*ONE, {"retention_ms": 5})
        late = [
            ("delete", parts(ORDERS), False),
            ("keep_partitions", parts(ORDERS), 7),
            ("alter_namespace", *ONE, {"retention_ms": 7}),
        ]
        for change, *arguments in late:
            with pytest.raises(errors.Conflict):
                await asker.parts.peers.change(
                    Asker(ANONYMOUS, "test"), change, based_on, *arguments
                )
        assert len(owner.broker.topics.get(ORDERS).partitions) == 8
        assert owner.broker.topics.get(ORDERS).settings["retention_ms"] == 5


async def test_late_requests_do_not_recreate_deleted_topics_or_namespaces(tmp_path):
    async with lossy(tmp_path) as (asker, owner, _, _names):
        await prepared(asker)
        based_on = asker.parts.shared_catalogue.place
        topics, namespaces = owner.broker.topics, owner.broker.namespaces
        await topics.create(MADE, 1)
        await topics.delete(MADE)
        await namespaces.create("made", "made")
        await namespaces.delete("made", "made")
        await namespaces.delete("acme", "empty")
        await namespaces.create("acme", "empty")
        await namespaces.create_tenant("made", [])
        await namespaces.delete_tenant("made")
        await namespaces.clusters.create("made", {})
        await namespaces.clusters.delete("made")
        await namespaces.clusters.alter("idle", {"url": "new"})
        late = [
            ("create", parts(MADE), 1, None, {}, None),
            ("create", ["acme", "empty", "late"], 1, None, {}, None),
            ("create_namespace", "made", "made", None),
            ("create_tenant", "made", []),
            ("create_cluster", "made", {}),
            ("alter_cluster", "idle", {"url": "old"}),
            ("delete_cluster", "idle"),
        ]
        for change, *arguments in late:
            with pytest.raises(errors.Conflict):
                await asker.parts.peers.change(
                    Asker(ANONYMOUS, "test"), change, based_on, *arguments
                )
        assert (await asker.broker.topics.create(MADE, 1)).partitions
        await asker.broker.namespaces.create("made", "made")


async def test_a_namespace_gets_no_settings_that_the_shared_store_cannot_have(tmp_path):
    async with lossy(tmp_path) as (asker, owner, _, _names):
        await prepared(asker)
        for broker in (asker.broker, owner.broker):
            with pytest.raises(errors.InvalidRequest, match="written"):
                await broker.topics.alter_namespace("acme", "empty", {"durability": "written"})
        assert owner.broker.namespaces.get("acme", "empty").settings == {}


async def test_a_change_of_users_is_followed_before_it_is_answered(tmp_path):
    async with lossy(tmp_path) as (asker, owner, _, _names):
        user, ticket = await owner.broker.users.create("anna", None)
        await owner.broker.published(ticket)
        assert asker.broker.users.find("anna") is not None
        await owner.broker.published(await owner.broker.users.delete(user))
        assert asker.broker.users.find("anna") is None


async def test_a_broker_that_is_behind_catches_up_and_asks_again(tmp_path):
    async with lossy(tmp_path) as (asker, owner, _, _names):
        await prepared(asker)
        topics, places = asker.broker.topics, iter([0])
        topics._changes._place = lambda: next(places, asker.parts.shared_catalogue.place)
        await topics.keep_partitions(ORDERS, 7, seen=8)
        assert len(owner.broker.topics.get(ORDERS).partitions) == 7
        assert next(places, None) is None


async def test_a_partition_count_changed_by_another_client_is_a_conflict(tmp_path):
    async with lossy(tmp_path) as (asker, owner, _, _names):
        await prepared(asker)
        for node in (asker, owner):
            for resize in (node.broker.topics.keep_partitions, node.broker.topics.add_partitions):
                with pytest.raises(errors.Conflict):
                    await resize(ORDERS, 6, seen=7)
        assert len(owner.broker.topics.get(ORDERS).partitions) == 8
