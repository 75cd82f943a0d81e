"""Stored offsets: the last consumed offset here, the next offset in the store."""

import pytest

from tests.protocols.iggy.description import named
from tests.protocols.iggy.foreign import topic_of
from tests.protocols.iggy.talk import NEXT, Talk

GET, STORE, DELETE = 120, 121, 122


def place(partition: int = 1, consumer: str | int = 1, topic: str = "tp") -> dict:
    return {
        "consumer": {"kind": 1, "id": named(consumer)},
        "stream": named("st"),
        "topic": named(topic),
        "partition": partition,
    }


@pytest.fixture
async def filled(talk) -> Talk:
    await talk.create_topic(partitions=2)
    await talk.send(b"0", b"1", b"2")
    return talk


async def test_stored_offset_is_one_below_the_position(broker, filled):
    assert await filled.status(STORE, **place(), offset=1) == 0
    assert await filled.ask(GET, **place()) == {
        "status": 0,
        "partition": 1,
        "current_offset": 2,
        "stored_offset": 1,
    }
    subscription = broker.subscriptions.get(topic_of(broker), b"1")
    assert subscription.position(0) == 2


async def test_the_answer_comes_when_a_crash_takes_back_no_offset(broker, filled):
    subscription = broker.subscriptions.open(topic_of(broker), b"1")
    for position, lazy in ((1, False), (2, True)):
        subscription.commit(0, position, lazy=lazy)
        assert (await filled.ask(GET, **place()))["stored_offset"] == position - 1
        assert broker.subscriptions.flush_lazy() <= broker.durability.durable_ticket


async def test_nothing_stored_is_the_empty_ok(filled):
    assert await filled.ask(GET, **place()) == {"status": 0}


async def test_position_zero_of_another_listener_reads_as_nothing_stored(broker, filled):
    broker.subscriptions.open(topic_of(broker), b"1").commit(0, 0)
    assert await filled.ask(GET, **place()) == {"status": 0}


async def test_storing_zero_means_that_the_first_message_is_consumed(filled):
    assert await filled.status(STORE, **place(), offset=0) == 0
    assert await filled.stored() == 0
    assert await filled.payloads(NEXT) == [b"1", b"2"]


async def test_an_offset_beyond_the_end_is_refused(filled):
    assert await filled.status(STORE, **place(), offset=3) == 4100
    assert await filled.status(STORE, **place(), offset=(1 << 64) - 1) == 4100
    assert await filled.stored() is None


async def test_zero_on_an_empty_partition_skips_the_first_message(filled):
    assert await filled.status(STORE, **place(partition=2), offset=0) == 0
    assert await filled.status(STORE, **place(partition=2), offset=1) == 4100
    await filled.send(b"first", b"second", partitioning={"kind": 2, "value": b"\x02\0\0\0"})
    assert await filled.payloads(NEXT, partition=2) == [b"second"]


async def test_going_back_is_allowed(filled):
    for offset in (2, 0):
        assert await filled.status(STORE, **place(), offset=offset) == 0
        assert await filled.stored() == offset


async def test_a_deleted_offset_is_unset_and_a_second_delete_finds_none(filled):
    assert await filled.status(DELETE, **place()) == 3021
    await filled.status(STORE, **place(), offset=1)
    assert await filled.status(DELETE, **place()) == 0
    assert await filled.stored() is None
    assert await filled.status(DELETE, **place()) == 3021
    assert await filled.payloads(NEXT) == [b"0", b"1", b"2"]


async def test_partitions_have_separate_offsets(filled):
    await filled.status(STORE, **place(partition=2), offset=0)
    assert await filled.stored(partition=1) is None
    assert await filled.stored(partition=2) == 0


async def test_partition_none_is_the_first(filled):
    assert await filled.status(STORE, **place(partition=0), offset=1) == 0
    assert (await filled.ask(GET, **place(partition=0)))["partition"] == 1


@pytest.mark.parametrize(
    ("command", "where", "status"),
    [
        (GET, place(partition=9), 3007),
        (STORE, place(partition=9), 3007),
        (DELETE, place(partition=9), 3007),
        (GET, place(topic="nope"), 0),
        (STORE, place(topic="nope"), 2011),
        (DELETE, place(topic="nope"), 2011),
    ],
)
async def test_offsets_of_missing_objects(filled, command, where, status):
    more = {"offset": 0} if command == STORE else {}
    assert await filled.ask(command, **where, **more) == {"status": status}


async def test_stored_offset_is_on_disk_when_it_is_answered(broker, filled):
    await filled.status(STORE, **place(), offset=1)
    assert broker.committer.durable_ticket >= broker.committer.ticket - 1


async def test_an_old_client_without_empty_answers_gets_zero(connect, filled):
    old = await connect()
    await old.login("0.6.9")
    assert await old.ask(GET, **place()) == {
        "status": 0,
        "partition": 1,
        "current_offset": 2,
        "stored_offset": 0,
    }
