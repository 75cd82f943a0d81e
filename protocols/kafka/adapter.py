"""The Kafka listener as `broker/` sees it: Kafka 0.8 and current clients on one port.

`tables.py` lists the api keys and versions that are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.server.connection import address_text
from braidlog.protocols.kafka.names import NameSpace
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.kafka.session import KafkaSession
from braidlog.storage.metadata.names import valid_namespace

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection


class KafkaAdapter:
    """See `braidlog.broker.server.adapters.FramedAdapter`."""

    name = "kafka"
    default_address = ("127.0.0.1", 9092)
    options_type = KafkaOptions

    def open_session(
        self, broker: Broker, connection: Connection, options: KafkaOptions
    ) -> KafkaSession:
        """Handlers for a connection that has just come in."""
        return KafkaSession(broker, connection, options)

    async def start(self, broker: Broker, options: KafkaOptions, *, loopback: bool) -> None:
        """Begin to note changes of positions, if clients read them as a topic."""
        if options.offsets_topic:
            broker.subscriptions.changes.open(broker.now_us)

    def check(self, options: KafkaOptions, *, loopback: bool) -> None:
        names = NameSpace(options.namespace)
        if not valid_namespace(names.tenant, names.namespace):
            raise ValueError(f"namespace {options.namespace!r} is not a legal tenant/namespace")
        if options.message_bytes_max > options.frame_bytes_max:
            raise ValueError("message_bytes_max is above frame_bytes_max: no frame could hold it")

    def describe(self, host: str, port: int, options: KafkaOptions) -> str:
        """Return the way a client connects, to copy and paste."""
        address = address_text((host, port))
        return (
            f"kcat -b {address} -L"
            f'   # or kafka-python: KafkaProducer(bootstrap_servers="{address}");'
            " clients of Kafka 0.8 on the same port"
        )


ADAPTER = KafkaAdapter()
