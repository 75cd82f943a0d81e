"""The tree in a cluster: the broker that owns the catalogue has the nodes, and serves all clients.

A tenure begins when this broker becomes the owner, and reads the stored nodes; it ends when the
broker gives the catalogue up. Knows no connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.errors import NotOwner
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.zookeeper.listener_state import Service

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from braidlog.broker.broker import Broker
    from braidlog.protocols.zookeeper.options import ZooKeeperOptions

log = structlog.get_logger()


async def serve_tenures(
    broker: Broker, options: ZooKeeperOptions, services: MutableMapping[Broker, Service]
) -> None:
    """Have a service in `services` while this broker has the nodes; run until cancelled. Raises
    storage errors.
    """
    placement = broker.placement
    while True:
        changed = placement.changed
        if placement.catalogue_owner() is None and await _open_nodes(broker):
            service = Service(broker, options)
            try:
                await service.prepare()
                count, sessions = service.nodes.count, len(service.sessions.live)
                log.info("nodes_opened", nodes=count, sessions=sessions)
                services[broker] = service
                await _serve(service)
            except NotOwner:  # Another broker has the nodes already.
                if service.is_current:
                    raise
            finally:
                services.pop(broker, None)
                service.close()
        else:
            await changed.wait()


async def _open_nodes(broker: Broker) -> bool:
    """Read the stored nodes; return False if another broker owns the nodes by then."""
    nodes = broker.nodes
    tenure = nodes.tenure
    try:
        stored = await run_in_thread(nodes.read)
    except NotOwner:
        return False
    if nodes.tenure != tenure:
        return False
    nodes.accept(stored)
    return True


async def _serve(service: Service) -> None:
    """Do the service's work by the clock until another broker has the nodes."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        while True:
            changed = service.broker.placement.changed
            if not service.is_current:
                break
            await changed.wait()
        nursery.cancel_scope.cancel()
