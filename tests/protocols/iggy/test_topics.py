"""Topics and partitions as Iggy's clients see them."""

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from braidlog.protocols.iggy.topics import PIECE_PARTITIONS, in_pieces
from braidlog.storage.metadata.catalogue_records import MADE_ID_FIRST
from braidlog.storage.metadata.names import TopicName
from conformance.clients.raw.iggy import frame, identifier, text8
from tests.broker.pieces import counting
from tests.protocols.iggy.description import named
from tests.protocols.iggy.talk import FIRST, NEVER, NEXT, OK, to_partition
from tests.waiting import HANG_S, PAUSE_S

GET, LIST, CREATE, DELETE = range(300, 304)
ADD_PARTITIONS = 402
TOPIC = {"stream": named("st"), "topic": named("tp")}


async def test_a_created_topic_is_returned_whole(talk):
    answer = await talk.create_topic(partitions=2)
    assert {key: answer["topic"][key] for key in ("id", "partitions", "messages", "name")} == {
        "id": 1,
        "partitions": 2,
        "messages": 0,
        "name": "tp",
    }
    assert [partition["id"] for partition in answer["partitions"]] == [1, 2]
    assert await talk.ask(GET, **TOPIC) == answer


async def test_a_partition_counts_readable_messages(talk):
    await talk.create_topic(partitions=2)
    await talk.send(b"0", b"1", b"2")
    first, second = (await talk.ask(GET, **TOPIC))["partitions"]
    assert (first["messages"], first["current_offset"], first["segments"]) == (3, 2, 1)
    assert (second["messages"], second["current_offset"]) == (0, 0)
    assert first["size"] > 3 * 46


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, (NEVER, NEVER)),
        ({"expiry": 0, "max_size": NEVER}, (NEVER, NEVER)),
        ({"expiry": 3_600_000_000}, (3_600_000_000, NEVER)),
        ({"max_size": 4_000_000_000}, (NEVER, 4_000_000_000)),
    ],
)
async def test_expiry_and_size_are_read_back(talk, settings, shown):
    topic = (await talk.create_topic(partitions=2, **settings))["topic"]
    assert (topic["expiry"], topic["max_size"]) == shown
    assert (topic["compression"], topic["replication"]) == (1, 1)


@pytest.mark.parametrize(("sent", "shown"), [((1, 0), (1, 1)), ((1, 1), (1, 1)), ((2, 3), (2, 3))])
async def test_compression_and_replication_are_read_back(talk, sent, shown):
    compression, replication = sent
    topic = (await talk.create_topic(compression=compression, replication=replication))["topic"]
    assert (topic["compression"], topic["replication"]) == shown


@pytest.mark.parametrize("compression", [0, 3])
async def test_unknown_compression_is_refused(talk, compression):
    assert (await talk.create_topic(compression=compression))["status"] == 3


async def test_bounds_are_settings_of_the_log_and_each_partition_has_its_share(broker, talk):
    await talk.create_topic(partitions=3, expiry=1_000_001, max_size=100)
    meta = broker.catalogue.state.topic(TopicName("public", "st", "tp"))
    bounds = {"retention_ms": 1001, "retention_bytes": 34}
    assert meta.settings == {**bounds, "iggy_expiry_us": 1_000_001}


async def test_unlimited_differs_from_the_brokers_default(broker, talk):
    await talk.create_topic("never", expiry=NEVER, max_size=NEVER)
    await talk.create_topic("default", expiry=0, max_size=0)
    settings = [meta.settings for meta in broker.catalogue.state.topics("public", "st")]
    assert settings == [{}, {"retention_ms": -1, "retention_bytes": -1}]


@pytest.mark.parametrize(
    ("name", "topic_id", "partitions", "status"),
    [
        ("tp", 0, 1, 2013),
        ("other", 1, 1, 2012),
        ("tp", 1, 1, 2013),
        ("a/b", 0, 1, 2014),
        ("x-partition-3", 0, 1, 2014),
        ("many", 0, 100_001, 2015),
        ("far", MADE_ID_FIRST, 1, 2016),
    ],
)
async def test_an_invalid_topic_is_refused(talk, name, topic_id, partitions, status):
    await talk.create_topic()
    answer = await talk.create_topic(name, partitions, topic_id=topic_id)
    assert answer["status"] == status


async def test_simultaneously_created_topics_get_different_numbers(talk, connect):
    await talk.create_topic("first")
    numbers, statuses = [], []

    async def create(name, topic_id):
        client = await connect()
        assert await client.login() == 0
        answer = await client.create_topic(name, topic_id=topic_id)
        statuses.append(answer["status"])
        numbers.extend([answer["topic"]["id"]] if answer["status"] == 0 else [])

    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(create, name, 0)
        for name in ("d", "e"):
            nursery.start_soon(create, name, 9)
    assert sorted(numbers) == [2, 3, 4, 9]
    assert sorted(statuses) == [0, 0, 0, 0, 2012]


async def test_the_stream_of_a_topic_must_exist(talk):
    missing = {"stream": named("nope"), "topic": named("tp")}
    assert await talk.ask(GET, **missing) == {"status": 0}
    assert await talk.status(LIST, stream=named("nope")) == 1010
    assert await talk.status(LIST, stream=named(9)) == 1009
    assert await talk.status(DELETE, **missing) == 1010
    assert (await talk.ask(GET, stream=named("nope"), topic=named(1))) == {"status": 0}


async def test_a_topic_of_another_listener_is_readable_by_number(broker, talk):
    await talk.ask(202, stream_id=0, name="st")
    await broker.topics.create(TopicName("public", "st", "kafka"), 1)
    (topic,) = (await talk.ask(LIST, stream=named("st")))["topics"]
    assert (topic["name"], topic["id"] >= MADE_ID_FIRST) == ("kafka", True)
    assert await talk.send(b"x", topic=topic["id"]) == 0
    assert await talk.payloads(FIRST, topic="kafka") == [b"x"]


async def test_a_recreated_topic_starts_empty(talk):
    await talk.create_topic()
    await talk.send(b"x")
    await talk.payloads(FIRST, commit=True)
    assert await talk.status(DELETE, **TOPIC) == 0
    assert await talk.status(DELETE, **TOPIC) == 2011
    await talk.create_topic()
    assert await talk.payloads(FIRST) == []
    assert await talk.stored() is None


async def test_partitions_are_added(talk):
    await talk.create_topic()
    assert await talk.status(ADD_PARTITIONS, **TOPIC, count=2) == 0
    answer = await talk.ask(GET, **TOPIC)
    assert [partition["id"] for partition in answer["partitions"]] == [1, 2, 3]
    for count in (0, 100_001):
        assert await talk.status(ADD_PARTITIONS, **TOPIC, count=count) == 2015


async def test_a_purged_topic_is_empty_and_takes_messages(talk):
    await talk.create_topic()
    await talk.send(b"a", b"b")
    assert await talk.payloads(5, commit=True, count=1) == [b"a"]
    assert await talk.status(305, **TOPIC) == 0
    shown = await talk.ask(300, **TOPIC)
    assert (shown["topic"]["messages"], shown["partitions"][0]["messages"]) == (0, 0)
    assert await talk.payloads(3) == []
    await talk.send(b"c")
    assert await talk.payloads(5) == [b"c"]


async def test_a_purged_stream_has_no_messages(talk):
    await talk.create_topic()
    await talk.create_topic("other")
    await talk.send(b"a")
    await talk.send(b"b", topic="other")
    assert await talk.status(205, stream=named("st")) == 0
    assert (await talk.ask(200, stream=named("st")))["stream"]["messages"] == 0
    assert await talk.status(205, stream=named("none")) == 1010


@pytest.mark.parametrize("meanwhile", ["deleted", "renamed"])
async def test_a_purge_of_a_stream_survives_deletions_and_renames(
    talk, broker, monkeypatch, meanwhile
):
    for name in ("tp", "second", "third"):
        await talk.create_topic(name)
        await talk.send(b"a", topic=name)
    purge, second = broker.retention.purge, TopicName("public", "st", "second")

    async def purge_slowly(topic):
        if topic.name == second:
            if meanwhile == "deleted":
                await broker.topics.delete(second)
            else:
                await broker.renaming.rename_topic(second, TopicName("public", "st", "other"))
        await purge(topic)

    monkeypatch.setattr(broker.retention, "purge", purge_slowly)
    assert await talk.status(205, stream=named("st")) == 0
    shown = await talk.ask(200, stream=named("st"))
    assert (shown["stream"]["topics"], shown["stream"]["messages"]) == (
        2 + (meanwhile == "renamed"),
        0,
    )


async def test_partitions_are_removed_with_their_offsets(talk, broker):
    await talk.create_topic(partitions=3)
    await talk.send(b"a", partitioning=to_partition(3))
    assert await talk.payloads(5, partition=3, commit=True) == [b"a"]
    folders = set(Path(broker.data_dir, "partitions").iterdir())
    assert await talk.status(403, **TOPIC, count=1) == 0
    shown = await talk.ask(300, **TOPIC)
    assert [partition["id"] for partition in shown["partitions"]] == [1, 2]
    assert (await talk.poll(3, partition=3))["status"] == 3007
    assert await talk.send(b"x", partitioning=to_partition(3)) == 3007
    with trio.fail_after(HANG_S):
        while len(set(Path(broker.data_dir, "partitions").iterdir()) & folders) == 3:
            await trio.sleep(PAUSE_S)
    # A new partition of that number has no old messages.
    assert await talk.status(402, **TOPIC, count=1) == 0
    assert await talk.payloads(3, partition=3) == []
    await talk.send(b"new", partitioning=to_partition(3))
    assert await talk.payloads(5, partition=3) == [b"new"]
    assert await talk.status(403, **TOPIC, count=99) == 0
    assert (await talk.ask(300, **TOPIC))["topic"]["partitions"] == 0
    assert await talk.status(403, **TOPIC, count=1) == 0


async def test_a_flush_of_an_existing_partition_is_answered(talk):
    await talk.create_topic()
    await talk.send(b"a")
    assert await talk.status(102, **TOPIC, partition=1, fsync=True) == 0
    assert await talk.status(102, **TOPIC, partition=2, fsync=False) == 3007


async def test_settings_are_changed_and_shown(talk):
    await talk.create_topic()
    changed = {"compression": 2, "expiry": 5_000_000, "max_size": 10**9, "replication": 3}
    assert await talk.status(304, **TOPIC, name="tp", **changed) == 0
    shown = (await talk.ask(300, **TOPIC))["topic"]
    assert {key: shown[key] for key in changed} == changed
    await talk.create_topic("other")
    assert await talk.status(304, **TOPIC, name="other", **changed) == 2013


async def test_a_renamed_topic_keeps_settings_groups_and_offsets(talk):
    await talk.create_topic(partitions=2)
    await talk.ask(602, **TOPIC, group_id=0, name="g")
    await talk.send(b"a", b"b")
    await talk.poll(FIRST, count=1, commit=True)
    changed = {"compression": 2, "expiry": 5_000_000, "max_size": 10**9, "replication": 3}
    for name in ("a/b", "x-partition-1"):
        assert await talk.status(304, **TOPIC, name=name, **changed) == 2014
    assert await talk.status(304, **TOPIC, name="neu-äöü", **changed) == 0
    assert await talk.status(300, **TOPIC) == 0
    shown = (await talk.ask(300, stream=named("st"), topic=named("neu-äöü")))["topic"]
    assert {key: shown[key] for key in ("id", "name", "messages", *changed)} == {
        "id": 1,
        "name": "neu-äöü",
        "messages": 2,
        **changed,
    }
    assert await talk.ask(300, stream=named("st"), topic=named(1)) == await talk.ask(
        300, stream=named("st"), topic=named("neu-äöü")
    )
    assert await talk.send(b"c") == 2011
    assert await talk.send(b"c", topic="neu-äöü") == 0
    polled = await talk.poll(NEXT, topic="neu-äöü")
    assert [message["payload"] for message in polled["messages"]] == [b"b", b"c"]


async def test_a_topic_is_deleted_by_a_client_that_sends_the_partition_count(connect):
    talk = await connect()
    assert await talk.login(version="") == 0  # As Node's clients do.
    assert await talk.exchange(frame(202, text8("st"))) != OK
    settings = struct.pack("<IBQQB", 2, 1, NEVER, 0, 0)
    answer = await talk.exchange(frame(302, identifier("st") + settings + text8("tp")))
    assert answer[:4] == bytes(4)
    named_one = identifier("st") + identifier("tp")
    assert await talk.exchange(frame(303, named_one + struct.pack("<I", 2))) == OK
    assert await talk.exchange(frame(300, named_one)) == OK  # The topic no longer exists.


async def test_lists_and_statistics_read_many_topics_in_pieces():
    topics = [SimpleNamespace(partitions=[None] * 9) for _ in range(500)]
    seen = []
    with counting(lambda: 10 * len(seen)) as pieces:
        async for topic in in_pieces(topics):
            seen.append(topic)  # noqa: PERF401 (each is counted as it comes)
    assert seen == topics
    assert pieces.largest == PIECE_PARTITIONS


async def test_empty_topics_have_no_size_before_and_after_a_purge(talk):
    await talk.create_topic(partitions=2)

    async def sizes() -> list[int]:
        topic = await talk.ask(GET, **TOPIC)
        stream = (await talk.ask(200, stream=named("st")))["stream"]
        stats = await talk.ask(10)
        partitions = [partition["size"] for partition in topic["partitions"]]
        return [*partitions, topic["topic"]["size"], stream["size"], stats["messages_size"]]

    assert await sizes() == [0, 0, 0, 0, 0]
    await talk.send(b"x")
    first, second, *totals = await sizes()
    assert (first > 0, second, totals) == (True, 0, [first] * 3)
    assert await talk.status(305, **TOPIC) == 0
    assert await sizes() == [0, 0, 0, 0, 0]


async def test_an_expiry_is_in_microseconds_and_stored_in_milliseconds(broker, talk):
    await talk.create_topic(expiry=1_500_001)
    name = TopicName("public", "st", "tp")

    async def shown_expiry() -> int:
        return (await talk.ask(GET, **TOPIC))["topic"]["expiry"]

    assert await shown_expiry() == 1_500_001
    assert broker.topics.get(name).meta.settings["retention_ms"] == 1501
    await broker.topics.alter_settings(name, {"retention_ms": 2000})  # By another protocol.
    assert await shown_expiry() == 2_000_000
    changed = {"compression": 1, "max_size": 0, "replication": 0}
    for expiry in (1_999_999, 3_000_000, 7):
        assert await talk.status(304, **TOPIC, name="tp", expiry=expiry, **changed) == 0
        assert await shown_expiry() == expiry
