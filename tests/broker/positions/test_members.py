"""Readers of a subscription: collected from all sources of members."""

from braidlog.broker.positions.members import Members, SubscriptionMember

TOPIC = object()


def test_members_come_from_every_source():
    members, calls = Members(), []
    kafka, pulsar = (
        SubscriptionMember("kafka", "k", "/::1", (0,)),
        SubscriptionMember("pulsar", "p", "::1", (0, 1)),
    )

    def of_kafka(topic, name):
        calls.append((topic, name))
        return [kafka]

    assert members.of(TOPIC, b"g") == []
    members.add_source(of_kafka)
    members.add_source(lambda topic, name: iter((pulsar,)))
    assert members.of(TOPIC, b"g") == [kafka, pulsar]
    assert members.others(TOPIC, b"g", "kafka") == [pulsar]
    assert calls == [(TOPIC, b"g")] * 2


def test_a_source_of_another_protocol_is_not_asked():
    members = Members()
    members.add_source(lambda topic, name: 1 / 0, "kafka")
    iggy = SubscriptionMember("iggy", "7", "", ())
    members.add_source(lambda topic, name: [iggy], "iggy")
    assert members.others(TOPIC, b"g", "kafka") == [iggy]


def test_a_removed_source_is_not_asked():
    members = Members()
    source = lambda topic, name: [SubscriptionMember("iggy", "7", "", ())]  # noqa: E731
    members.add_source(source, "iggy")
    members.remove_source(source)
    members.remove_source(source)
    assert members.of(TOPIC, b"g") == []
