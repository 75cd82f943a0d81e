"""POLL: every strategy, auto commit, and records of other listeners."""

import random

import pytest
import trio
import trio.testing

from braidlog.broker.limits import OUTPUT_BYTES_ALL_MAX
from braidlog.storage.metadata.names import TopicName
from tests.broker.positions.replaced import replace_meanwhile
from tests.protocols.iggy.description import named
from tests.protocols.iggy.foreign import append, partition_of, topic_of
from tests.protocols.iggy.talk import FIRST, LAST, NEXT, OFFSET, TIMESTAMP, to_partition
from tests.waiting import until

ALL = [b"%d" % number for number in range(10)]


@pytest.fixture
async def filled(talk):
    """Return a connection, with ten messages in batches of 1, 2, 3 and 4."""
    await talk.create_topic(partitions=2)
    for start, end in ((0, 1), (1, 3), (3, 6), (6, 10)):
        assert await talk.send(*ALL[start:end]) == 0
    return talk


@pytest.mark.parametrize(
    ("kind", "value", "count", "expected"),
    [
        (FIRST, 0, 3, ALL[:3]),
        (FIRST, 7, 100, ALL),
        (LAST, 0, 1, ALL[9:]),
        (LAST, 0, 5, ALL[5:]),
        (LAST, 0, 100, ALL),
        (OFFSET, 0, 100, ALL),
        (OFFSET, 4, 3, ALL[4:7]),
        (OFFSET, 9, 3, ALL[9:]),
        (OFFSET, 10, 3, []),
        (OFFSET, (1 << 64) - 1, 3, []),
        (TIMESTAMP, 0, 4, ALL[:4]),
        (TIMESTAMP, (1 << 63) - 1, 4, []),
        (NEXT, 0, 4, ALL[:4]),
    ],
)
async def test_the_strategy_decides_the_start_of_a_poll(filled, kind, value, count, expected):
    answer = await filled.poll(kind, value, count=count)
    assert [message["payload"] for message in answer["messages"]] == expected
    assert (answer["partition"], answer["current_offset"]) == (1, 9)
    assert answer["messages_count"] == len(expected)
    assert await filled.stored() is None


async def test_last_returns_the_newest_messages_that_fit(talk):
    await talk.create_topic()
    for _ in range(12):
        assert await talk.send(bytes(1024 * 1024)) == 0

    async def offsets(kind, count):
        messages = (await talk.poll(kind, count=count))["messages"]
        return [message["offset"] for message in messages]

    held = len(await offsets(FIRST, 12))
    assert held < 12
    assert await offsets(LAST, 12) == list(range(12 - held, 12))
    assert await offsets(LAST, 2) == [10, 11]


async def test_an_empty_partition_returns_the_bare_head(filled):
    for kind in (FIRST, LAST, OFFSET, TIMESTAMP, NEXT):
        answer = await filled.poll(kind, partition=2, commit=True)
        assert answer == {
            "status": 0,
            "partition": 2,
            "current_offset": 0,
            "messages_count": 0,
            "messages": [],
        }
    assert await filled.stored(partition=2) is None


async def test_timestamp_begins_with_the_first_message_that_is_not_older(broker, talk):
    await talk.create_topic()
    for number, time_us in enumerate((1_000, 2_000, 3_000)):
        await append(broker, b"%d" % (2 * number), b"%d" % (2 * number + 1), append_us=time_us)
    for wanted, expected in ((0, 0), (1_000, 0), (1_001, 2), (2_000, 2), (3_000, 4), (3_001, 6)):
        assert await talk.payloads(TIMESTAMP, wanted) == ALL[expected:6]


@pytest.mark.parametrize("seed", range(10))
async def test_the_timestamp_of_any_message_finds_that_message(broker, talk, seed):
    chance = random.Random(seed)
    await talk.create_topic()
    time_us = 1_000_000
    for _ in range(chance.randrange(1, 30)):
        time_us += chance.randrange(1, 1000)
        values = [b"x"] * chance.randrange(1, 4)
        published_us = time_us - chance.randrange(-5000, 5000)
        await append(broker, *values, append_us=time_us, publish_us=published_us)
    messages = (await talk.poll(FIRST))["messages"]
    for wanted in [message["timestamp"] for message in messages] + [0, time_us + 1]:
        messages_from = (await talk.poll(TIMESTAMP, wanted))["messages"]
        assert messages_from == [message for message in messages if message["timestamp"] >= wanted]


async def test_partition_none_is_the_first(filled):
    answer = await filled.poll(OFFSET, 8, partition=0)
    assert (answer["partition"], len(answer["messages"])) == (1, 2)


@pytest.mark.parametrize(("partition", "count", "status"), [(3, 1, 3007), (1, 0, 4009)])
async def test_an_impossible_poll_is_refused(filled, partition, count, status):
    assert (await filled.poll(FIRST, partition=partition, count=count))["status"] == status


@pytest.mark.parametrize("topic", ["nope", 9])
async def test_missing_topic_is_an_error_in_a_poll(filled, topic):
    status = (await filled.poll(FIRST, topic=topic))["status"]
    assert status == (2011 if topic == "nope" else 2010)


# Auto commit.


async def test_auto_commit_stores_the_last_message_and_next_continues(filled):
    assert await filled.payloads(NEXT, count=4, commit=True) == ALL[:4]
    assert await filled.stored() == 3
    assert await filled.payloads(NEXT, count=4, commit=True) == ALL[4:8]
    assert await filled.payloads(NEXT, count=4) == ALL[8:]
    assert await filled.stored() == 7


@pytest.mark.parametrize("broker", [{"log.flush_interval_ms": "1h"}], indirect=True, ids=[""])
async def test_auto_commit_is_on_disk_within_the_flush_interval(broker, filled):
    await filled.payloads(NEXT, count=4, commit=True)  # The first commit creates the subscription.
    await broker.durability.all_durable()
    gathering = broker.committer.ticket
    await filled.payloads(NEXT, count=4, commit=True)
    await trio.testing.wait_all_tasks_blocked()
    assert broker.committer.ticket == gathering  # The auto commit started no round.
    broker.committer.promote_lazy()  # As the flush interval does.
    await broker.durability.all_durable()
    assert broker.committer.durable_ticket >= gathering


async def test_auto_commit_does_not_affect_a_new_partition_of_the_same_number(broker, filled):
    assert await filled.send(*ALL, partitioning=to_partition(2)) == 0
    topic = broker.topics.get(TopicName("public", "st", "tp"))
    broker.subscriptions.open(topic, b"1").start(1, 0)

    async def poll():
        assert (await filled.poll(NEXT, partition=2, commit=True))["status"] != 0

    await replace_meanwhile(broker, topic, poll)
    assert broker.subscriptions.get(topic, b"1").position(1) == 0


async def test_auto_commit_of_another_strategy_may_go_back(filled):
    await filled.payloads(LAST, count=1, commit=True)
    assert await filled.stored() == 9
    assert await filled.payloads(NEXT, commit=True) == []
    await filled.payloads(OFFSET, 2, count=1, commit=True)
    assert await filled.stored() == 2
    assert await filled.payloads(NEXT, count=1) == ALL[3:4]


async def test_each_consumer_has_its_own_position(filled):
    named_one = {"kind": 1, "id": named("billing")}
    await filled.payloads(NEXT, count=4, commit=True)
    assert await filled.payloads(NEXT, count=2, commit=True, consumer=named_one) == ALL[:2]
    assert (await filled.stored(), await filled.stored(consumer=named_one)) == (3, 1)


async def test_consumer_shares_the_subscription_of_its_id_as_text(broker, filled):
    await filled.payloads(NEXT, count=4, commit=True)
    topic = topic_of(broker)
    assert broker.subscriptions.get(topic, b"1").position(0) == 4
    broker.subscriptions.get(topic, b"1").commit(0, 8)
    assert await filled.payloads(NEXT) == ALL[8:]


async def test_next_skips_acknowledged_messages_and_auto_commit_covers_them(broker, filled):
    subscription = broker.subscriptions.open(topic_of(broker), b"1")
    subscription.commit(0, 1)
    subscription.ack(0, [(2, 4), (5, 6), (9, 10)], lazy=True)
    assert await filled.payloads(NEXT, count=2) == [ALL[1], ALL[4]]
    assert await filled.payloads(NEXT) == [ALL[1], *ALL[4:5], *ALL[6:9]]
    assert await filled.payloads(NEXT, count=2, commit=True) == [ALL[1], ALL[4]]
    assert subscription.position(0) == 6
    assert await filled.payloads(NEXT, commit=True) == ALL[6:9]
    assert subscription.position(0) == 10


@pytest.mark.parametrize("seed", range(10))
async def test_next_returns_exactly_the_unacknowledged_messages(broker, filled, seed):
    chance = random.Random(seed)
    subscription = broker.subscriptions.open(topic_of(broker), b"1")
    subscription.commit(0, chance.randrange(4))
    start = subscription.position(0)
    acked = sorted(chance.sample(range(start, 10), chance.randrange(1, 10 - start)))
    subscription.ack(0, [(offset, offset + 1) for offset in acked], lazy=True)
    payloads = []
    for _ in range(20):
        payloads += await filled.payloads(NEXT, count=chance.randrange(1, 4), commit=True)
    assert payloads == [ALL[offset] for offset in range(start, 10) if offset not in acked]


# Records of other listeners.


async def test_records_of_other_listeners_have_their_key_as_a_header(broker, talk):
    await talk.create_topic()
    await append(broker, b"one", key=b"k\x00")
    (message,) = (await talk.poll(FIRST))["messages"]
    assert (message["payload"], message["id"]) == (b"one", bytes(16))
    assert message["headers"] == [{"key": "braidlog.key", "kind": 1, "value": b"k\x00"}]


async def test_records_without_payload_are_left_out_and_offsets_stay(broker, talk):
    await talk.create_topic()
    await append(broker, b"0", None, b"2", b"", b"4")
    messages = (await talk.poll(FIRST))["messages"]
    assert [(message["offset"], message["payload"]) for message in messages] == [
        (0, b"0"),
        (2, b"2"),
        (4, b"4"),
    ]
    left_out = broker.metrics.number("braidlog_records_left_out", "iggy", "public/st/tp")
    assert left_out.value == 2


async def test_auto_commit_covers_left_out_records(broker, talk):
    await talk.create_topic()
    await append(broker, b"0", None, None)
    assert await talk.payloads(NEXT, commit=True) == [b"0"]
    await talk.payloads(NEXT, commit=True)
    assert partition_of(broker).high_watermark == 3
    assert broker.subscriptions.get(topic_of(broker), b"1").position(0) == 3


async def test_auto_commit_of_an_empty_poll_covers_left_out_records(broker, talk):
    await talk.create_topic()
    await append(broker, None, None)
    assert await talk.payloads(NEXT, commit=True) == []
    assert broker.subscriptions.get(topic_of(broker), b"1").position(0) == 2


async def test_a_poll_skips_left_out_records_up_to_a_message(broker, talk):
    await talk.create_topic()
    await append(broker, *[None] * 50)
    await append(broker, *[None] * 50, b"100")
    assert await talk.payloads(NEXT, count=1) == [b"100"]
    assert await talk.payloads(NEXT, count=1) == [b"100"]


async def test_a_long_walk_over_left_out_records_is_not_repeated(broker, talk):
    await talk.create_topic()
    await append(broker, *[None] * 50)
    left_out = broker.metrics.number("braidlog_records_left_out", "iggy", "public/st/tp")
    for _ in range(3):
        assert await talk.payloads(NEXT) == []
    assert left_out.value == 50
    await append(broker, b"50")
    assert await talk.payloads(NEXT) == [b"50"]


async def test_last_searches_further_back_over_left_out_records(broker, talk):
    await talk.create_topic()
    await append(broker, b"0", b"1", b"2", *[None] * 20)
    assert await talk.payloads(LAST, count=2) == [b"1", b"2"]
    assert await talk.payloads(LAST, count=9) == [b"0", b"1", b"2"]


async def test_mixed_batches_are_read_in_order(broker, talk):
    await talk.create_topic()
    await talk.send(b"iggy 0", b"iggy 1")
    await append(broker, b"plain 2", None, b"plain 4")
    await talk.send(b"iggy 5")
    messages = (await talk.poll(OFFSET, 1))["messages"]
    assert [(message["offset"], message["payload"]) for message in messages] == [
        (1, b"iggy 1"),
        (2, b"plain 2"),
        (4, b"plain 4"),
        (5, b"iggy 5"),
    ]


async def test_poll_below_the_log_start_begins_there(broker, talk):
    await talk.ask(202, stream_id=0, name="st")
    settings = {"segment_bytes": 64 * 1024, "retention_bytes": 1}
    await broker.topics.create(TopicName("public", "st", "tp"), 1, settings=settings)
    values = [b"%d" % number + bytes(40_000) for number in range(5)]
    for value in values:
        await append(broker, value)
    partition = partition_of(broker)
    assert partition.log.retain(broker.now_us()) > 0
    start = partition.log_start_offset
    assert 0 < start < 5
    for kind in (OFFSET, FIRST, TIMESTAMP, NEXT, LAST):
        assert await talk.payloads(kind, count=9) == values[start:]
    broker.subscriptions.open(topic_of(broker), b"1").commit(0, start - 1)
    assert await talk.payloads(NEXT, count=1) == values[start : start + 1]
    (shown_partition,) = (await talk.ask(300, stream=named("st"), topic=named("tp")))["partitions"]
    assert (shown_partition["messages"], shown_partition["current_offset"]) == (5 - start, 4)


async def test_a_poll_waits_for_memory_before_it_reads(filled, broker, nursery):
    answers = []

    async def poll():
        answers.append(await filled.poll(FIRST, 0, count=3))

    broker.output.charge(OUTPUT_BYTES_ALL_MAX)
    nursery.start_soon(poll)
    await trio.testing.wait_all_tasks_blocked()
    assert not answers
    broker.output.charge(-OUTPUT_BYTES_ALL_MAX)
    await until(lambda: answers)
    assert [message["payload"] for message in answers[0]["messages"]] == ALL[:3]
    assert broker.output.used == 0
