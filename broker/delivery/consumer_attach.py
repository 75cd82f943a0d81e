"""Joins a consumer to the delivery of a stored subscription. Knows no protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.errors import SubscriptionBusy, SubscriptionNotFound

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition


async def join(
    broker: Broker,
    consumer: Consumer,
    partition: Partition,
    subscription: Subscription,
    kind: SubscriptionKind,
    initial: Callable[[Partition], int],
) -> Dispatcher | None:
    """Join the subscription's delivery of a partition, once the cursor is on disk. Return the
    dispatcher; None if a seek that ended meanwhile has attached the consumer already. A cursor that
    was never set begins at `initial`.

    Raises SubscriptionBusy if the subscription has another type or its only permitted consumer,
    SubscriptionNotFound if another client deletes the subscription meanwhile, TopicNotFound,
    NotOwner.
    """
    dispatchers, name = broker.dispatchers, subscription.name
    while True:
        dispatcher = dispatchers.find(partition, name)
        if dispatcher is not None and dispatcher.resetting is not None:
            await dispatcher.resetting.wait()
            if consumer.is_attached:  # By the dispatcher, after its seek.
                return None
            continue
        if dispatcher is not None and dispatcher.consumers:
            _check_same(dispatcher, kind)
            try:
                dispatcher.check_room(consumer)
            except SubscriptionBusy:
                await _take_out_silent(dispatcher)
                continue  # The dispatcher may be gone with its last consumer.
            break
        partition.check_here()  # Another topic may have the partition's number by now.
        ticket = subscription.start(partition.index, initial(partition))
        await broker.durability.reached(max(ticket, subscription.topic.ticket))
        existing = dispatchers.find(partition, name)
        if existing is not None and (existing.consumers or existing.resetting is not None):
            continue  # Another consumer was faster.
        partition.check_here()
        cursor = DispatchCursor(subscription, partition.index)
        if not cursor.is_set:
            raise SubscriptionNotFound("another client has ended the subscription")
        dispatcher = dispatchers.make(partition, name, kind, cursor)
        break
    # Atomic: no await since the last check of the dispatcher.
    dispatchers.attach(dispatcher, consumer)
    return dispatcher


def _check_same(dispatcher: Dispatcher, kind: SubscriptionKind) -> None:
    if not dispatcher.cursor.is_durable:
        raise SubscriptionBusy("a reader that keeps no position uses that name")
    if dispatcher.kind is not kind:
        active = dispatcher.kind.value
        raise SubscriptionBusy(f"the subscription is of type {active}, not {kind.value}")


async def _take_out_silent(dispatcher: Dispatcher) -> None:
    """Detach the only consumer of a subscription if the consumer is dead. Raises
    SubscriptionBusy.
    """
    holder = dispatcher.consumers[0]
    if await holder.is_alive():
        raise SubscriptionBusy(f"{dispatcher.kind.value} consumer is already connected")
    dispatcher.leave(holder)
    holder.lost("another consumer takes the place of a silent one")
    await trio.lowlevel.checkpoint()
