"""The topics to which a connection has lately written."""

from braidlog.broker.access.rights import REMEMBERED_NAMES_MAX, Resource, ResourceKind
from braidlog.broker.server.written_topics import WRITTEN_TOPICS_MAX, WrittenTopics
from braidlog.storage.metadata.names import TopicName


def topic(name):
    return Resource.of_topic(TopicName("public", "default", str(name)))


def test_the_topic_of_the_oldest_request_leaves_first():
    written = WrittenTopics()
    for number in range(WRITTEN_TOPICS_MAX):
        written.note(topic(number))
    written.note(topic(0))
    written.note(topic("another"))
    assert topic(0) in written and topic("another") in written
    assert topic(1) not in written and topic(2) in written


def test_a_long_name_is_not_kept():
    written = WrittenTopics()
    long = Resource(ResourceKind.TOPIC, "public", "default", "x" * REMEMBERED_NAMES_MAX)
    written.note(long)
    assert long not in written
