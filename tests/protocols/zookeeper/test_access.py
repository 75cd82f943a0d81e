"""No operation bypasses the access check: each is refused with its error, and has no effect."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.zookeeper.errors import ZkCode
from braidlog.protocols.zookeeper.messages import Op
from braidlog.protocols.zookeeper.operations import OPERATIONS
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing
from tests.protocols.zookeeper.talk import OPEN, multi_frame, request_frame

T = TopicName("public", "default", "t")
TWO = b'{"version":1,"partitions":{"0":[1],"1":[1]}}'
OFFSET = "/consumers/g/offsets/t/0"
# Operation, fields, action; for stored nodes and for the meanings of virtual nodes.
SAMPLES = [
    (Op.EXISTS, ("/a", False), Action.DESCRIBE),
    (Op.GET_DATA, ("/a", False), Action.DESCRIBE),
    (Op.GET_CHILDREN, ("/a", False), Action.DESCRIBE),
    (Op.GET_CHILDREN2, ("/a", False), Action.DESCRIBE),
    (Op.GET_ACL, ("/a",), Action.DESCRIBE),
    (Op.CHECK, ("/a", 0), Action.DESCRIBE),
    (Op.CREATE, ("/b", b"", OPEN, 0), Action.CREATE),
    (Op.CREATE2, ("/b", b"", OPEN, 0), Action.CREATE),
    (Op.SET_DATA, ("/a", b"", -1), Action.ALTER),
    (Op.SET_ACL, ("/a", OPEN, -1), Action.ALTER),
    (Op.DELETE, ("/a", -1), Action.DELETE),
    (Op.CREATE, ("/consumers/h", b"", OPEN, 0), Action.CONSUME),
    (Op.SET_DATA, (OFFSET, b"2", -1), Action.CONSUME),
    (Op.CREATE, ("/consumers/h/offsets/t/0", b"2", OPEN, 0), Action.CONSUME),
    (Op.DELETE, (OFFSET, -1), Action.DELETE),
    (Op.GET_DATA, (OFFSET, False), Action.DESCRIBE),
    (Op.GET_DATA, ("/brokers/topics/t", False), Action.DESCRIBE),
    (Op.GET_DATA, ("/brokers/ids/1", False), Action.DESCRIBE),
    (Op.CREATE, ("/brokers/topics/u", TWO, OPEN, 0), Action.CREATE),
    (Op.SET_DATA, ("/brokers/topics/t", TWO, -1), Action.ALTER),
    (Op.SET_DATA, ("/config/topics/t", b'{"config":{}}', -1), Action.ALTER),
    (Op.CREATE, ("/admin/delete_topics/t", b"", OPEN, 0), Action.DELETE),
    (Op.CREATE, ("/admin/reassign_partitions", b"{}", OPEN, 0), Action.ALTER),
]


@pytest.fixture
async def ready(client, broker):
    """Return a session; there are a node, a topic and a position."""
    await client.create("/a")
    await broker.topics.create(T, 1)
    broker.subscriptions.open(broker.topics.get(T), b"g").seek(0, 1)
    return client


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample[0].name} {sample[1][0]}")
async def test_an_operation_needs_its_own_action_and_no_other(ready, broker, sample):
    op, fields, action = sample
    rules = Nothing()
    broker.access = Access(rules)
    assert await ready.code(op, *fields) == ZkCode.NO_AUTH
    assert rules.actions == {action}
    broker.access = Access(Nothing())
    assert [topic.name for topic in broker.topics.all()] == [T]
    assert len(broker.topics.get(T).partitions) == 1
    assert broker.subscriptions.get(broker.topics.get(T), b"g").position(0) == 1
    broker.access = Access(Nothing(action))
    assert await ready.code(op, *fields) == 0


def test_every_operation_has_a_sample():
    without = {Op.SYNC, Op.MULTI, Op.SET_WATCHES, Op.SET_WATCHES2}  # By their parts; below.
    assert {op for op, _, _ in SAMPLES} == set(OPERATIONS) - without


async def test_parts_of_transactions_are_checked(ready, broker):
    broker.access = Access(Nothing())
    parts = [(Op.CREATE, "/b", b"", OPEN, 0), (Op.DELETE, "/a", -1), (Op.CHECK, "/a", 0)]
    for number, part in enumerate(parts):
        await ready.stream.send_all(multi_frame(100 + number, part))
        reader = (await ready.answer())[2]
        reader.take(9)
        assert reader.i32() == ZkCode.NO_AUTH


async def test_watches_are_set_only_where_the_client_may_look(ready, broker):
    broker.access = Access(Nothing())
    assert await ready.code(Op.SET_WATCHES, 0, ["/a"], [], []) == ZkCode.NO_AUTH


async def test_hidden_topics_and_groups_are_not_listed(ready, broker):
    assert await ready.children("/brokers/topics") == ["t"]
    assert await ready.children("/consumers") == ["g"]

    class OfNamespace(Nothing):
        def allows(self, principal, action, resource):
            return not (resource.topic or resource.group)

    broker.access = Access(OfNamespace())
    assert await ready.children("/brokers/topics") == []
    assert await ready.children("/consumers") == []


@pytest.mark.parametrize("broker", [{"access.required": "true"}], indirect=True)
async def test_before_the_login_only_a_session_is_served(session, broker, open_client):
    client = await session()
    assert await client.code(Op.EXISTS, "/", False) == ZkCode.NO_AUTH
    await client.stream.send_all(request_frame(-2, Op.PING))
    assert (await client.answer())[:2] == (-2, 0)
    for word, text in ((b"ruok", b"imok"), (b"mntr", b"mntr is not executed")):
        stream = await open_client("zookeeper")
        await stream.send_all(word)
        assert text in b"".join([part async for part in stream])
    await broker.users.create("ann", "a long password")
    wrong = await session()
    assert await wrong.code(Op.AUTH, 0, "digest", b"ann:wrong") == ZkCode.AUTH_FAILED
    await client.call(Op.AUTH, 0, "digest", b"ann:a long password")
    assert await client.code(Op.EXISTS, "/", False) == ZkCode.NO_AUTH  # Without a permission.
    broker.access = Access(Nothing(Action.DESCRIBE))
    assert await client.exists("/") is not None


async def test_a_dead_letter_topic_needs_the_right_to_produce_there(ready, broker):
    letters = b'{"config":{"errors.deadletterqueue.topic.name":"%b"}}'
    await ready.create("/config/topics/u", letters % b"t")
    assert await ready.code(Op.SET_DATA, "/config/topics/t", letters % b"missing", -1) != ZkCode.OK
    broker.access = Access(Nothing(Action.ALTER, Action.CREATE, Action.DESCRIBE))
    for name in (b"u", b"missing"):
        data = letters % name
        assert await ready.code(Op.SET_DATA, "/config/topics/t", data, -1) == ZkCode.NO_AUTH
    assert await ready.code(Op.CREATE, "/brokers/topics/u", TWO, OPEN, 0) == ZkCode.NO_AUTH
    assert broker.topics.get(T).settings == {}
