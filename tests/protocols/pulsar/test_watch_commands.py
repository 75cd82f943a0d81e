"""WATCH_TOPIC_LIST: updates for a consumer by pattern, and the cost limits of a pattern."""

import pytest
import trio

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.pulsar import watchers
from braidlog.protocols.pulsar.listener_state import SharedState
from braidlog.protocols.pulsar.machine import Type
from braidlog.protocols.pulsar.topic_lists import TopicList, topics_hash
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing
from tests.broker.cluster.nodes import SteppedBroker, balanced, topic_of
from tests.broker.cluster.test_membership import stepping_on
from tests.protocols.pulsar.talk import RawPulsar
from tests.storage.shared.shared_dirs import SharedStore

pytest.importorskip("re2", reason="google-re2 is not installed: clients poll")

ALL = "persistent://public/default/.*"


def named(topic):
    return TopicName("public", "default", topic)


def full(*topics):
    return [f"persistent://public/default/{topic}" for topic in topics]


async def watch(client, pattern=ALL, watcher_id=1, **fields):
    fields = {"namespace": "public/default", "topics_pattern": pattern, **fields}
    return await client.ask(
        Type.WATCH_TOPIC_LIST, Type.WATCH_TOPIC_LIST_SUCCESS, watcher_id=watcher_id, **fields
    )


async def refused(client, pattern, **fields):
    fields = {"namespace": "public/default", "topics_pattern": pattern, "watcher_id": 7, **fields}
    return await client.refused(Type.WATCH_TOPIC_LIST, **fields)


async def update(client):
    """Return (new names, removed names, hash) of the next update."""
    change = await client.next(Type.WATCH_TOPIC_UPDATE)
    return list(change.new_topics), list(change.deleted_topics), change.topics_hash


async def test_a_watcher_is_notified_of_every_matching_topic(broker, client):
    await broker.topics.create(named("a1"), 1)
    await broker.topics.create(named("b1"), 1)
    answer = await watch(client, "persistent://public/default/a.*")
    assert list(answer.topic) == full("a1")
    assert (answer.watcher_id, answer.topics_hash) == (1, topics_hash(full("a1")))
    await broker.topics.create(named("b2"), 1)
    await broker.topics.create(named("a2"), 1)
    assert await update(client) == (full("a2"), [], topics_hash(full("a1", "a2")))
    await broker.topics.delete(named("a1"))
    assert await update(client) == ([], full("a1"), topics_hash(full("a2")))


async def test_partitions_are_listed_individually(broker, client):
    await watch(client)
    await broker.topics.create(named("p"), 2)
    assert (await update(client))[0] == full("p-partition-0", "p-partition-1")
    await broker.topics.add_partitions(named("p"), 4)
    assert (await update(client))[0] == full("p-partition-2", "p-partition-3")
    await broker.topics.keep_partitions(named("p"), 1)
    come, gone, digest = await update(client)
    assert (come, gone) == ([], full(*(f"p-partition-{number}" for number in (1, 2, 3))))
    assert digest == topics_hash(full("p-partition-0"))


async def test_a_growing_unpartitioned_topic_is_replaced_by_its_partitions(broker, client):
    await broker.topics.create(named("u"), 1)
    await broker.topics.create(named("u-partition-x"), 1)  # An ordinary name.
    await watch(client)
    await broker.topics.add_partitions(named("u"), 2)
    come, gone, _ = await update(client)
    assert (come, gone) == (full("u-partition-0", "u-partition-1"), full("u"))


async def test_a_client_with_the_present_hash_gets_no_list(broker, client):
    await broker.topics.create(named("a"), 1)
    answer = await watch(client, topics_hash=topics_hash(full("a")))
    assert (list(answer.topic), answer.topics_hash) == ([], topics_hash(full("a")))
    again = await watch(client, topics_hash="00000000")  # The same watcher checks again.
    assert list(again.topic) == full("a")
    await broker.topics.create(named("b"), 1)
    assert (await update(client))[0] == full("b")
    await client.silent()  # Sent once.


async def test_non_persistent_system_and_foreign_topics_are_not_listed(broker, client):
    await broker.namespaces.create("public", "other")
    await watch(client)
    await client.produce("non-persistent://public/default/non_persistent")
    await broker.topics.create(named("__own"), 1)
    await broker.topics.create(TopicName("public", "other", "t"), 1)
    await broker.topics.create(named("seen"), 1)
    assert (await update(client))[0] == full("seen")


async def test_a_closed_watcher_gets_no_updates(broker, client):
    await watch(client)
    await client.ask(Type.WATCH_TOPIC_LIST_CLOSE, Type.SUCCESS, watcher_id=1)
    await broker.topics.create(named("a"), 1)
    await client.silent()
    await client.ask(Type.WATCH_TOPIC_LIST_CLOSE, Type.SUCCESS, watcher_id=99)


async def test_without_permission_a_watcher_gets_no_updates(broker, client):
    await watch(client)
    broker.access = Access(Nothing())
    await broker.topics.create(named("a"), 1)
    await client.silent()
    assert await refused(client, ALL) == (
        ServerError.AuthorizationError,
        (await refused(client, ALL))[1],
    )
    broker.access = Access(Nothing(Action.DESCRIBE))
    await broker.topics.create(named("b"), 1)
    come, _, digest = await update(client)
    assert (sorted(come), digest) == (full("a", "b"), topics_hash(full("a", "b")))


async def test_a_missing_namespace_has_no_topics(client):
    answer = await watch(client, "persistent://public/nowhere/.*", namespace="public/nowhere")
    assert (list(answer.topic), answer.topics_hash) == ([], "00000000")


async def test_an_invalid_namespace_ends_the_connection(client):
    await client.send(
        Type.WATCH_TOPIC_LIST,
        request_id=1,
        watcher_id=1,
        namespace="public",
        topics_pattern=".*",
    )
    await client.closed()


@pytest.mark.parametrize(
    "pattern",
    [
        "persistent://public/default/" + "a" * 50,  # Apache's limit is 50 characters.
        "(unclosed",
        "a(?=b)",  # Java's own engine would accept the pattern; the client polls instead.
        "((.{99}){99}){99}",
        r"\pL{500}",
        "topic://public/default/.*",
    ],
)
async def test_an_unsupported_pattern_is_refused_for_good(client, pattern):
    assert (await refused(client, pattern))[0] == ServerError.NotAllowedError
    await client.silent()


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("public/default/a", ["a"]),  # Whole, with the domain or without.
        ("persistent://public/default/[ab]", ["a", "b"]),
        (r"\Qpersistent://public/default/\Ea|.*b", ["a", "b"]),
        ("public/default/p", ["p-partition-0", "p-partition-1"]),
        (".*-partition-1", []),
        ("non-persistent://public/default/a", ["a"]),  # Only the name is compared.
        ("default/a", []),
        (".*é", ["é"]),
    ],
)
async def test_the_comparison_of_names(broker, client, pattern, topics):
    for name, partitions in (("a", 1), ("b", 1), ("é", 1), ("p", 2)):
        await broker.topics.create(named(name), partitions)
    assert list((await watch(client, pattern)).topic) == full(*topics)


@pytest.mark.pulsar_limits(watchers=2, all_watchers=3)
async def test_watchers_have_limits_per_connection_and_broker(client, other):
    for number in (1, 2, 2):
        await watch(client, watcher_id=number)
    assert (await refused(client, ALL))[0] == ServerError.NotAllowedError
    await watch(other)
    assert (await refused(other, ALL))[0] == ServerError.NotAllowedError


async def test_an_ended_connection_frees_its_watchers(broker, open_client, client):
    leaving = RawPulsar(await open_client("pulsar"))
    await leaving.connect()
    await watch(leaving)
    await watch(client)
    await leaving.stream.aclose()
    await broker.topics.create(named("a"), 1)
    assert (await update(client))[0] == full("a")
    await client.ask(Type.WATCH_TOPIC_LIST_CLOSE, Type.SUCCESS, watcher_id=1)


@pytest.mark.pulsar_limits(topic_list_bytes=100)
async def test_a_list_above_the_frame_limit_is_refused(broker, client):
    for number in range(3):
        await broker.topics.create(named(f"{number}" * 30), 1)
    assert (await refused(client, ALL))[0] == ServerError.NotAllowedError


@pytest.mark.pulsar_limits(updated_names=3)
async def test_many_changes_are_sent_in_several_updates(broker, client):
    await watch(client)
    await broker.topics.create(named("p"), 20)
    updates = [(await update(client))[0] for _ in range(7)]
    assert [len(names) for names in updates] == [3, 3, 3, 3, 3, 3, 2]
    assert len({name for names in updates for name in names}) == 20


@pytest.mark.pulsar_limits(changes_kept=0)
async def test_a_watcher_with_missed_changes_restarts(broker, client):
    await watch(client)
    await broker.topics.create(named("p"), 1)
    await client.closed()


@pytest.mark.pulsar_limits(changes_kept=2, changed_names_together=20)
async def test_a_topic_counts_as_a_single_change_with_any_partitions(broker, client):
    await watch(client)
    async with trio.open_nursery() as both:
        both.start_soon(broker.topics.create, named("p"), 30)
        both.start_soon(broker.topics.create, named("q"), 30)
    names = set()
    while len(names) < 60:
        names.update((await update(client))[0])
    wanted = [f"{name}-partition-{index}" for name in "pq" for index in range(30)]
    assert names == set(full(*wanted))


async def test_changes_are_handled_a_few_topics_at_a_time(broker):
    topics = TopicList(changes_kept=3)
    await topics.fill([])
    first = await broker.topics.create(named("first"), 3)
    for topic in (first, await broker.topics.create(named("second"), 2)):
        topics.follow(topic)
    first.deleted = True
    topics.follow(first)
    come = [(name, True) for name in full(*(f"first-partition-{index}" for index in range(3)))]
    then = [(name, True) for name in full(*(f"second-partition-{index}" for index in range(2)))]
    gone = [(name, False) for name, _ in come]
    assert topics.changes_since(0, 1) == (come, 1)
    assert topics.changes_since(0, 4) == (come + then, 2)
    assert topics.changes_since(1, 100) == (then + gone, 3)
    assert topics.changes_since(3, 100) == ([], 3)
    topics.follow(await broker.topics.create(named("third"), 1))
    assert topics.changes_since(0, 1) is None


def test_a_recreated_topic_is_sent_as_removed_and_new():
    changes = [("a", False), ("b", True), ("a", True), ("b", False), ("c", True)]
    come, gone = watchers.net_of(changes)
    assert (sorted(come), gone) == (["a", "c"], ["a"])


async def test_topics_changed_during_the_listing_are_right(broker):
    orders = await broker.topics.create(named("kept"), 1)
    gone = await broker.topics.create(named("gone"), 1)
    topics = TopicList()

    class Changing(list):
        """Topics of which a topic is removed and another added during the iteration."""

        def __iter__(self):
            yield orders
            yield gone
            gone.deleted = True
            topics.follow(gone)
            topics.follow(late)

    late = await broker.topics.create(named("late"), 2)
    await topics.fill(Changing())
    assert topics.names == full("kept", "late-partition-0", "late-partition-1")
    assert topics.changes_since(0, 1) is not None


async def test_a_broker_notices_topic_changes_of_another_broker(tmp_path):
    store, place = SharedStore(tmp_path), ("public", "default")
    async with (
        SteppedBroker(store, 1).running() as first,
        SteppedBroker(store, 3).running() as second,
    ):
        await balanced(store, first, second)
        follower = second if first.broker.catalogue.is_owned else first
        owner = first if follower is second else second
        lists = SharedState(follower.broker).topic_lists
        await lists.fill(place, watcher := lists.open(place))
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepping_on, first, second)
                topics = owner.broker.topics
                mine, theirs = topic_of(owner.held), topic_of(follower.held)
                await topics.create(mine, 1)
                await topics.create(theirs, 2)
                assert watcher.names == sorted([*full(mine.topic), *full(*parts(theirs, 2))])
                await topics.add_partitions(theirs, 3)
                await topics.delete(mine)
                assert watcher.names == full(*parts(theirs, 3))
                await topics.create(mine, 1)
                await topics.delete(theirs)
                assert watcher.names == full(mine.topic)
                nursery.cancel_scope.cancel()


def parts(name, count):
    return [f"{name.topic}-partition-{number}" for number in range(count)]
