"""Starts the additional tasks of a broker in a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from braidlog.broker.cluster.internal_listener import InternalListener
from braidlog.broker.cluster.joining import ledger_of
from braidlog.broker.cluster.membership import Membership
from braidlog.broker.cluster.upkeep import Upkeep
from braidlog.broker.cluster_broker import ClusterBroker
from braidlog.broker.runtime.threads import run_in_thread

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.listener import Listener


async def take_part(broker: Broker, listeners: Sequence[Listener], root: trio.Nursery) -> None:
    """Return once every shard has an owner and the catalogue is known, or the broker is to stop.
    Publish the addresses of the listeners once they are open. Raises ConfigError.
    """
    assert isinstance(broker, ClusterBroker)
    upkeep = Upkeep(broker, broker.shared)
    internal = InternalListener(broker)
    root.start_soon(upkeep.run)
    root.start_soon(internal.run)
    root.start_soon(_tell_addresses, broker, internal, listeners)
    membership = Membership(broker, upkeep, ledger_of(broker.config))
    await root.start(membership.run)
    broker.on_leave(membership.hand_over)


async def _tell_addresses(
    broker: ClusterBroker, internal: InternalListener, listeners: Sequence[Listener]
) -> None:
    session = broker.shared.session
    await run_in_thread(session.tell_addresses, internal.addresses([]))
    await broker.ready.wait()
    await run_in_thread(session.tell_addresses, internal.addresses(listeners))
