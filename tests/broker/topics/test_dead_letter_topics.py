"""Rules for the dead letter topic that a topic's settings name."""

import pytest

from braidlog.broker.access.rights import Action
from braidlog.broker.errors import InvalidRequest
from braidlog.broker.topics.dead_letter_topics import check_dead_letters, dead_letter_topic
from braidlog.storage.metadata.names import TopicName

ORDERS, DEAD = (TopicName("public", "default", name) for name in ("orders", "dead"))


class LetterTopics:
    """The topics of a broker."""

    def find(self, name):
        return name if name in (ORDERS, DEAD) else None


def checked(value, topic=ORDERS):
    """Check a change; return the rights that the client needs."""
    rights = []
    changes = {"dead_letter_topic": value, "deliveries_max": 3}
    check_dead_letters(
        LetterTopics(), topic, changes, lambda action, of: rights.append((action, of.topic))
    )
    return rights


def test_dead_letters_go_to_a_topic_of_the_same_namespace():
    assert dead_letter_topic(TopicName("a", "b", "orders"), "dead") == TopicName("a", "b", "dead")
    assert dead_letter_topic(ORDERS, "") is dead_letter_topic(ORDERS, None) is None


def test_a_client_needs_the_right_to_produce_there():
    assert checked("dead") == [(Action.PRODUCE, "dead")]
    assert checked(None) == checked("") == []
    with pytest.raises(InvalidRequest, match="does not exist"):
        checked("missing")


@pytest.mark.parametrize(
    ("value", "reason"),
    [("orders", "expected another topic"), ("a/b", "dead_letter_topic"), ("a" * 300, "name")],
)
def test_other_names_are_refused(value, reason):
    with pytest.raises(InvalidRequest, match=reason):
        checked(value)
