"""No request gets past the access check: what each is told, and that nothing has happened."""

import pytest

from broker.access.access import Access
from broker.access.rights import Action
from broker.broker import Broker
from protocols.kafka import messages as m
from protocols.kafka.errors import Code
from protocols.kafka.session import COMMANDS
from tests.broker.access.rules import Nothing
from tests.protocols.kafka.frames import Client, fetch, message_set, produce
from tests.protocols.kafka.talk import FOO, FOO_NAME, OpenClient

DENIED = Code.TOPIC_AUTHORIZATION_FAILED
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
CHECKED = [kind for kind, command in COMMANDS.items() if command.action is not None]


def codes(reply: m.Reply) -> list[int]:
    if isinstance(reply, m.MetadataReply):
        return [topic.error for topic in reply.topics]
    if isinstance(reply, m.ConsumerMetadataReply):
        return [reply.error]
    answers = [one for partitions in reply.topics.values() for one in partitions.values()]
    return [one if isinstance(one, int) else one.error for one in answers]


def test_each_request_has_a_sample() -> None:
    assert set(SAMPLES) == set(CHECKED)


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.__name__)
async def test_a_request_that_is_not_allowed_is_refused(
    broker: Broker, client: Client, kind: type
) -> None:
    rules = Nothing()
    broker.access = Access(rules)
    assert codes(await client.call(SAMPLES[kind])) == [DENIED]
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
