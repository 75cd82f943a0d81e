"""The ZooKeeper listener as `broker/` sees it: for consumers and tools of Kafka 0.8.

The listener shows the topics, groups and address of a Kafka listener, and keeps all other nodes of
clients. Off unless configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.config.settings import OFF, ConfigError
from braidlog.broker.server.connection import address_text
from braidlog.protocols.zookeeper import paths
from braidlog.protocols.zookeeper.options import ZooKeeperOptions
from braidlog.protocols.zookeeper.service import Service
from braidlog.protocols.zookeeper.session import ZooKeeperSession

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection


class ZooKeeperAdapter:
    """See `braidlog.broker.server.adapters.FramedAdapter`."""

    name = "zookeeper"
    default_address = ("127.0.0.1", 2181)
    options_type = ZooKeeperOptions

    def __init__(self) -> None:
        self.services: dict[Broker, Service] = {}  # Of open listeners.

    def check(self, options: ZooKeeperOptions, *, loopback: bool) -> None:
        """Check the options. Raises ValueError with a line for the operator."""
        if options.chroot and (options.chroot == "/" or not paths.is_valid(options.chroot)):
            raise ValueError(f"chroot {options.chroot!r} is not a path such as /kafka")

    async def start(self, broker: Broker, options: ZooKeeperOptions, *, loopback: bool) -> None:
        """Read the stored nodes. Raises ConfigError, storage errors."""
        if not broker.placement.is_alone:
            raise ConfigError("listeners.zookeeper: not served with storage.mode shared")
        kafka = broker.config.listener(options.kafka)
        if kafka.protocol != "kafka" or kafka.listen == OFF:
            raise ConfigError(
                f"listeners.zookeeper.kafka: {options.kafka} is not an open Kafka listener"
            )
        if broker in self.services:
            raise ConfigError("listeners.zookeeper: a broker has a single ZooKeeper listener")
        self.services[broker] = Service(broker, options)

    async def work(self, broker: Broker, options: ZooKeeperOptions) -> None:
        """Expire sessions and fire watches while the listener is open."""
        try:
            await self.services[broker].run()
        finally:
            del self.services[broker]

    def open_session(
        self, broker: Broker, connection: Connection, options: ZooKeeperOptions
    ) -> ZooKeeperSession:
        """Handlers for a connection that has just come in."""
        return ZooKeeperSession(self.services[broker], connection)

    def describe(self, host: str, port: int, options: ZooKeeperOptions) -> str:
        """Return the way a client connects, to copy and paste."""
        return f"kafka-topics.sh --zookeeper {address_text((host, port))}{options.chroot} --list"


ADAPTER = ZooKeeperAdapter()
