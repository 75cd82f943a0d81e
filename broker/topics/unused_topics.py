"""Deletes a topic that no client uses, without a record that is stored meanwhile.

A broker alone decides and deletes in one turn. In a cluster the deletion takes a while, and the
topic may move to another broker, which knows nothing of the decision. Knows no client: the caller
decides that a topic is unused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from braidlog.broker.errors import BrokerError, Conflict, TopicNotFound
from braidlog.storage.metadata.catalogue_records import DELETING

if TYPE_CHECKING:
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.topic import Topic


async def delete_unused(topics: TopicRegistry, topic: Topic, *, epoch: int) -> int:
    """Delete a topic that no client used in the ownership `epoch` (`Topic.owner_epoch`); return the
    ticket. The caller is in a block of `topic.without_appends` since before it read the state of
    the topic. In a cluster there are three steps:

    1. The catalogue marks the topic: who owns the topic later, refuses records from the beginning,
       as a broker follows the catalogue before it serves a topic.
    2. The owners, read after that, show whether another broker owned the topic before, and so may
       have stored records.
    3. The catalogue deletes the topic, unless the mark was removed meanwhile.

    After an error the topic may refuse records until its owner calls `keep_unused`. Raises
    TopicNotFound, NotOwner, Unanswered; Conflict if the topic moved.
    """
    if topic.deleted:  # A topic that was created again since may be in use.
        raise TopicNotFound(f"{topic.name} was deleted")
    topic.check_here()
    if topic.has_one_owner:
        return await topics.delete(topic.name)
    await topics.alter_settings(topic.name, {DELETING: True})
    try:
        await topic.check_owned_since(epoch)
        if not topic.meta.is_being_deleted:
            raise Conflict(f"{topic.name} takes records again")
        return await topics.delete(topic.name)
    except BrokerError:
        if not topic.deleted:
            with suppress(BrokerError):  # The topic's owner tries again.
                await keep_unused(topics, topic)
        raise


async def keep_unused(topics: TopicRegistry, topic: Topic) -> None:
    """Let a topic take records again that `delete_unused` has left in doubt, for the topic's owner.
    From then on no earlier deletion can succeed. Raises as `TopicRegistry.alter_settings`.
    """
    await topics.alter_settings(topic.name, {DELETING: None})
