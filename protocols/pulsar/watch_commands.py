"""WATCH_TOPIC_LIST and WATCH_TOPIC_LIST_CLOSE (PIP-145 of Apache Pulsar): consumers by pattern hear
at once of topics that come and go. Only Java's client asks for it; others poll.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import NotSupported
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.discovery import namespace_of
from braidlog.protocols.pulsar.patterns import TopicsPattern
from braidlog.protocols.pulsar.topic_lists import topics_hash

if TYPE_CHECKING:
    from braidlog.protocols.pulsar.client import PulsarClient
    from braidlog.protocols.pulsar.topic_lists import Namespace
    from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
        CommandWatchTopicList,
        CommandWatchTopicListClose,
    )

LANE = "watcher"


def watch_topic_list(client: PulsarClient, command: CommandWatchTopicList) -> None:
    """Answer with the names that match, and send each later change. A watcher that the client
    already has starts anew: that is how the client makes sure of what it knows.
    """
    namespace = namespace_of(command.namespace)
    work = partial(_watch, client, command, namespace)
    client.lanes.in_order((LANE, command.watcher_id), work)


async def _watch(
    client: PulsarClient, command: CommandWatchTopicList, namespace: Namespace
) -> None:
    watchers = client.watchers
    with client.refusing(command.request_id):
        client.connection.check_within(Resource.of_namespace(*namespace))
        pattern = TopicsPattern(command.topics_pattern)
        watchers.close(command.watcher_id)
        watcher = watchers.open(command.watcher_id, namespace, pattern)
        names = await watchers.begin(watcher)
        digest = topics_hash(names)
        known = command.HasField("topics_hash") and command.topics_hash == digest
        answer = messages.watch_topic_list_success(
            command.request_id, command.watcher_id, () if known else names, digest
        )
        if len(answer) > client.shared.limits.topic_list_bytes:
            watchers.close(command.watcher_id)
            raise NotSupported(f"the names of {len(names)} topics are too much for one answer")
        client.outbox.answer([answer])


def watch_topic_list_close(client: PulsarClient, command: CommandWatchTopicListClose) -> None:
    """Forget a watcher; as in Apache, an unknown watcher succeeds too."""

    def close() -> None:
        client.watchers.close(command.watcher_id)
        client.outbox.answer([messages.success(command.request_id)])

    client.lanes.promptly((LANE, command.watcher_id), close)
