"""Members of Kafka groups as other tools see them, and foreign members as Kafka's
tools see them.
"""

from types import SimpleNamespace

import pytest

from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.kafka.consumer_protocol import PROTOCOL_TYPE, assignment_of, subscription_of
from braidlog.protocols.kafka.members import KafkaMembers, described_others
from braidlog.protocols.kafka.wire.describe_groups import DescribedGroupMember
from braidlog.storage.metadata.names import TopicName

PARTITIONS = 3
TOPIC = SimpleNamespace(name=TopicName("public", "default", "t"), partitions=[None] * PARTITIONS)


def members(*described, kind=PROTOCOL_TYPE):
    """Return the topic's partitions by member, in the view of other tools."""
    group = SimpleNamespace(protocol_type=kind, described=lambda: described)
    known = KafkaMembers(
        lambda name: group if name == b"g" else None, lambda: [b"g"], "public/default"
    )
    return {member.name: list(member.partitions) for member in known.of(TOPIC, b"g")}


def described(name, wants=(), **assigned):
    assigned = {topic.encode(): partitions for topic, partitions in assigned.items()}
    return DescribedGroupMember(
        member_id=name,
        member_metadata=subscription_of(wants),
        member_assignment=assignment_of(assigned) if assigned else b"",
    )


def test_members_subscribe_to_the_topic_or_have_its_partitions():
    assert members(
        described(b"a", [b"t", b"u"], t=[0, 2]),
        described(b"b", [b"t"]),
        described(b"c", [b"u", b"tt"], tt=[1]),
        described(b"d", t=[1]),
    ) == {"a": [0, 2], "b": [], "d": [1]}
    assert members(described(b"a", [b"t"]), kind=b"connect") == {}


@pytest.mark.parametrize(
    "assigned", [[-1, 1], [1, PARTITIONS], [1, 1], [(1 << 31) - 1, 1, -(1 << 31)]]
)
def test_missing_partitions_of_an_assignment_are_not_shown(assigned):
    assert members(described(b"a", t=assigned)) == {"a": [1]}


def test_a_foreign_member_appears_once_with_all_its_topics():
    other = SimpleNamespace(name=TopicName("public", "default", "u"))
    listed = [
        (TOPIC, SubscriptionMember("pulsar", "p", "::1", (0, 1))),
        (other, SubscriptionMember("pulsar", "p", "::1", (2,))),
        (TOPIC, SubscriptionMember("iggy", "7", "", ())),
    ]
    first, second = described_others(listed)
    assert (first.member_id, first.client_id, first.client_host) == (b"p", b"pulsar", b"::1")
    assert first.member_assignment == assignment_of({b"t": (0, 1), b"u": (2,)})
    assert first.member_metadata == subscription_of([b"t", b"u"])
    assert second.member_id == b"7"


def test_a_name_too_long_for_kafka_is_cut():
    (member,) = described_others([(TOPIC, SubscriptionMember("pulsar", "n" * 40_000, "", (0,)))])
    assert len(member.member_id) == (1 << 15) - 1
