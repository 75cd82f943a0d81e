"""Starts the additional tasks of a broker in a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from braidlog.broker.cluster.internal_listener import InternalListener
from braidlog.broker.cluster.join_cluster import ledger_of
from braidlog.broker.cluster.membership import Membership
from braidlog.broker.cluster.upkeep import Upkeep
from braidlog.broker.cluster_parts import ClusterParts
from braidlog.broker.runtime.threads import run_in_thread

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.listener import Listener
    from braidlog.storage.shared.session import ClusterSession


async def take_part(broker: Broker, listeners: Sequence[Listener], root: trio.Nursery) -> None:
    """Return once every shard has an owner and the catalogue is known, or the broker is to stop.
    Publish the addresses of the listeners once they are open. Raises ConfigError.
    """
    parts = broker.parts
    assert isinstance(parts, ClusterParts)
    upkeep = Upkeep(broker, parts.shared)
    internal = InternalListener(broker, parts)
    root.start_soon(upkeep.run)
    root.start_soon(internal.run)
    root.start_soon(_tell_addresses, broker, parts.shared.session, internal, listeners)
    membership = Membership(broker, parts, upkeep, ledger_of(broker.config))
    await root.start(membership.run)
    parts.on_leave(membership.hand_over)


async def _tell_addresses(
    broker: Broker,
    session: ClusterSession,
    internal: InternalListener,
    listeners: Sequence[Listener],
) -> None:
    await run_in_thread(session.tell_addresses, internal.addresses([]))
    await broker.ready.wait()
    await run_in_thread(session.tell_addresses, internal.addresses(listeners))
