"""The ZooKeeper listener as `broker/` sees it: for consumers and tools of Kafka 0.8.

The listener shows the topics, groups and address of a Kafka listener, and keeps all other nodes of
clients. Off unless configured. Modules that only connections or clusters need are imported with the
first use: the listener should take little memory.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braidlog.broker.config.settings import OFF, ConfigError
from braidlog.broker.server.connection import address_text
from braidlog.protocols.zookeeper import paths
from braidlog.protocols.zookeeper.listener_state import Service
from braidlog.protocols.zookeeper.options import ZooKeeperOptions

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection
    from braidlog.protocols.zookeeper.session import ZooKeeperSession
    from braidlog.protocols.zookeeper.session_forwarding import ClusterClient, ForwardedClient


class ZooKeeperAdapter:
    """See `braidlog.broker.server.adapters.FramedAdapter`."""

    name = "zookeeper"
    default_address = ("127.0.0.1", 2181)
    options_type = ZooKeeperOptions

    def __init__(self) -> None:
        self.brokers: set[Broker] = set()  # With an open listener.
        self.services: dict[Broker, Service] = {}  # Of brokers that have the nodes.

    def check(self, options: ZooKeeperOptions, *, loopback: bool) -> None:
        if options.chroot and (options.chroot == "/" or not paths.is_valid(options.chroot)):
            raise ValueError(f"chroot {options.chroot!r} is not a path such as /kafka")

    async def start(self, broker: Broker, options: ZooKeeperOptions, *, loopback: bool) -> None:
        """Read the stored nodes; in a cluster, the catalogue's owner does. Raises ConfigError,
        storage errors.
        """
        kafka = broker.config.listener(options.kafka)
        if kafka.protocol != "kafka" or kafka.listen == OFF:
            raise ConfigError(
                f"listeners.zookeeper.kafka: {options.kafka} is not an open Kafka listener"
            )
        if broker in self.brokers:
            raise ConfigError("listeners.zookeeper: a broker has a single ZooKeeper listener")
        if broker.placement.is_alone:
            broker.nodes.open()
            service = self.services[broker] = Service(broker, options)
            await service.prepare()
        self.brokers.add(broker)

    async def work(self, broker: Broker, options: ZooKeeperOptions) -> None:
        """Expire sessions and fire watches while the listener is open."""
        try:
            if broker.placement.is_alone:
                await self.services[broker].run()
            else:
                from braidlog.protocols.zookeeper.tenures import serve_tenures

                await serve_tenures(broker, options, self.services)
        finally:
            self.services.pop(broker, None)
            self.brokers.discard(broker)

    def open_session(
        self, broker: Broker, connection: Connection, options: ZooKeeperOptions
    ) -> ZooKeeperSession | ClusterClient:
        """Handlers for a connection that has just come in."""
        if broker.placement.is_alone:
            from braidlog.protocols.zookeeper.session import ZooKeeperSession

            return ZooKeeperSession(self.services[broker], connection)
        from braidlog.protocols.zookeeper.session_forwarding import ClusterClient

        return ClusterClient(broker, connection, options, partial(self.services.get, broker))

    def open_forwarded(
        self, broker: Broker, connection: Connection, options: ZooKeeperOptions
    ) -> ForwardedClient:
        from braidlog.protocols.zookeeper.session_forwarding import ForwardedClient

        return ForwardedClient(connection, partial(self.services.get, broker))

    def describe(self, host: str, port: int, options: ZooKeeperOptions) -> str:
        """Return the way a client connects, to copy and paste."""
        return f"kafka-topics.sh --zookeeper {address_text((host, port))}{options.chroot} --list"


ADAPTER = ZooKeeperAdapter()
