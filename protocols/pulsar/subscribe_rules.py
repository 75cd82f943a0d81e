"""Rules for a consumer that joins a subscription: kind, key sharing, and a consumer in the way that
may be dead. "Command Subscribe" in the binary protocol document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.registry import KeySharing
from braidlog.broker.errors import SubscriptionBusy
from braidlog.protocols.pulsar.consumer import PulsarConsumer
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import CommandSubscribe, KeySharedMode

if TYPE_CHECKING:
    from braidlog.broker.delivery.delivery import Delivery
    from braidlog.broker.delivery.key_slots import KeyPolicy
    from braidlog.protocols.pulsar.client import PulsarClient

SubType = CommandSubscribe.SubType

KINDS: Final[dict[int, SubscriptionKind]] = {
    SubType.Exclusive: SubscriptionKind.EXCLUSIVE,
    SubType.Shared: SubscriptionKind.SHARED,
    SubType.Failover: SubscriptionKind.FAILOVER,
    SubType.Key_Shared: SubscriptionKind.KEY_SHARED,
}


def key_sharing(command: CommandSubscribe) -> KeySharing:
    """Return the key sharing that the new consumer asks for."""
    meta = command.keySharedMeta
    return KeySharing(
        is_sticky=meta.keySharedMode == KeySharedMode.STICKY,
        in_order=not meta.allowOutOfOrderDelivery,
    )


def check_kind(kind: SubscriptionKind, command: CommandSubscribe) -> None:
    """Raises SubscriptionBusy if the subscription's consumers are of another kind."""
    if kind is not KINDS[command.subType]:
        raise SubscriptionBusy(
            "Subscription is of different type. Active subscription type of"
            f" '{kind.value}' is different than the connecting consumer's type"
            f" '{SubType.Name(command.subType)}'."
        )


def check_key_mode(policy: KeyPolicy, command: CommandSubscribe) -> None:
    """Raises SubscriptionBusy if its consumers share keys in another way."""
    if policy.is_sticky != key_sharing(command).is_sticky:
        raise SubscriptionBusy("Subscription is of different key_shared mode")


async def holder_lives(client: PulsarClient, dispatcher: Delivery) -> bool:
    """Return True if the consumer in the way answers. If it does not, its connection is ended: its
    client may have lost it without a sign.
    """
    holder = dispatcher.consumers[0]
    is_own = isinstance(holder, PulsarConsumer) and holder.owner is client
    if is_own or await holder.is_alive():
        return holder.is_attached
    dispatcher.leave(holder)
    holder.lost("another connection's consumer takes the place of a silent one")
    return False
