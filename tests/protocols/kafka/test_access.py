"""No request gets past the access check: what each is told, and that nothing has happened."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka import admin_messages as a
from braidlog.protocols.kafka import group_messages as g
from braidlog.protocols.kafka import messages as m
from braidlog.protocols.kafka import sasl_messages
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.session import COMMANDS
from tests.broker.access.rules import Nothing
from tests.protocols.kafka.frames import Client, fetch, message_set, produce
from tests.protocols.kafka.talk import FOO, FOO_NAME, OpenClient

DENIED = Code.TOPIC_AUTHORIZATION_FAILED
REFUSALS = {m.ConsumerMetadataRequest: Code.GROUP_AUTHORIZATION_FAILED}
OF_OTHERS = (Code.GROUP_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED)
COMMIT = {FOO: {0: m.CommitTarget(0, b"", None)}}
SAMPLES: dict[type, m.RequestBody] = {
    m.ProduceRequest: produce(FOO, {0: message_set(b"x")}),
    m.FetchRequest: fetch(FOO, {0: (0, 1000)}),
    m.OffsetsRequest: m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(-1, 1)}}),
    m.MetadataRequest: m.MetadataRequest([FOO]),
    m.OffsetCommitRequest: m.OffsetCommitRequest(0, b"g", -1, b"", COMMIT),
    m.OffsetFetchRequest: m.OffsetFetchRequest(1, b"g", {FOO: [0]}),
    m.ConsumerMetadataRequest: m.ConsumerMetadataRequest(b"g"),
}
# Those of later versions: (request, version).
LATER: dict[type, tuple[m.RequestBody, int]] = {
    m.OffsetForLeaderEpochRequest: (
        m.OffsetForLeaderEpochRequest({FOO: {0: m.EpochTarget(0)}}),
        3,
    ),
    g.JoinGroupRequest: (
        g.JoinGroupRequest(b"g", 9999, b"", b"c", [g.GroupProtocol(b"p", b"")]),
        3,
    ),
    g.SyncGroupRequest: (g.SyncGroupRequest(b"g", 1, b"m", []), 3),
    g.HeartbeatRequest: (g.HeartbeatRequest(b"g", 1, b"m"), 3),
    g.LeaveGroupRequest: (g.LeaveGroupRequest(b"g", b"m"), 1),
    g.DescribeGroupsRequest: (g.DescribeGroupsRequest([b"g"]), 4),
    g.DeleteGroupsRequest: (g.DeleteGroupsRequest([b"g"]), 1),
    a.CreateTopicsRequest: (a.CreateTopicsRequest([a.NewTopic(b"bar", 1, 1)]), 4),
    a.DeleteTopicsRequest: (a.DeleteTopicsRequest([FOO]), 3),
    a.CreatePartitionsRequest: (a.CreatePartitionsRequest([a.GrowingTopic(FOO, 2)]), 1),
    a.DescribeConfigsRequest: (a.DescribeConfigsRequest([a.ConfigResource(2, FOO)]), 3),
    a.AlterConfigsRequest: (a.AlterConfigsRequest([a.AlteredResource(2, FOO, [])]), 1),
    a.IncrementalAlterConfigsRequest: (
        a.IncrementalAlterConfigsRequest([a.AlteredResource(2, FOO, [])]),
        0,
    ),
    a.DeleteRecordsRequest: (a.DeleteRecordsRequest({FOO: {0: 0}}), 1),
    a.DescribeLogDirsRequest: (a.DescribeLogDirsRequest(None), 1),
}
FOR_ANYBODY = {
    *(m.ApiVersionsRequest, m.InitProducerIdRequest),
    *(sasl_messages.SaslHandshakeRequest, sasl_messages.SaslAuthenticateRequest),
}
CHECKED = [
    kind
    for kind, command in COMMANDS.items()
    if command.action is not None and kind not in LATER and kind is not g.ListGroupsRequest
]


def codes(reply: m.Reply) -> list[int]:
    if isinstance(reply, m.MetadataReply):
        return [topic.error for topic in reply.topics]
    if isinstance(reply, m.ConsumerMetadataReply):
        return [reply.error]
    answers = [one for partitions in reply.topics.values() for one in partitions.values()]
    return [one if isinstance(one, int) else one.error for one in answers]


def test_only_these_are_for_everybody() -> None:
    assert {kind for kind, command in COMMANDS.items() if command.action is None} == FOR_ANYBODY


def test_each_request_has_a_sample() -> None:
    assert set(SAMPLES) == set(CHECKED)


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
async def test_a_request_that_is_not_allowed_is_refused(
    broker: Broker, client: Client, kind: type
) -> None:
    rules = Nothing()
    broker.access = Access(rules)
    assert codes(await client.call(SAMPLES[kind])) == [REFUSALS.get(kind, DENIED)]
    assert rules.actions == {COMMANDS[kind].action}
    topic = broker.topics.get(FOO_NAME)
    assert topic.partitions[0].next_offset == 0
    assert not broker.subscriptions.names(topic)


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
async def test_its_own_action_is_all_that_a_request_needs(
    broker: Broker, client: Client, kind: type
) -> None:
    broker.access = Access(Nothing(COMMANDS[kind].action))
    assert codes(await client.call(SAMPLES[kind])) == [Code.NONE]


def later_codes(reply: object) -> list[int]:
    """Of a reply with a code of its own, or one for each of a list."""
    if hasattr(reply, "error"):
        return [reply.error]
    (answers,) = (getattr(reply, name) for name in reply.__slots__)  # type: ignore[attr-defined]
    if isinstance(reply, m.OffsetForLeaderEpochReply):
        answers = [one for topic in answers for one in topic.partitions]
    if isinstance(answers, dict):
        answers = [one for partitions in answers.values() for one in partitions.values()]
    return [one.error for one in answers]


@pytest.mark.parametrize("kind", LATER, ids=lambda kind: kind.__name__)
async def test_a_later_request_that_is_not_allowed_is_refused(
    broker: Broker, client: Client, kind: type
) -> None:
    rules = Nothing()
    broker.access = Access(rules)
    (code,) = later_codes(await client.call_with_table(*LATER[kind]))
    assert code in (DENIED, *OF_OTHERS)
    assert rules.actions == {COMMANDS[kind].action}
    assert [topic.name for topic in broker.topics.all()] == [FOO_NAME]


@pytest.mark.parametrize("kind", LATER, ids=lambda kind: kind.__name__)
async def test_its_own_action_is_all_that_a_later_request_needs(
    broker: Broker, client: Client, kind: type
) -> None:
    broker.access = Access(Nothing(COMMANDS[kind].action))
    (code,) = later_codes(await client.call_with_table(*LATER[kind]))
    assert code not in (DENIED, *OF_OTHERS)


async def test_groups_that_may_not_be_seen_are_not_listed(broker: Broker, client: Client) -> None:
    await client.call_with_table(m.OffsetCommitRequest(5, b"g", topics=COMMIT), 5)
    assert len((await client.call_with_table(g.ListGroupsRequest(), 2)).groups) == 1
    broker.access = Access(Nothing())
    assert not (await client.call_with_table(g.ListGroupsRequest(), 2)).groups


async def test_topics_that_may_not_be_seen_are_not_listed(broker: Broker, client: Client) -> None:
    broker.access = Access(Nothing())
    reply = await client.call(m.MetadataRequest([]))
    assert isinstance(reply, m.MetadataReply)
    assert reply.brokers and not reply.topics


async def test_making_a_topic_needs_a_right_of_its_own(
    broker: Broker, open_client: OpenClient, client: Client
) -> None:
    broker.access = Access(Nothing(Action.DESCRIBE))
    assert codes(await client.call(m.MetadataRequest([b"bar"]))) == [DENIED]
    broker.access = Access(Nothing(Action.DESCRIBE, Action.CREATE))
    assert codes(await client.call(m.MetadataRequest([b"bar"]))) == [Code.NONE]


async def test_a_topic_that_is_not_there_is_not_told_from_one_that_is(
    broker: Broker, client: Client
) -> None:
    broker.access = Access(Nothing())
    assert codes(await client.call(fetch(b"bar", {0: (0, 1000)}))) == [DENIED]


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
async def test_a_refusal_does_not_tell_whether_the_topic_is_there(
    broker: Broker, client: Client, kind: type
) -> None:
    broker.access = Access(Nothing())
    present = await client.call(SAMPLES[kind])
    await broker.topics.delete(FOO_NAME)
    assert await client.call(SAMPLES[kind]) == present


@pytest.mark.parametrize("kind", LATER, ids=lambda kind: kind.__name__)
async def test_a_later_refusal_does_not_tell_whether_the_topic_is_there(
    broker: Broker, client: Client, kind: type
) -> None:
    broker.access = Access(Nothing())
    present = await client.call_with_table(*LATER[kind])
    await broker.topics.delete(FOO_NAME)
    assert await client.call_with_table(*LATER[kind]) == present


async def test_a_topic_is_made_for_its_client(client, makers):
    for name in (b"one", b"two"):
        await client.call(m.MetadataRequest([name]))
    assert makers[-2:] == [("anonymous", "kafka 127.0.0.1")] * 2
