"""The topic that takes the records which the queues of another topic give up: the setting
`dead_letter_topic`. Knows no record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import InvalidRequest
from braidlog.storage.metadata.names import InvalidTopicName, TopicName, check_topic_name

if TYPE_CHECKING:
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.storage.metadata.catalogue_records import Setting


def dead_letter_topic(topic: TopicName, name: object) -> TopicName | None:
    """Return the dead letter topic of a topic by the value of the setting: a topic of the same
    namespace.
    """
    if not isinstance(name, str) or not name:
        return None
    return TopicName(topic.tenant, topic.namespace, name)


def check_dead_letters(
    topics: TopicRegistry,
    topic: TopicName,
    changes: Mapping[str, Setting | None],
    check: Callable[[Action, Resource], None],
) -> None:
    """Check the dead letter topic that changes of a topic's settings name: another topic, where
    the client may produce. `check` is the client's access check. Raises NotAuthorized,
    InvalidRequest.
    """
    letters = dead_letter_topic(topic, changes.get("dead_letter_topic"))
    if letters is None:
        return
    try:
        check_topic_name(letters)
    except InvalidTopicName as error:
        raise InvalidRequest(f"topic setting dead_letter_topic: {error}") from None
    check(Action.PRODUCE, Resource.of_topic(letters))
    if letters == topic:
        raise InvalidRequest("topic setting dead_letter_topic: expected another topic")
    if topics.find(letters) is None:
        raise InvalidRequest(f"topic setting dead_letter_topic: {letters} does not exist")
