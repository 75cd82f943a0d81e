"""SUBSCRIBE to a non-persistent topic: "Non-persistent topics" in Apache Pulsar's documentation.

There is no position and no backlog: a consumer gets messages published while it has permits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.key_slots import KeyPolicy, KeyRanges, KeyRing
from braidlog.broker.errors import InvalidRequest, SubscriptionBusy
from braidlog.protocols.pulsar import resolving, schemas
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.subscribe_rules import (
    KINDS,
    check_key_mode,
    check_kind,
    holder_lives,
    key_sharing,
)
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError

if TYPE_CHECKING:
    from braidlog.broker.delivery.non_persistent.channel import (
        NonPersistentChannel,
        NonPersistentSubscription,
    )
    from braidlog.protocols.pulsar.client import PulsarClient
    from braidlog.protocols.pulsar.consumer import PulsarConsumer
    from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import CommandSubscribe


async def attach(client: PulsarClient, command: CommandSubscribe, consumer: PulsarConsumer) -> None:
    """Join the subscription. Raises BrokerError, CommandRefused."""
    topic = resolving.non_persistent_channel(
        client, Action.CONSUME, command.topic, make=command.force_topic_creation
    )
    group = Resource.of_group(command.subscription.encode(), topic.name)
    client.connection.check(Action.CONSUME, group)
    client.broker.client_policies.check_kind(topic.topic, KINDS[command.subType])
    if command.HasField("schema"):
        schemas.of_consumer(client, topic.topic, command.schema)
    while True:
        topic.check_open()
        subscription = _subscription(topic, command)
        try:
            subscription.attach(consumer)
        except InvalidRequest as error:
            raise CommandRefused(ServerError.ConsumerAssignError, str(error)) from error
        except SubscriptionBusy:
            if not subscription.consumers or await holder_lives(client, subscription):
                raise
        else:
            consumer.attached_to(subscription)
            return


def _subscription(
    topic: NonPersistentChannel, command: CommandSubscribe
) -> NonPersistentSubscription:
    """The subscription, if a consumer of that kind may join it. Raises SubscriptionBusy."""
    kind = KINDS[command.subType]
    policy: KeyPolicy | None = None
    if kind is SubscriptionKind.KEY_SHARED:
        policy = KeyRanges() if key_sharing(command).is_sticky else KeyRing()
    name = command.subscription.encode()
    subscription = topic.subscribe(name, kind, policy, is_kept=command.durable)
    check_kind(subscription.kind, command)
    if subscription.policy is not None:
        check_key_mode(subscription.policy, command)
    return subscription
