"""Consumer groups: creation and deletion, members, and turns of partitions."""

import pytest

from tests.protocols.iggy.description import named
from tests.protocols.iggy.foreign import topic_of
from tests.protocols.iggy.talk import FIRST, GRP, NEXT, Talk, to_partition

GET, LIST, CREATE, DELETE, JOIN, LEAVE = range(600, 606)
TOPIC = {"stream": named("st"), "topic": named("tp")}
GROUP = {**TOPIC, "group": named("grp")}
AUTO = {"consumer": GRP, "partition": 0, "commit": True}


@pytest.fixture
async def grouped(talk) -> Talk:
    """Return a connection with three partitions of two messages each, and a group."""
    await talk.create_topic(partitions=3)
    for number in (1, 2, 3):
        await talk.send(b"%d a" % number, b"%d b" % number, partitioning=to_partition(number))
    await talk.ask(CREATE, **TOPIC, group_id=0, name="grp")
    return talk


async def second_client(connect) -> Talk:
    talk = await connect()
    await talk.login()
    return talk


async def test_groups_are_numbered_from_one_unless_the_client_chooses(grouped):
    await grouped.ask(CREATE, **TOPIC, group_id=9, name="nine")
    answer = await grouped.ask(CREATE, **TOPIC, group_id=0, name="ten")
    assert answer["group"] == {"id": 10, "partitions": 3, "members": 0, "name": "ten"}
    listed = await grouped.ask(LIST, **TOPIC)
    assert [(group["id"], group["name"]) for group in listed["groups"]] == [
        (1, "grp"),
        (9, "nine"),
        (10, "ten"),
    ]


@pytest.mark.parametrize(
    ("group_id", "name", "status"), [(0, "grp", 5004), (1, "other", 5001), (1 << 24, "x", 5002)]
)
async def test_name_and_number_of_a_group_must_be_free(grouped, group_id, name, status):
    assert await grouped.status(CREATE, **TOPIC, group_id=group_id, name=name) == status


@pytest.mark.parametrize("group", ["nope", 7])
async def test_missing_group(grouped, group):
    missing = {**TOPIC, "group": named(group)}
    expected = 5003 if group == "nope" else 5000
    assert await grouped.ask(GET, **missing) == {"status": 0}
    for command in (DELETE, JOIN, LEAVE):
        assert await grouped.status(command, **missing) == expected
    poll = await grouped.poll(NEXT, consumer={"kind": 2, "id": named(group)}, partition=0)
    assert poll["status"] == expected


async def test_a_member_takes_its_partitions_in_turn(grouped):
    assert await grouped.status(JOIN, **GROUP) == 0
    answers = [await grouped.poll(NEXT, count=1, **AUTO) for _ in range(7)]
    assert [answer["partition"] for answer in answers] == [1, 2, 3, 1, 2, 3, 1]
    payloads = [message["payload"] for answer in answers for message in answer["messages"]]
    assert payloads == [b"1 a", b"2 a", b"3 a", b"1 b", b"2 b", b"3 b"]


async def test_members_share_the_partitions(connect, grouped):
    other = await second_client(connect)
    for member in (grouped, other):
        await member.status(JOIN, **GROUP)
    members = (await grouped.ask(GET, **GROUP))["members"]
    assert [member["partitions"] for member in members] == [[1, 3], [2]]
    assert [(await other.poll(NEXT, **AUTO))["partition"] for _ in range(2)] == [2, 2]


async def test_a_closed_connection_leaves_its_groups(connect, grouped):
    other = await second_client(connect)
    for member in (grouped, other):
        await member.status(JOIN, **GROUP)
    await other.stream.aclose()
    answer = await grouped.ask_until(lambda answer: answer["group"]["members"] == 1, GET, **GROUP)
    assert [member["partitions"] for member in answer["members"]] == [[1, 2, 3]]


async def test_member_without_a_partition_gets_an_empty_poll(connect, grouped):
    members = [grouped, *[await second_client(connect) for _ in range(3)]]
    for member in members:
        await member.status(JOIN, **GROUP)
    answer = await members[-1].poll(NEXT, **AUTO)
    assert (answer["status"], answer["partition"], answer["messages"]) == (0, 0, [])
    assert await members[-1].stored(partition=0, consumer=GRP) is None


async def test_a_non_member_must_name_a_partition(grouped):
    assert (await grouped.poll(NEXT, **AUTO))["status"] == 5006
    answer = await grouped.poll(FIRST, consumer=GRP, partition=2)
    assert [message["payload"] for message in answer["messages"]] == [b"2 a", b"2 b"]


async def test_a_member_that_left_may_leave_again(grouped):
    await grouped.status(JOIN, **GROUP)
    assert await grouped.status(LEAVE, **GROUP) == 0
    assert await grouped.status(LEAVE, **GROUP) == 0
    assert (await grouped.poll(NEXT, **AUTO))["status"] == 5006


async def test_offset_commands_default_to_the_partition_of_the_latest_poll(grouped):
    await grouped.status(JOIN, **GROUP)
    where = {"consumer": GRP, **TOPIC, "partition": 0}
    for _ in range(2):
        await grouped.poll(NEXT, count=1, **{**AUTO, "commit": False})
    assert await grouped.status(121, **where, offset=1) == 0
    assert (await grouped.ask(120, **where))["partition"] == 2
    assert await grouped.stored(partition=2, consumer=GRP) == 1


async def test_a_group_by_number_shares_the_position_of_its_name(broker, grouped):
    by_number = {"kind": 2, "id": named(1)}
    await grouped.poll(NEXT, consumer=by_number, partition=1, commit=True)
    assert await grouped.stored(consumer=GRP) == 1
    assert broker.subscriptions.get(topic_of(broker), b"grp").position(0) == 2


async def test_a_group_continues_at_another_listeners_position(broker, grouped):
    topic = topic_of(broker)
    broker.subscriptions.open(topic, b"billing").commit(0, 1)
    await grouped.ask(CREATE, **TOPIC, group_id=0, name="billing")
    consumer = {"kind": 2, "id": named("billing")}
    assert await grouped.payloads(NEXT, consumer=consumer) == [b"1 b"]


async def test_new_partitions_of_a_growing_topic_are_assigned(grouped):
    await grouped.status(JOIN, **GROUP)
    assert await grouped.status(402, **TOPIC, count=2) == 0
    (member,) = (await grouped.ask(GET, **GROUP))["members"]
    assert member["partitions"] == [1, 2, 3, 4, 5]


async def test_members_and_offsets_end_with_their_group(broker, grouped):
    await grouped.status(JOIN, **GROUP)
    await grouped.poll(NEXT, **AUTO)
    assert await grouped.status(DELETE, **GROUP) == 0
    assert await grouped.ask(GET, **GROUP) == {"status": 0}
    assert broker.subscriptions.find(topic_of(broker), b"grp") is None
    await grouped.ask(CREATE, **TOPIC, group_id=0, name="grp")
    assert (await grouped.ask(GET, **GROUP))["members"] == []
    assert await grouped.stored(consumer=GRP) is None


async def test_groups_end_with_their_topic(grouped):
    await grouped.status(JOIN, **GROUP)
    assert await grouped.status(303, **TOPIC) == 0
    assert (await grouped.ask(20))["client"]["groups_count"] == 0
    await grouped.create_topic(partitions=1)
    assert await grouped.ask(LIST, **TOPIC) == {"status": 0}


async def test_a_topic_deletion_by_another_listener_ends_memberships(broker, grouped):
    await grouped.status(JOIN, **GROUP)
    await broker.topics.delete(topic_of(broker).name)
    assert (await grouped.ask(20))["client"]["groups_count"] == 0


async def test_a_binary_group_name_has_no_iggy_members(grouped, broker):
    """Names of Kafka's and Pulsar's groups may be any bytes; an Iggy name stands
    for none of them.
    """
    await grouped.ask(CREATE, **TOPIC, group_id=0, name="\ufffd")
    await grouped.ask(JOIN, **TOPIC, group=named("\ufffd"))
    topic = topic_of(broker)
    assert len(broker.members.of(topic, "\ufffd".encode())) == 1
    assert broker.members.of(topic, b"\xff") == []
